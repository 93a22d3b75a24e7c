"""`launch.py test`: runs the test suite; every option goes to pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from app.commands.options import ROOT


def main(arguments: Sequence[str]) -> int:
    """Runs pytest from the root of the checkout; returns its exit code. Raises NotSupported outside a checkout."""
    from engine.assets import checkout
    from engine.errors import NotSupported

    if checkout() is None:
        raise NotSupported("The tests are not part of an installed Foretoken. Run 'python launch.py test' in a checkout.")
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})

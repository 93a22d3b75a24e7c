"""`launch.py test`: runs the test suite; every option goes to pytest.

Without options its two halves run at once. In the page's half a server, a browser and the tests take turns, so most of the time it leaves a
core to the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from app.commands.options import ROOT

PAGE = "tests/app"


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Runs pytest from the root of the checkout; returns its exit code. Raises NotSupported outside a checkout."""
    from engine.assets import checkout
    from engine.errors import NotSupported

    if checkout() is None:
        raise NotSupported("The tests are not part of an installed Foretoken. Run 'python launch.py test' in a checkout.")
    return _begun(arguments, root).wait() if arguments else _halves(root)


def _halves(root: Path) -> int:
    """Runs both halves, the page's in sight; what the other one says is printed when it has ended."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        others, page = _begun([f"--ignore={PAGE}"], root, said), _begun([PAGE], root)
        try:
            codes = page.wait(), others.wait()
        finally:
            for each in (page, others):
                each.terminate()  # after an interrupt
        said.seek(0)
        sys.stdout.writelines(said)
    return next((code for code in codes if code), 0)


def _begun(arguments: Sequence[str], root: Path, out: IO[str] | None = None) -> subprocess.Popen:
    command, environment = [sys.executable, "-m", "pytest", *arguments], os.environ | {"PYTHONPATH": str(root)}
    return subprocess.Popen(command, cwd=root, env=environment, stdout=out, stderr=None if out is None else subprocess.STDOUT)

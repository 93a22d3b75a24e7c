"""`launch.py test`: runs the tests. Without options the short suite, with --all everything; other options go to pytest.

The suite runs as two halves at once. In the page's half, a server, a browser and the tests wait for each other, so it usually leaves a
core to the other half.
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
SHORT = ("-m", "not slow and not panel")


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Runs pytest from the root of the checkout; returns its exit code. Raises NotSupported outside a checkout."""
    from engine.assets import checkout
    from engine.errors import NotSupported

    if checkout() is None:
        raise NotSupported("The tests are not part of an installed Foretoken. Run 'python launch.py test' in a checkout.")
    if list(arguments) in ([], ["--all"]):
        return _halves(() if arguments else SHORT, root)
    return _start(arguments, root).wait()


def _halves(options: Sequence[str], root: Path) -> int:
    """Runs both halves: the page's in the foreground; the other's output is printed at its end."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        others, page = _start([*options, f"--ignore={PAGE}"], root, output), _start([*options, PAGE], root)
        try:
            codes = page.wait(), others.wait()
        finally:
            for each in (page, others):
                each.terminate()  # after an interrupt
        output.seek(0)
        sys.stdout.writelines(output)
    return next((code for code in codes if code), 0)


def _start(arguments: Sequence[str], root: Path, out: IO[str] | None = None) -> subprocess.Popen:
    command, environment = [sys.executable, "-m", "pytest", *arguments], os.environ | {"PYTHONPATH": str(root)}
    return subprocess.Popen(command, cwd=root, env=environment, stdout=out, stderr=None if out is None else subprocess.STDOUT)

"""`launch.py test`: runs the tests. Without options the short suite, with --all everything; other options go to pytest.

The suite runs in parts, two at a time. In the page's part a server, a browser and the tests wait for each other, so it usually leaves a
core to the others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.commands.options import ROOT

FOLDERS = ("tests/app", "tests/research", "tests/engine")  # a part each, the longest first; the last part is all other tests
AT_ONCE = 2
SHORT = ("-m", "not slow and not panel")


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Runs pytest from the root of the checkout; returns its exit code. Raises NotSupported outside a checkout."""
    from engine.assets import checkout
    from engine.errors import NotSupported

    if checkout() is None:
        raise NotSupported("The tests are not part of an installed Foretoken. Run 'python launch.py test' in a checkout.")
    if list(arguments) in ([], ["--all"]):
        return _run_parts(() if arguments else SHORT, root)
    return _start(arguments, root).wait()


def _run_parts(options: Sequence[str], root: Path) -> int:
    """Runs all parts. The first one prints as it runs; the output of the others follows at the end."""
    folders = [folder for folder in FOLDERS if (root / folder).is_dir()]
    parts = [[folder] for folder in folders] + [[f"--ignore={folder}" for folder in folders]]
    running: list[subprocess.Popen] = []

    def run(part: list[str]) -> tuple[int, str]:
        process = _start([*options, *part], root, None if part is parts[0] else subprocess.PIPE)
        running.append(process)
        output, _ = process.communicate()
        return process.returncode, output or ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            results = list(pool.map(run, parts))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise
    for _, output in results:
        sys.stdout.write(output)
    return next((code for code, _ in results if code), 0)


def _start(arguments: Sequence[str], root: Path, out: int | None = None) -> subprocess.Popen:
    command, environment = [sys.executable, "-m", "pytest", *arguments], os.environ | {"PYTHONPATH": str(root)}
    errors = None if out is None else subprocess.STDOUT
    return subprocess.Popen(command, cwd=root, env=environment, stdout=out, stderr=errors, encoding="utf-8", errors="replace")

"""The Python example of README, for the tests that run it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_block() -> str:
    """The first fenced block of README that is marked as Python."""
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert block, "README.md has no block that begins with ```python"
    return block.group(1)


def run_python(python: str | Path, code: str, folder: Path, **environment: str) -> str:
    """Output of code that another Python runs in a folder without PYTHONPATH; raises AssertionError if it fails."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", code]
    done = subprocess.run(command, cwd=folder, env=inherited | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout

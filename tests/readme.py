"""README's python block, for the tests that run it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def python_block() -> str:
    """The first block of README that is marked as Python."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found, "README.md has no block that begins with ```python"
    return found.group(1)


def run_python(python: str | Path, code: str, folder: Path, **environment: str) -> str:
    """What a piece of code prints, run in a folder by a Python that sees no more of this process than `environment`; it must succeed."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), "-c", code]
    done = subprocess.run(command, cwd=folder, env=inherited | environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""README's example of the library is short, uses only the public names, and runs."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from PIL import Image

import engine
from tests.readme import ROOT, python_block, run_python


def test_it_has_at_most_ten_lines_and_uses_the_door_alone() -> None:
    block = python_block()
    assert len(block.splitlines()) <= 10
    imports = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "engine"]
    assert [node.module for node in imports] == ["engine"]
    assert {alias.name for alias in imports[0].names} <= set(engine.__all__)


def test_it_runs_in_any_folder(tmp_path: Path) -> None:
    output = run_python(sys.executable, python_block(), tmp_path, PYTHONPATH=str(ROOT))
    assert re.fullmatch(r"256 tokens in \d+ passes\n", output)
    with Image.open(tmp_path / "apple.png") as picture:
        assert picture.size == (128, 128)

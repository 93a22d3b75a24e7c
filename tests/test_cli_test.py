"""`launch.py test` without options: both halves of a suite run, and a failure of either is its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.commands.test import main

PASSES, FAILS = "def test_it():\n    assert True\n", "def test_it():\n    assert False\n"


@pytest.mark.parametrize("page, others, code", [(PASSES, PASSES, 0), (FAILS, PASSES, 1), (PASSES, FAILS, 1)])
def test_both_halves_run(page: str, others: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    for name, text in (("tests/app/test_page.py", page), ("tests/test_others.py", others)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main([], tmp_path) == code
    said = capfd.readouterr().out
    assert said.count("1 passed") + said.count("1 failed") == 2  # each half has one test, so none ran twice


def test_options_go_to_pytest(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "test_it.py").write_text(PASSES, encoding="utf-8")
    assert main(["-k", "nothing_here"], tmp_path) == 5  # pytest's code for no tests
    assert "1 deselected" in capfd.readouterr().out

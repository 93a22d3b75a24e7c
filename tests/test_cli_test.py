"""`launch.py test`: all parts of a suite run, and a failure of any is its exit code; --all brings the slow ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.commands.test import main
from tests.conftest import SLOW

PASSES, FAILS = "def test_it():\n    assert True\n", "def test_it():\n    assert False\n"
STAYS_AWAY = f"import pytest\n@pytest.mark.slow\n{FAILS}"


@pytest.mark.parametrize(
    ("page", "others", "arguments", "code"),
    [
        (PASSES, PASSES, [], 0), (FAILS, PASSES, [], 1), (PASSES, FAILS, [], 1), (PASSES, PASSES, ["--all"], 0),
        (PASSES, STAYS_AWAY, ["--all"], 1),
    ],
)  # fmt: skip
def test_all_parts_run(page: str, others: str, arguments: list[str], code: int, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    for name, text in (("tests/app/test_page.py", page), ("tests/test_others.py", others)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(arguments, tmp_path) == code
    printed = capfd.readouterr().out
    assert printed.count("1 passed") + printed.count("1 failed") == 2  # each part has one test, so none ran twice


def test_the_short_suite_has_no_slow_tests(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    for name in ("tests/app/test_page.py", "tests/test_others.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{STAYS_AWAY}{PASSES.replace('it', 'other')}", encoding="utf-8")
    assert main([], tmp_path) == 0
    assert capfd.readouterr().out.count("1 passed, 1 deselected") == 2


def test_options_go_to_pytest(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "test_it.py").write_text(PASSES, encoding="utf-8")
    assert main(["-k", "nothing_here"], tmp_path) == 5  # pytest's code for no tests
    assert "1 deselected" in capfd.readouterr().out


@pytest.mark.parametrize("slow", SLOW)
def test_what_is_called_slow_is_there(slow: str) -> None:
    file, _, name = slow.partition("::")
    path = Path(__file__).parents[1] / file
    assert path.is_dir() or (path.is_file() and f"def {name}" in path.read_text(encoding="utf-8"))

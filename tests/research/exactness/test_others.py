"""`verify --others`: what it reads of another project, and its rows; the rules of transformers, which is installed, are really called."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from engine.errors import NotSupported
from research.commands import verify
from research.exactness.others import table
from research.exactness.others.generating import PATHS, draw_sequences
from research.exactness.others.rules import RULES
from research.exactness.others.sources import Missing, find

WHEEL = "an_engine-1.2-py3-none-any.whl"
TEXT = "import nowhere\nLIMIT: int = 3\n@mark\ndef rule(x: nowhere.Tensor):\n    return x + LIMIT\ndef other():\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a wheel of a project."""
    with ZipFile(tmp_path / WHEEL, "w") as archive:
        archive.writestr("an_engine/rules.py", TEXT)
    return tmp_path


def test_named_definitions_of_a_wheel_run_without_its_imports(folder: Path) -> None:
    source = find("an-engine", folder)
    loaded = source.load("an_engine/rules.py", ("LIMIT", "rule"), mark=lambda function: function)
    assert source.version == "1.2" and loaded.rule(4) == 7 and not hasattr(loaded, "other")


def test_what_is_missing_is_the_reason_of_a_skipped_row(folder: Path) -> None:
    for path, names, message in (("an_engine/none.py", (), "has no an_engine/none.py"), ("an_engine/rules.py", ("a", "b"), "has no a, b")):
        with pytest.raises(Missing, match=message):
            find("an-engine", folder).load(path, names)
    assert table._measure(RULES[-1], folder, 10).note.startswith("tpu-inference is not installed")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="There is no folder"):
        verify.main(["--others", str(tmp_path / "none")])


def test_the_rule_of_transformers_holds_and_its_use_with_best_guesses_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table, "RULES", (RULES[0], RULES[2]))
    monkeypatch.setattr(table, "PATHS", ())
    assert verify.main(["--others", "--draws", "1000"]) == 1
    right, wrong = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| transformers")]
    assert "| exact | 1,000 |" in right and "No difference in 1,000 draws" in right
    assert "| not exact | Not exact, from position 0 on" in wrong


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.path)
def test_paths_of_generate_have_the_verdict_of_the_document(path: object) -> None:
    assert draw_sequences(path, 300).verdict == ("not exact" if "Gemma" in path.path else "exact")

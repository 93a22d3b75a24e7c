"""The renewal of everything by one command: kills, failures and equal experiments, on the toy."""

from __future__ import annotations

import csv
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from engine.errors import BadOutput
from research.bench import rows as stored_rows
from research.papers import PAPERS, recorded, running
from research.papers.declaration import Arm, Experiment, Pictures

ROOT = Path(__file__).resolve().parents[3]
RUNS = Pictures(arms=(Arm("plain", "ar"), Arm("SJD", "sjd")), prompts=tuple("abcdefghijkl"), count=12, backbone="toy")
ASKED = Experiment(key="table-1", title="One", asks="A?", reports="B.", runs=RUNS)
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, "tests/research/papers")
import test_renewal
from research.papers import running
running.run(test_renewal.ASKED, Path(sys.argv[1]), 12, 600, once=True)
"""


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """docs/make.py, which is no package."""
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs/make.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(path: Path) -> list[tuple[str, int]]:
    """The rows of a file, by label and input."""
    with path.open(newline="", encoding="utf-8") as file:
        return [(row["label"], int(row["input"])) for row in csv.DictReader(file)]


def test_a_killed_experiment_goes_on_and_has_every_row_once(tmp_path: Path) -> None:
    """The first process is killed as soon as a row is stored; the second one measures what is missing."""
    path = tmp_path / "rows.csv"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not (path.is_file() and path.stat().st_size) and child.poll() is None:
        time.sleep(0.002)
    child.kill()
    child.wait()
    before = measured(path)
    assert before and len(before) % (2 * running.CHUNK) == 0  # whole chunks only
    running.run(ASKED, path, 12, 600, once=True)
    assert measured(path)[: len(before)] == before
    assert measured(path) == [(label, i) for i in range(12) for label in ("plain", "SJD")]


def test_a_kill_while_rows_are_written_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    stored_rows.append_csv(path, [{"input": 0}], whole=True)
    before = path.read_bytes()

    def killed(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(BadOutput, match="killed"):
        stored_rows.append_csv(path, [{"input": 1}, {"input": 2}], whole=True)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_experiments_with_the_same_rows_are_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "p-table-1.csv", tmp_path / "p-table-2.csv"
    running.run(ASKED, first, 2, 60, once=True)
    running.run(ASKED, second, 2, 60, once=True)
    assert "p-table-1.csv has the same rows" in capsys.readouterr().err and first.read_bytes() == second.read_bytes()
    twice = tmp_path / "p-table-3.csv"  # rows that were decoded once do not stand for others
    running.run(ASKED, twice, 1, 60)
    assert measured(twice) == [("plain", 0), ("SJD", 0)]
    running.run(ASKED, second, 3, 60, once=True)
    assert len(measured(second)) == 6 and len(measured(first)) == 4


def test_the_tables_that_share_their_rows_are_those_of_the_page() -> None:
    """docs/papers.md names them."""
    groups: dict[str, set[str]] = {}
    for paper, asked in recorded.every():
        assert asked.runs is not None
        groups.setdefault(running.digest(asked.runs), set()).add(f"{paper.name} {asked.key}")
    shared = [{"sjdpp table-1", "sjdpp table-2", "sjdpp table-4"}, {"sjdpp table-6", "sjdpp figure-5"}, {"sjdpp table-7", "sjdpp figure-6"},
              {"cross_regression table-12", "cross_regression table-13"}]  # fmt: skip
    assert [group for group in groups.values() if len(group) > 1] == shared


def test_every_experiment_is_tried_whatever_happens_to_the_others(
    make: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One is killed, one is refused: both are named, and all others are measured, those with stored inputs last."""
    asked: list[list[str]] = []

    def apart(command: list[str]) -> int:
        asked.append(command[command.index("papers") + 1 :])
        return {("sjdpp", "table-5"): -9, ("sjdpp", "figure-12"): 1}.get(tuple(asked[-1][:2]), 0)

    monkeypatch.setattr(make, "measured_apart", apart)
    (tmp_path / "mulo_sd-table-2.csv").write_text("label,input\nplain,0\n", encoding="utf-8")
    failed = make.measure(tmp_path, 8, ["--once"])
    assert {(name, key) for name, key, *_ in asked} == {(paper.name, each.key) for paper, each in recorded.every()}
    assert asked[-1][:2] == ["mulo_sd", "table-2"] and all(each[2:4] == ["--to", str(tmp_path)] for each in asked)
    counts = {(name, key): int(rest[rest.index("--count") + 1]) for name, key, *rest in asked}
    assert counts["sjdpp", "table-1"] == 8 and counts["sjdpp", "figure-7"] == 4 and all(each[-1] == "--once" for each in asked)
    assert sorted(failed) == ["sjdpp figure-12", "sjdpp table-5"]
    assert f"measured {len(asked) - 2} of {len(asked)} experiments, 0 minutes" in capsys.readouterr().out


def test_what_failed_is_named_after_the_rest_was_recorded(
    make: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[object] = []
    monkeypatch.setattr(make, "measure", lambda *arguments: given.extend(arguments) or ["sjdpp table-5"])
    monkeypatch.setattr(make, "record", lambda source: given.append(source))
    monkeypatch.setattr(make, "ROOT", tmp_path)  # no pages
    monkeypatch.setattr(make, "begin_pages", lambda: None)
    monkeypatch.setattr(sys, "argv", ["make.py", "--measure", str(tmp_path), "--count", "8", "--once"])
    assert make.main() == 1
    assert given == [tmp_path, 8, ["--once"], tmp_path]
    assert "run the same command again: sjdpp table-5" in capsys.readouterr().err
    for wrong in (["--count", "8"], ["--once"]):
        monkeypatch.setattr(sys, "argv", ["make.py", *wrong])
        with pytest.raises(SystemExit):
            make.main()
        assert f"{wrong[0]} needs --measure" in capsys.readouterr().err


def test_a_process_that_dies_has_a_code(make: ModuleType) -> None:
    assert make.measured_apart([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]) == -signal.SIGKILL


def test_one_that_cannot_be_recorded_does_not_stop_the_others(tmp_path: Path) -> None:
    """A figure that was half written when the process was killed."""
    assert set(recorded.record(tmp_path, tmp_path / "docs").values()) == {"it was not measured"}
    asked = PAPERS["mulo_sd"].find("table-2")
    assert asked is not None and asked.runs is not None
    row = {"label": "plain, 64", "input": "0", "declared": running.digest(asked.runs)}
    recorded.write_rows(tmp_path / "mulo_sd-table-2.csv", [row])
    (tmp_path / "mulo_sd-table-2.png").write_bytes(b"\x89PNG\r\n")
    assert "cannot be read" in recorded.record(tmp_path, tmp_path / "docs")["mulo_sd-table-2"]
    recorded.write_rows(tmp_path / "mulo_sd-table-2.csv", [row | {"declared": "other"}])
    assert "older declaration" in recorded.record(tmp_path, tmp_path / "docs")["mulo_sd-table-2"]

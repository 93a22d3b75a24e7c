"""The declared experiments, and a small run of one that is stored, resumed and refused."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.cli import main
from engine.core import KnobArray
from engine.errors import BadFile, BadOutput, BadPrompt, MissingWeights, NotSupported
from engine.methods import find
from research.bench.plan import ImageBench
from research.bench.rows import append_csv
from research.exactness.toy import Toy
from research.papers import PAPERS, experiment_of, running
from research.papers.declaration import Arm, Experiment, Meshes, Pictures

ROOT = Path(__file__).resolve().parents[3]
ALL = [(paper, each) for paper in PAPERS.values() for each in paper.experiments]
RUN = [each for _, each in ALL if each.runs]


def test_every_table_and_figure_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """38 tables and 43 figures have a caption in the five texts."""
    assert sum(len(paper.experiments) + len(paper.illustrations) for paper in PAPERS.values()) == 4 + 9 + 1 + 8 + 10 + 14 + 5 + 9 + 17 + 3
    assert main(["papers"]) == 0
    shown = capsys.readouterr().out
    assert all(each.title in shown and each.reason in shown for _, each in ALL)


@pytest.mark.parametrize("each", RUN, ids=lambda each: each.key)
def test_a_declaration_can_be_measured_and_drawn(each: Experiment) -> None:
    if isinstance(each.runs, Meshes):
        assert next(iter(each.runs.rows.values())).method == "ar"
        for row in each.runs.rows.values():
            KnobArray(find(row.method)[0].knobs, row.knobs)
        return
    for arm in each.runs.arms:
        ImageBench(backbone="pictogram", methods=(arm.method,)).at({**each.runs.settings, **arm.settings})


def test_what_lacks_something_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For a model without row heads, and for a drafter that was trained for other weights."""
    toy, arms = Toy(), (Arm("SJD", "sjd"), Arm("EAGLE", "eagle"), Arm("Medusa", "medusa"))
    monkeypatch.setattr(toy, "capabilities", toy.capabilities - {"spatial_heads"})

    def stale(name: str) -> None:
        raise MissingWeights(f"{name} belongs to other weights.")

    monkeypatch.setattr(toy, "drafter", stale)
    groups = running.group_arms(Pictures(arms=arms), toy)
    assert [arm.line for of in groups.values() for arm in of] == ["SJD"]
    text = capsys.readouterr().err
    assert "EAGLE is left out: feature_draft belongs to other weights." in text and "Medusa is left out: toy has no spatial_heads." in text
    with pytest.raises(NotSupported, match="no row"):
        running.group_arms(Pictures(arms=arms[1:]), toy)


def test_a_setting_out_of_range_is_refused() -> None:
    with pytest.raises(BadPrompt):
        ImageBench(backbone="pictogram").at({"temperature": 9.0})


def test_what_does_not_run_says_why() -> None:
    with pytest.raises(NotSupported, match=r"there is no speech model\. table-3"):
        experiment_of(PAPERS["cross_regression"], "table-4")
    with pytest.raises(NotSupported, match="diagram"):
        experiment_of(PAPERS["sjdpp"], "figure-3")
    with pytest.raises(NotSupported, match="is not an experiment"):
        experiment_of(PAPERS["sjdpp"], "table-99")


def test_a_run_goes_on_where_it_stopped_and_refuses_another_declaration(tmp_path: Path) -> None:
    """Two prompts, then three: the first two are not measured again. Plain decoding is measured at each value of a setting."""
    path, arms = tmp_path / "rows.csv", (Arm("SJD", "sjd", {}, {"size": 64}), Arm("SJD+", "sjd", {"window": 4}, {"size": 64, "top_k": 5}))
    experiment = Experiment(key="table-1", title="", asks="", reports="", runs=Pictures(arms=arms, count=3))
    first = running.run(experiment, path, 2, 60, once=True)
    assert [(row["label"], row["input"]) for row in first if row["input"] == "1"] == [
        ("plain size=64", "1"), ("SJD", "1"), ("plain size=64 top_k=5", "1"), ("SJD+", "1")
    ]  # fmt: skip
    assert {row["label"]: row["top_k"] for row in first} == {"plain size=64": "0", "SJD": "0", "plain size=64 top_k=5": "5", "SJD+": "5"}
    assert all(row["objects"] in ("True", "False") for row in first)
    more = running.run(experiment, path, 3, 60, once=True)
    assert more[: len(first)] == first and {row["input"] for row in more} == {"0", "1", "2"}
    with path.open(newline="", encoding="utf-8") as file:
        assert len([*csv.DictReader(file)]) == 12
    other = Experiment(key="table-1", title="", asks="", reports="", runs=Pictures(arms=arms[:1], count=3))
    with pytest.raises(BadFile, match="declared"):
        running.run(other, path, 3, 60)


# --- kills, and equal rows --------------------------------------------------------------------------------------------

PAIR = Pictures(arms=(Arm("plain", "ar"), Arm("SJD", "sjd")), count=8, settings={"size": 64})
ASKED = Experiment(key="table-1", title="One", asks="A?", reports="B.", runs=PAIR)
CHILD = """
import sys
from pathlib import Path
from research.papers import running
from tests.research.papers.test_papers import ASKED
running.run(ASKED, Path(sys.argv[1]), 8, 600, once=True)
"""


def stored_rows(path: Path) -> list[tuple[str, int]]:
    """The rows of a file, by label and input."""
    with path.open(newline="", encoding="utf-8") as file:
        return [(row["label"], int(row["input"])) for row in csv.DictReader(file)]


def test_a_killed_experiment_goes_on_and_has_every_row_once(tmp_path: Path) -> None:
    """The first process is killed as soon as a row is stored; the second one measures what is missing."""
    path = tmp_path / "rows.csv"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    while not any(each.stat().st_size for each in tmp_path.glob("rows.csv")) and child.poll() is None:
        time.sleep(0.002)
    child.kill()
    child.wait()
    before = stored_rows(path)
    assert before and len(before) % (2 * running.CHUNK) == 0  # whole chunks only
    running.run(ASKED, path, 8, 600, once=True)
    assert stored_rows(path)[: len(before)] == before
    assert sorted(stored_rows(path)) == sorted((label, i) for i in range(8) for label in ("plain", "SJD"))


def test_a_kill_while_rows_are_written_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    append_csv(path, [{"input": 0}], whole=True)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("killed")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(BadOutput, match="killed"):
        append_csv(path, [{"input": 1}, {"input": 2}], whole=True)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_experiments_with_the_same_rows_are_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "p-table-1.csv", tmp_path / "p-table-2.csv"
    running.run(ASKED, first, 2, 60, once=True)
    running.run(ASKED, second, 2, 60, once=True)
    assert "p-table-1.csv has the same rows" in capsys.readouterr().err and first.read_bytes() == second.read_bytes()
    twice = tmp_path / "p-table-3.csv"  # rows that were decoded once do not count for others
    running.run(ASKED, twice, 1, 60)
    assert stored_rows(twice) == [("plain", 0), ("SJD", 0)]
    running.run(ASKED, second, 3, 60, once=True)
    assert len(stored_rows(second)) == 6 and len(stored_rows(first)) == 4


def test_the_tables_that_share_their_rows() -> None:
    groups: dict[str, set[str]] = {}
    for paper, each in ALL:
        if each.runs:
            groups.setdefault(running.digest(each.runs), set()).add(f"{paper.name} {each.key}")
    shared = [{"sjdpp table-1", "sjdpp table-2", "sjdpp table-4"}, {"sjdpp table-6", "sjdpp figure-5"}, {"sjdpp table-7", "sjdpp figure-6"},
              {"cross_regression table-12", "cross_regression table-13"}]  # fmt: skip
    assert [group for group in groups.values() if len(group) > 1] == shared

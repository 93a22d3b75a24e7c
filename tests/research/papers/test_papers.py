"""The declared experiments, and a small run of one that is stored, resumed and refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from app.cli import main
from engine.backbones.toy import Toy
from engine.core import KnobArray
from engine.errors import BadFile, BadPrompt, MissingWeights, NotSupported
from engine.methods import find
from engine.words.emoji_scenes import LESSONS
from research.bench.plan import ImageBench
from research.papers import PAPERS, experiment_of, running
from research.papers.declaration import Arm, Experiment, Meshes, Pictures, Readings
from research.papers.figures import DRAWN
from research.papers.panels import PANELS
from research.papers.readings import READ, in_proportion
from research.papers.sheets import SHEETS

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
    assert each.drawing.kind in {**DRAWN, **SHEETS, **PANELS, "panels": None}
    if isinstance(each.runs, Meshes):
        assert next(iter(each.runs.rows.values())).method == "ar"
        for row in each.runs.rows.values():
            KnobArray(find(row.method)[0].knobs, row.knobs)
        return
    if isinstance(each.runs, Readings):
        assert each.runs.reads in READ
        return
    for arm in each.runs.arms:
        ImageBench(backbone="pictogram", methods=(arm.method,)).at({**each.runs.settings, **arm.settings})


def test_a_sheet_names_objects_that_the_lessons_of_every_model_have() -> None:
    """A sheet is made anew after a model was trained on other lessons."""
    prompts = [text for each in RUN if isinstance(each.runs, Pictures) for text in each.runs.prompts]
    for name in ("first", "common"):
        known = LESSONS[name].objects
        assert len(prompts) > 30 and all(any(word in text for word in known) for text in prompts), name


def test_what_lacks_something_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A model without row heads, and one whose drafter was trained for other weights."""
    toy, arms = Toy(), (Arm("SJD", "sjd"), Arm("EAGLE", "eagle"), Arm("Medusa", "medusa"))
    monkeypatch.setattr(toy, "capabilities", toy.capabilities - {"spatial_heads"})

    def stale(name: str) -> None:
        raise MissingWeights(f"{name} belongs to other weights.")

    monkeypatch.setattr(toy, "drafter", stale)
    groups = running.grouped(Pictures(arms=arms), toy)
    assert [arm.line for of in groups.values() for arm in of] == ["SJD"]
    told = capsys.readouterr().err
    assert "EAGLE is left out: feature_draft belongs to other weights." in told and "Medusa is left out: toy has no spatial_heads." in told
    with pytest.raises(NotSupported, match="no row"):
        running.grouped(Pictures(arms=arms[1:]), toy)


def test_a_setting_out_of_range_is_refused() -> None:
    with pytest.raises(BadPrompt):
        ImageBench(backbone="pictogram").at({"temperature": 9.0})


def test_what_does_not_run_says_why() -> None:
    with pytest.raises(NotSupported, match=r"there is no speech model\. table-3"):
        experiment_of(PAPERS["cross_regression"], "table-4")
    with pytest.raises(NotSupported, match="diagram"):
        experiment_of(PAPERS["sjdpp"], "figure-3")
    with pytest.raises(NotSupported, match="no experiment"):
        experiment_of(PAPERS["sjdpp"], "table-99")


def test_a_run_goes_on_where_it_stopped_and_refuses_another_declaration(tmp_path: Path) -> None:
    """Two prompts, then three: the first two are not measured again. Plain decoding is measured at each value of a setting."""
    path, arms = tmp_path / "rows.csv", (Arm("SJD", "sjd", {}, {"size": 64}), Arm("SJD+", "sjd", {"window": 4}, {"size": 64, "top_k": 5}))
    asked = Experiment(key="table-1", title="", asks="", reports="", runs=Pictures(arms=arms, count=3))
    first = running.run(asked, path, 2, 60, once=True)
    assert [(row["label"], row["input"]) for row in first if row["input"] == "1"] == [
        ("plain size=64", "1"), ("SJD", "1"), ("plain size=64 top_k=5", "1"), ("SJD+", "1")
    ]  # fmt: skip
    assert {row["label"]: row["top_k"] for row in first} == {"plain size=64": "0", "SJD": "0", "plain size=64 top_k=5": "5", "SJD+": "5"}
    assert all(row["objects"] in ("True", "False") for row in first)
    more = running.run(asked, path, 3, 60, once=True)
    assert more[: len(first)] == first and {row["input"] for row in more} == {"0", "1", "2"}
    with path.open(newline="", encoding="utf-8") as file:
        assert len([*csv.DictReader(file)]) == 12
    other = Experiment(key="table-1", title="", asks="", reports="", runs=Pictures(arms=arms[:1], count=3))
    with pytest.raises(BadFile, match="declared"):
        running.run(other, path, 3, 60)


def test_ranges_of_the_papers_layers_are_taken_in_proportion() -> None:
    assert in_proportion(0, 31, 6) == (0, 5) and in_proportion(0, 3, 32) == (0, 3)
    assert all(0 <= a <= b < 6 for a, b in (in_proportion(n, n, 6) for n in range(32)))

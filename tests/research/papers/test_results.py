"""Summaries of stored rows: means, claims, and the page about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.papers import drawing as figures
from research.papers import page
from research.papers.declaration import Arm, Claim, Drawing, Experiment, Paper, Pictures, not_run, setting_arms
from research.papers.results import answer, table_of
from research.papers.running import number
from research.papers.xspecmesh import PAPER as XSPECMESH


def rows_of(**by: list[float]) -> list[dict[str, str]]:
    """Stored rows of some labels: tokens per pass by input."""
    return [
        {"label": label, "input": str(i), "step_compression": f"[{value}, {value}, {value}]", "backbone": "toy", "weights": "w"}
        | {"processor": "p", "torch": "t", "commit": "c"}
        for label, values in by.items()
        for i, value in enumerate(values)
    ]


def claim_of(relation: str, margin: float = 0.0) -> Claim:
    """A claim about a and b."""
    return Claim("a against b", "a", relation, "b", "step_compression", margin)


@pytest.mark.parametrize(
    ("claim", "a", "verdict"),
    [
        (claim_of("more"), [2, 3, 4, 5, 6, 7], "agrees"),
        (claim_of("less"), [2, 3, 4, 5, 6, 7], "contradicts"),
        (claim_of("more"), [0, 5, 1, 6, 5, 7], "undecided"),
        (claim_of("alike", 1.5), [2, 3, 4, 5, 6, 7], "agrees"),
        (claim_of("alike", 0.5), [2, 3, 4, 5, 6, 7], "contradicts"),
        (claim_of("alike", 1.0), [0, 5, 1, 6, 5, 7], "undecided"),
        (claim_of("more"), [2, 3, 4, 5, 6], "undecided"),  # five of one sign: by chance in one case of 16
    ],
)
def test_a_claim_is_decided_by_the_paired_interval(claim: Claim, a: list[float], verdict: str) -> None:
    table = table_of(rows_of(a=a, b=[1, 2, 3, 4, 5, 6][: len(a)]))
    assert answer(claim, table).verdict == verdict


def test_a_claim_that_its_inputs_cannot_decide_is_refused() -> None:
    runs = Pictures(arms=(Arm("a", "sjd"), Arm("b", "ar")), count=40)
    with pytest.raises(AssertionError, match="40 inputs cannot decide"):
        Experiment(key="table-1", title="", asks="", reports="", runs=runs, claims=(Claim("as good", "a", "alike", "b", "objects", 0.05),))


def test_a_claim_about_a_row_that_was_left_out_is_not_measured() -> None:
    assert answer(claim_of("more"), table_of(rows_of(a=[1, 2, 3]))).verdict == "not measured"


def test_equal_answers_of_few_pictures_decide_nothing() -> None:
    """With 4 of 4 alike, up to 3 in 4 may differ; 100 of 100 are alike within 0.05."""
    claim = Claim("a as good as b", "a", "alike", "b", "objects", 0.05)
    for count, verdict in ((4, "undecided"), (100, "agrees")):
        rows = [{"label": label, "input": str(i), "objects": "True"} for label in "ab" for i in range(count)]
        assert answer(claim, table_of(rows)).verdict == verdict


def test_cells_become_numbers() -> None:
    cells = {"[2.5, 1, 3]": 2.5, "True": 1.0, "False": 0.0, "": None, "null": None, "1.5": 1.5, "sjd": None, "[]": None}
    assert {cell: number(cell) for cell in cells} == cells


def test_a_page_has_our_numbers_beside_the_paper_s_and_a_figure_is_drawn(tmp_path) -> None:
    runs = Pictures(arms=setting_arms("SJD", "sjd", "top_k", (1, 10)), count=5)
    for drawing in (Drawing(), Drawing(kind="curve", x="top-k"), Drawing(kind="plane", x="step_compression")):
        experiment = Experiment(
            key="table-1", title="One", asks="A?", reports="B.", runs=runs, drawing=drawing, reported={"SJD, 10": {"step_compression": 7.5}}
        )
        paper = Paper(
            name="p", title="P", method="sjd", tables=(1, 1), figures=(1, 1), experiments=(experiment,), illustrations={"figure-1": "x"}
        )
        rows = rows_of(**{"SJD, 1": [1, 2, 3], "SJD, 10": [2, 2, 2]})
        text = page.section(paper, experiment, rows)
        assert "<td>SJD, 10</td><td>2 (2 to 2); paper 7.5</td>" in text and "3 of 5 inputs" in text
        assert "tokens per pass 2 (2 to 2); paper 7.5" in page.text_of(paper, experiment, rows)
        figures.draw(experiment, rows, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("drawing", [Drawing(), Drawing(kind="curve", x="top-k"), Drawing(kind="plane", x="step_compression")])
def test_rows_that_were_left_out_are_named_and_the_others_drawn(drawing: Drawing, tmp_path: Path) -> None:
    arms = (*setting_arms("SJD", "sjd", "top_k", (1, 10)), *setting_arms("EAGLE", "eagle", "top_k", (1, 10)))
    experiment = Experiment(key="table-1", title="One", asks="A?", reports="B.", runs=Pictures(arms=arms, count=6), drawing=drawing)
    rows = rows_of(**{"SJD, 1": [1, 2, 3], "EAGLE, 10": [2, 2, 2]})
    assert page.claim_lines(experiment, rows) == ["left out, because the model lacks what they need: SJD, 10; EAGLE, 1"]
    assert page.claim_lines(experiment, [row | {"declared": "older"} for row in rows]) == []
    figures.draw(experiment, rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_declaration_with_a_hole_is_refused() -> None:
    one = not_run("table-1", "One", "A?", "B.", "no data")
    settings = {"name": "p", "title": "P", "method": "sjd", "tables": (1, 2), "figures": (1, 1), "illustrations": {"figure-1": "x"}}
    with pytest.raises(AssertionError, match="table-2"):
        Paper(experiments=(one,), **settings)
    with pytest.raises(AssertionError, match="nobody"):
        runs = Pictures(arms=(Arm("SJD", "sjd"),))
        Experiment(key="table-1", title="", asks="", reports="", runs=runs, reported={"nobody": {"speedup": 1.0}})


def test_rows_of_meshes_are_drawn(tmp_path: Path) -> None:
    one = XSPECMESH.find("figure-5")
    assert one is not None and one.runs is not None
    rows = [{"label": label, "input": str(i), "speedup": "1.5", "step_compression": "2"} for label in one.runs.labels for i in range(3)]
    figures.draw(one, rows, tmp_path / "rows.png")
    assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")

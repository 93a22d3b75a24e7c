"""What is summed up of stored rows: means, claims, and the page about them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from research.papers import figures, frechet, report
from research.papers.declaration import Arm, Claim, Conclusion, Drawing, Experiment, Paper, Pictures, at_settings, listed
from research.papers.page import section
from research.papers.results import answer, distances, table_of
from research.papers.running import number


def rows_of(**by: list[float]) -> list[dict[str, str]]:
    """Stored rows of some labels: tokens a pass by input."""
    return [
        {"label": label, "input": str(i), "step_compression": f"[{value}, {value}, {value}]", "backbone": "toy", "weights": "w"}
        | {"processor": "p", "torch": "t", "commit": "c"}
        for label, values in by.items()
        for i, value in enumerate(values)
    ]


def claimed(relation: str, margin: float = 0.0) -> Claim:
    """A claim about a and b."""
    return Claim("a against b", "a", relation, "b", "step_compression", margin)


@pytest.mark.parametrize(
    ("claim", "a", "verdict"),
    [
        (claimed("more"), [2, 3, 4, 5, 6, 7], "agrees"),
        (claimed("less"), [2, 3, 4, 5, 6, 7], "contradicts"),
        (claimed("more"), [0, 5, 1, 6, 5, 7], "undecided"),
        (claimed("alike", 1.5), [2, 3, 4, 5, 6, 7], "agrees"),
        (claimed("alike", 0.5), [2, 3, 4, 5, 6, 7], "contradicts"),
        (claimed("alike", 1.0), [0, 5, 1, 6, 5, 7], "undecided"),
        (claimed("more"), [2, 3, 4, 5, 6], "undecided"),  # five of one sign: by chance in one case of 16
    ],
)
def test_a_claim_is_decided_by_the_paired_interval(claim: Claim, a: list[float], verdict: str) -> None:
    table = table_of(rows_of(a=a, b=[1, 2, 3, 4, 5, 6][: len(a)]))
    assert answer(claim, table).verdict == verdict


def test_an_undecided_claim_says_how_many_inputs_decide_it() -> None:
    """An interval shrinks with the root of the number of inputs; that of equal answers with the number itself."""
    found = answer(claimed("more"), table_of(rows_of(a=[1, -1, 2, -1, 1, 0, 1, 0.2], b=[0.0] * 8)))
    assert found.verdict == "undecided" and found.needs is not None and found.difference is not None
    half = (found.difference.high - found.difference.low) / 2
    assert found.needs == pytest.approx(8 * (half / abs(found.difference.mean)) ** 2, abs=1)
    assert answer(claimed("more"), table_of(rows_of(a=[1.0], b=[0.0]))).needs is None
    equal = [{"label": label, "input": str(i), "objects": "True"} for label in "ab" for i in range(12)]
    alike = Claim("a as good as b", "a", "alike", "b", "objects", 0.05)
    assert answer(alike, table_of(equal)).needs == 60 == alike.least
    runs = Pictures(arms=(Arm("a", "sjd"), Arm("b", "ar")), count=60)
    asked = Experiment(key="table-1", title="One", asks="A?", reports="B.", runs=runs, claims=(alike, claimed("more")))
    told = report.paragraph(asked, [*equal, *rows_of(a=[1, 2], b=[0, 0])])
    assert "*a as good as b* (about 60 inputs decide it, if the difference stays)" in told
    assert "*a against b* (36 inputs or more can decide it; declared are 60)" in told  # 2 of 12 inputs ask for it


@pytest.mark.parametrize(("faster", "better", "word"), [(2.0, True, "yes"), (0.5, True, "no"), (2.0, False, "no"), (1.0, True, "open")])
def test_two_claims_answer_a_question_together(faster: float, better: bool, word: str) -> None:
    """Faster and as good: yes. One contradicted: no. One undecided: open."""
    claims = (Claim("faster", "a", "more", "b", "speedup"), Claim("as good", "a", "alike", "b", "objects", 0.15))
    runs = Pictures(arms=(Arm("a", "sjd"), Arm("b", "ar")))
    question = Conclusion("a is faster and as good", ("faster", "as good"))
    asked = Experiment(key="table-1", title="One", asks="A?", reports="B.", runs=runs, claims=claims, concludes=(question,))
    r = np.random.default_rng(0)
    rows = [
        {"label": label, "input": str(i), "speedup": str((faster if label == "a" else 1.0) + 0.1 * r.normal())}
        | {"objects": str(label == "b" or better)}
        for label in "ab"
        for i in range(20)
    ]
    told = report.paragraph(asked, rows)
    assert f"**a is faster and as good: {word}.** The differences: times as fast as plain decoding" in told
    with pytest.raises(AssertionError, match="does not make"):
        replace(asked, concludes=(Conclusion("", ("nothing",)),))


def test_a_claim_that_its_inputs_cannot_decide_is_refused() -> None:
    runs = Pictures(arms=(Arm("a", "sjd"), Arm("b", "ar")), count=40)
    with pytest.raises(AssertionError, match="40 inputs cannot decide"):
        Experiment(key="table-1", title="", asks="", reports="", runs=runs, claims=(Claim("as good", "a", "alike", "b", "objects", 0.05),))


def test_a_claim_about_a_row_that_was_left_out_is_not_measured() -> None:
    assert answer(claimed("more"), table_of(rows_of(a=[1, 2, 3]))).verdict == "not measured"


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
    runs = Pictures(arms=at_settings("SJD", "sjd", "top_k", (1, 10)), backbone="toy", count=5)
    for drawing in (Drawing(), Drawing(kind="curve", x="top-k"), Drawing(kind="plane", x="step_compression")):
        asked = Experiment(
            key="table-1", title="One", asks="A?", reports="B.", runs=runs, drawing=drawing, reported={"SJD, 10": {"step_compression": 7.5}}
        )
        paper = Paper(
            name="p", title="P", method="sjd", tables=(1, 1), figures=(1, 1), experiments=(asked,), illustrations={"figure-1": "x"}
        )
        rows = rows_of(**{"SJD, 1": [1, 2, 3], "SJD, 10": [2, 2, 2]})
        text = "\n".join(section(paper, asked, rows))
        assert "| SJD, 10 | 2 (2 to 2); paper 7.5 |" in text and "Of 5 inputs, 3 are measured" in text
        figures.draw(asked, rows, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("drawing", [Drawing(), Drawing(kind="curve", x="top-k"), Drawing(kind="plane", x="step_compression")])
def test_rows_that_were_left_out_are_named_and_the_others_drawn(drawing: Drawing, tmp_path: Path) -> None:
    arms = (*at_settings("SJD", "sjd", "top_k", (1, 10)), *at_settings("EAGLE", "eagle", "top_k", (1, 10)))
    asked = Experiment(key="table-1", title="One", asks="A?", reports="B.", runs=Pictures(arms=arms, count=6), drawing=drawing)
    rows = rows_of(**{"SJD, 1": [1, 2, 3], "EAGLE, 10": [2, 2, 2]})
    assert "Left out, because the model lacks what they need: SJD, 10; EAGLE, 1." in report.paragraph(asked, rows)
    assert "Left out" not in report.paragraph(asked, [row | {"declared": "older"} for row in rows])
    figures.draw(asked, rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_declaration_with_a_hole_is_refused() -> None:
    one = listed("table-1", "One", "A?", "B.", "no data")
    settings = {"name": "p", "title": "P", "method": "sjd", "tables": (1, 2), "figures": (1, 1), "illustrations": {"figure-1": "x"}}
    with pytest.raises(AssertionError, match="table-2"):
        Paper(experiments=(one,), **settings)
    with pytest.raises(AssertionError, match="nobody"):
        runs = Pictures(arms=(Arm("SJD", "sjd"),))
        Experiment(key="table-1", title="", asks="", reports="", runs=runs, reported={"nobody": {"speedup": 1.0}})


def test_the_distance_between_sets_of_pictures() -> None:
    """Near 0 for draws of one distribution, near the squared distance of the means for a shifted one, and nothing for few pictures."""
    r = np.random.default_rng(1)
    same, plain = r.normal(size=(60, 12)), r.normal(size=(60, 12))
    value, low, high = frechet.distance(same, plain)
    assert low < 0.3 and abs(value) < 0.3 and low < value < high
    assert frechet.frechet(plain, plain) == pytest.approx(0, abs=1e-9)
    assert frechet.frechet(plain + 2, plain) == pytest.approx(12 * 4)
    shifted = frechet.distance(plain + 2, plain)
    assert shifted[1] > high
    assert np.isnan(frechet.distance(same[:15], plain[:15])[0])


def test_rows_with_features_get_a_distance_from_their_own_plain_decoding() -> None:
    r = np.random.default_rng(2)

    def rows(label: str, plain: str, shift: float) -> list[dict[str, str]]:
        return [
            {"label": label, "plain": plain, "input": str(i), "features": json.dumps((r.normal(size=10) + shift).tolist())}
            for i in range(20)
        ]

    found = distances([*rows("plain", "plain", 0), *rows("fast", "plain", 3), *rows("plain top_k=1", "plain top_k=1", 3)])
    assert {*found} == {"fast"} and found["fast"].inputs == 20 and found["fast"].low > 1

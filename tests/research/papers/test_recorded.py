"""What is recorded of measured experiments for docs/, and the pages that are made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.cli import main
from research import papers
from research.papers import PAPERS, figures, recorded, report
from research.papers.declaration import Arm, Claim, Experiment, Paper, Pictures
from research.papers.results import values_of
from research.papers.running import cores_between, digest

RUNS = Pictures(arms=(Arm("plain", "ar"), Arm("SJD", "sjd")), count=20, backbone="toy", prompts=tuple("abcdefghijklmnopqrst"))
ASKED = Experiment(
    key="table-1", title="Table 1: one", asks="Is it faster?", reports="It is.", runs=RUNS, reported={"SJD": {"step_compression": 2.5}},
    claims=(Claim("SJD commits more", "SJD", "more", "plain", "step_compression"),), differs="All is small.",
)  # fmt: skip
LISTED = papers.declaration.listed("table-2", "Table 2: another", "Is it good?", "It is.", "there is no data", "table-1")
ONE = Paper(name="p", title="P", method="sjd", tables=(1, 2), figures=(1, 1), experiments=(ASKED, LISTED), illustrations={"figure-1": "x"})


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Paper:
    """A paper with one experiment that runs, in the place of the five."""
    for module in (papers, recorded):
        monkeypatch.setattr(module, "PAPERS", {"p": ONE})
    return ONE


def rows_of(count: int, others: float = 0.0) -> list[dict[str, str]]:
    """Stored rows of ASKED with features of the judge."""
    r = np.random.default_rng(3)
    stamp = {"backbone": "toy", "weights": "w", "processor": "c", "threads": "1", "torch": "t", "commit": "k", "declared": digest(RUNS)}
    return [
        {"label": label, "input": str(i), "plain": "plain", "step_compression": f"[{n + i / 1e5}, 1, 2]", "speedup": "[1.5, 1, 2]"}
        | {"features": json.dumps((r.normal(size=40) + n).tolist()), "others": str(others), "platform": "long " * 9}
        | stamp
        for i in range(count)
        for n, label in enumerate(("plain", "SJD"), 1)
    ]


def test_recorded_rows_are_small_and_say_the_same(tmp_path: Path) -> None:
    rows = rows_of(20)
    recorded.write_rows(tmp_path / "a.csv", rows)
    recorded.write_rows(tmp_path / "b.csv", recorded.small(rows))
    again = recorded.recorded(tmp_path / "b.csv")
    assert (tmp_path / "b.csv").stat().st_size < (tmp_path / "a.csv").stat().st_size / 5
    before, after = values_of(rows), values_of(again)
    assert {label: {*of} for label, of in before.items()} == {label: {*of} for label, of in after.items()}
    for label, of in before.items():
        for name, value in of.items():
            assert (after[label][name].mean, after[label][name].low) == pytest.approx((value.mean, value.low), rel=0.005, abs=0.005)
    assert "frechet" in after["SJD"]
    assert all(row["weights"] == "w" for row in again)


def test_few_pictures_are_recorded_without_features() -> None:
    assert all("features" not in row for row in recorded.small(rows_of(15)))


def test_what_was_measured_is_recorded_and_what_belongs_to_another_declaration_is_not(tmp_path: Path, only: Paper) -> None:
    measured, docs = tmp_path / "papers", tmp_path / "docs"
    recorded.write_rows(measured / "p-table-1.csv", rows_of(24))
    figures.draw(ASKED, rows_of(24), measured / "p-table-1.png")
    assert recorded.record(measured, docs) == {"p-table-1": ""}
    assert len(recorded.recorded(docs / "p-table-1.csv")) == 2 * RUNS.count  # more inputs than are declared are left out
    with Image.open(docs / "p-table-1.webp") as figure:
        assert figure.width <= recorded.WIDEST
    recorded.write_rows(measured / "p-table-1.csv", [row | {"declared": "other"} for row in rows_of(4)])
    assert "older" in recorded.record(measured, docs)["p-table-1"] and len(recorded.recorded(docs / "p-table-1.csv")) == 40


def test_a_page_tells_every_experiment(tmp_path: Path, only: Paper) -> None:
    assert "Not recorded yet: `python launch.py papers p table-1`" in recorded.page_of(ONE, tmp_path)
    recorded.write_rows(tmp_path / "p-table-1.csv", recorded.small(rows_of(8, others=1.25)))
    page = recorded.page_of(ONE, tmp_path)
    assert "| Table 1: one | 8 | 1 |  |  |" in page and "| Table 2: another | does not run |" in page
    assert "Here, tokens a pass: SJD 2 (2 to 2), in the paper 2.5." in page and "that hold here: *SJD commits more*. All is small." in page
    assert "![Table 1: one](p-table-1.webp)" in page and "there is no data. Nearest: table-1." in page and "Figure 1 shows x." in page
    assert "`python launch.py papers p table-1 --count 8`" in page and "because other programs used 1.2 cores meanwhile;" in page
    assert recorded.summary(tmp_path).splitlines()[-1] == "| [P](papers/p.md) | 2 | 1 | 1 | 1 | 0 | 0 |"
    some = recorded.chosen(ONE, ["table-1"], tmp_path, "../papers/")
    assert "](../papers/p-table-1.webp)" in some and "](../papers/p.md)" in some and "| row |" not in some
    with pytest.raises(KeyError, match="table-2"):
        recorded.chosen(ONE, ["table-2"], tmp_path, "")


def test_a_page_says_if_the_experiment_was_changed_since(tmp_path: Path) -> None:
    recorded.write_rows(tmp_path / "p-table-1.csv", recorded.small([row | {"declared": "old"} for row in rows_of(4)]))
    assert "before the experiment was last changed" in recorded.page_of(ONE, tmp_path)


def test_times_are_called_rough_if_other_programs_used_the_processor() -> None:
    assert report.disturbed(rows_of(4, others=0.1)) == ""
    assert "used 0.9 cores" in report.disturbed(rows_of(4, others=0.9))
    assert "because each row decoded an input once;" in report.disturbed([row | {"repeats": "0"} for row in rows_of(4)])
    fast = replace(ASKED, claims=(Claim("SJD is faster", "SJD", "more", "plain", "speedup"), *ASKED.claims))
    rows = [row | {"speedup": str(2.0 if row["label"] == "SJD" else 1.0)} for row in rows_of(6)]
    for more, verdict in (({}, "agrees"), ({"repeats": "0"}, "undecided")):  # rough times decide nothing, other numbers do
        assert [a.verdict for a in report.answers_of(fast, [row | more for row in rows])] == [verdict, "agrees"]
    untimed = [{name: cell for name, cell in row.items() if name != "speedup"} for row in rows_of(4, others=0.9)]
    assert report.disturbed(untimed) == ""
    assert cores_between((10.0, 5.0), (20.0, 12.0)) == 0.7 and cores_between((0.0, None), (1.0, 2.0)) is None


def test_all_experiments_run_by_one_command(
    tmp_path: Path, only: Paper, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is refused does not stop the others, and the code says so."""
    other = replace(ASKED, key="table-2", runs=replace(RUNS, count=1), claims=())
    both = replace(ONE, experiments=(ASKED, other))
    monkeypatch.setattr(papers, "PAPERS", {"p": both})
    (tmp_path / "p-table-1.csv").write_text("label,input,declared\nplain,0,older\n", encoding="utf-8")
    assert main(["papers", "all", "--count", "2", "--once", "--to", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "p table-1: " in shown.err and "was measured with declared older" in shown.err
    assert shown.out.splitlines() == [f"{tmp_path / 'p-table-2'}.md"]
    assert {path.suffix for path in tmp_path.glob("p-table-2*")} == {".csv", ".png", ".md"}
    assert shown.err.index("p table-2") < shown.err.index("p table-1")  # nothing of it is stored yet
    (tmp_path / "p-table-1.csv").unlink()
    assert main(["papers", "p", "all", "--count", "1", "--to", str(tmp_path)]) == 0


def test_the_five_papers_are_recorded_by_name() -> None:
    assert len(recorded.every()) == len(papers.that_run()) and all(recorded.stem_of(*pair) for pair in recorded.every())
    cost = [each.generations / each.runs.count for _, each in papers.that_run() if each.runs]
    assert cost == sorted(cost) and {of.name for of, _ in papers.that_run(PAPERS["mulo_sd"])} == {"mulo_sd"}

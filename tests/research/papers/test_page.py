"""The page about measured experiments, and the command that measures all of them."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli import main
from research import papers
from research.papers import PAPERS, page, results
from research.papers.declaration import Arm, Claim, Experiment, Paper, Pictures
from research.papers.running import cores_between, digest

RUNS = Pictures(arms=(Arm("plain", "ar"), Arm("SJD", "sjd")), count=20, settings={"size": 64})
ASKED = Experiment(
    key="table-1", title="Table 1: one", asks="Is it faster?", reports="It is.", runs=RUNS, reported={"SJD": {"step_compression": 2.5}},
    claims=(Claim("SJD commits more", "SJD", "more", "plain", "step_compression"),), differs="All is small.",
)  # fmt: skip
LISTED = papers.declaration.not_run("table-2", "Table 2: another", "Is it good?", "It is.", "there is no data", "table-1")
ONE = Paper(name="p", title="P", method="sjd", tables=(1, 2), figures=(1, 1), experiments=(ASKED, LISTED), illustrations={"figure-1": "x"})


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Paper:
    """Replaces the five papers by one with a single experiment that runs."""
    for module in (papers, page):
        monkeypatch.setattr(module, "PAPERS", {"p": ONE})
    return ONE


def rows_of(count: int, others: float = 0.0) -> list[dict[str, str]]:
    """Stored rows of ASKED."""
    stamp = {"backbone": "toy", "weights": "w", "processor": "c", "threads": "1", "torch": "t", "commit": "k", "declared": digest(RUNS)}
    return [
        {"label": label, "input": str(i), "plain": "plain", "step_compression": f"[{n + i / 1e5}, 1, 2]", "speedup": "[1.5, 1, 2]"}
        | {"others": str(others), "platform": "long " * 9}
        | stamp
        for i in range(count)
        for n, label in enumerate(("plain", "SJD"), 1)
    ]


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Stored rows as `launch.py papers` writes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        written = csv.DictWriter(file, list(rows[0]))
        written.writeheader()
        written.writerows(rows)


def test_a_page_tells_every_experiment_that_was_measured(tmp_path: Path, only: Paper) -> None:
    assert "<h2>" not in page.page_of(tmp_path)
    write_rows(tmp_path / "p-table-1.csv", rows_of(8, others=1.25))
    text = page.write_page(tmp_path).read_text()
    assert "<td>P</td><td>Table 1: one</td><td>8</td><td>1</td><td></td><td></td>" in text and "Table 2" not in text
    assert "<td>2 (2 to 2); paper 2.5</td>" in text and "The paper: It is. All is small." in text
    assert "<li>agrees: SJD commits more (tokens per pass, SJD minus plain: 1 (1 to 1))</li>" in text
    assert '<img src="p-table-1.png" alt="Table 1: one">' in text and "because other programs used 1.2 cores at the same time;" in text
    assert "python launch.py papers p table-1: 8 of 20 inputs" in text


def test_a_page_says_if_the_experiment_was_changed_since(tmp_path: Path, only: Paper) -> None:
    write_rows(tmp_path / "p-table-1.csv", [row | {"declared": "old"} for row in rows_of(4)])
    assert "before the experiment was last changed" in page.page_of(tmp_path)


def test_times_are_called_rough_if_other_programs_used_the_processor() -> None:
    assert results.disturbance(rows_of(4, others=0.1)) == ""
    assert "used 0.9 cores" in results.disturbance(rows_of(4, others=0.9))
    assert "each row decoded an input once" in results.disturbance([row | {"repeats": "0"} for row in rows_of(4)])
    fast = replace(ASKED, claims=(Claim("SJD is faster", "SJD", "more", "plain", "speedup"), *ASKED.claims))
    rows = [row | {"speedup": str(2.0 if row["label"] == "SJD" else 1.0)} for row in rows_of(6)]
    for more, verdict in (({}, "agrees"), ({"repeats": "0"}, "undecided")):  # rough times decide nothing, other numbers do
        assert [a.verdict for a in results.answers_of(fast, [row | more for row in rows])] == [verdict, "agrees"]
    untimed = [{name: cell for name, cell in row.items() if name != "speedup"} for row in rows_of(4, others=0.9)]
    assert results.disturbance(untimed) == ""
    assert cores_between((10.0, 5.0), (20.0, 12.0)) == 0.7 and cores_between((0.0, None), (1.0, 2.0)) is None


def test_all_experiments_run_by_one_command(
    tmp_path: Path, only: Paper, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refused experiment does not stop the others, and the exit code is 1."""
    other = replace(ASKED, key="table-2", runs=replace(RUNS, count=1), claims=())
    both = replace(ONE, experiments=(ASKED, other))
    monkeypatch.setattr(papers, "PAPERS", {"p": both})
    write_rows(tmp_path / "p-table-1.csv", [row | {"declared": "older"} for row in rows_of(1)])
    assert main(["papers", "all", "--count", "2", "--once", "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert "p table-1: " in shown.err and "was measured with declared older" in shown.err
    assert shown.out.splitlines() == [f"{tmp_path / 'p-table-2'}.csv"]
    assert {path.suffix for path in tmp_path.glob("p-table-2*")} == {".csv", ".png"} and (tmp_path / page.NAME).is_file()
    assert shown.err.index("p table-2") < shown.err.index("p table-1")  # nothing of it is stored yet
    (tmp_path / "p-table-1.csv").unlink()
    assert main(["papers", "p", "all", "--count", "1", "--to", str(tmp_path)]) == 0


def test_experiments_that_run_begin_with_the_cheapest() -> None:
    cost = [each.generations / each.runs.count for _, each in papers.runnable() if each.runs]
    assert cost == sorted(cost) and {of.name for of, _ in papers.runnable(PAPERS["mulo_sd"])} == {"mulo_sd"}


@pytest.mark.parametrize("arguments", [["papers", "p", "table-1"], ["bench", "image", "--figure", "plane.png"]])
def test_without_matplotlib_nothing_is_measured(
    arguments: list[str], only: Paper, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(arguments) == 2
    assert "pip install 'foretoken[research]'" in capsys.readouterr().err

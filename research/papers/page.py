"""One page about every experiment that was measured in a folder: question, the paper's answer, ours, tables, claims and the figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.errors import BadOutput
from research.papers import PAPERS
from research.papers.declaration import Experiment, Paper
from research.papers.report import answers_of, measured_on, paragraph, tables_of
from research.papers.running import digest, read

NAME = "papers.md"
VERDICTS = ("agrees", "contradicts", "undecided")
Row = dict[str, Any]


def stem_of(paper: Paper, experiment: Experiment) -> str:
    """The name of an experiment's files without their endings."""
    return f"{paper.name}-{experiment.key}"


def write_page(folder: Path) -> Path:
    """Write the page of a folder that `launch.py papers` measured in; returns its path. Raises BadOutput if it cannot be written."""
    path = folder / NAME
    try:
        path.write_text(page_of(folder), encoding="utf-8")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror}). Choose another folder with --out.") from e
    return path


def page_of(folder: Path) -> str:
    """The page as Markdown: a table of what was measured, then a section per experiment."""
    measured = [
        (paper, each, rows)
        for paper in PAPERS.values()
        for each in paper.experiments
        if each.runs and (rows := read(folder / f"{stem_of(paper, each)}.csv"))
    ]
    sections = [part for paper, each, rows in measured for part in section(paper, each, rows)]
    return "\n\n".join(["# Experiments of the papers, measured here", summary(measured), *sections]) + "\n"


def summary(measured: Sequence[tuple[Paper, Experiment, list[Row]]]) -> str:
    """A table of the measured experiments: inputs, and claims of the paper by verdict."""
    lines = ["| paper | experiment | inputs | " + " | ".join(VERDICTS) + " |", "|---" * (3 + len(VERDICTS)) + "|"]
    for paper, each, rows in measured:
        verdicts = Counter(answer.verdict for answer in answers_of(each, rows))
        cells = (paper.title, each.title, len({row["input"] for row in rows}), *(verdicts[name] or "" for name in VERDICTS))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def section(paper: Paper, experiment: Experiment, rows: list[Row]) -> list[str]:
    """The parts of the page about one experiment that has rows."""
    assert experiment.runs is not None
    done = len({row["input"] for row in rows})
    older = (
        ""
        if rows[0].get("declared", digest(experiment.runs)) == digest(experiment.runs)
        else "The rows were measured before the experiment was last changed. "
    )
    return [
        f"## {paper.title}: {experiment.title}",
        older + paragraph(experiment, rows),
        f"![{experiment.title}]({stem_of(paper, experiment)}.png)",
        *tables_of(experiment, rows),
        measured_on(paper, experiment, rows, done, experiment.runs.count),
    ]

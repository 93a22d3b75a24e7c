"""One HTML page about every experiment that was measured in a folder: question, the paper's answer, ours, tables, claims and the figure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from engine.errors import BadOutput
from research.papers import PAPERS
from research.papers.declaration import Experiment, Paper
from research.papers.report import answers_of, measured_on, paragraph, tables_of
from research.papers.running import digest, read

NAME = "papers.html"
VERDICTS = ("agrees", "contradicts", "undecided")
FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Experiments of the papers</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }}
table {{ display: block; overflow-x: auto; border-collapse: collapse; font-size: 14px }}
th, td {{ border: 1px solid #ccc; padding: .2rem .5rem; text-align: left }}
img {{ max-width: 100% }}
</style></head><body>
{body}
</body></html>
"""
MARKS = ((r"!\[(.*?)\]\((.*?)\)", r'<img src="\2" alt="\1">'), (r"`(.*?)`", r"<code>\1</code>"),
         (r"\*\*(.*?)\*\*", r"<strong>\1</strong>"), (r"\*(.*?)\*", r"<em>\1</em>"))  # fmt: skip
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
    """The page as HTML: a table of what was measured, then a section per experiment."""
    measured = [
        (paper, each, rows)
        for paper in PAPERS.values()
        for each in paper.experiments
        if each.runs and (rows := read(folder / f"{stem_of(paper, each)}.csv"))
    ]
    sections = [part for paper, each, rows in measured for part in section(paper, each, rows)]
    parts = ["# Experiments of the papers, measured here", summary(measured), *sections]
    return FRAME.format(body="\n".join(html_of(block) for part in parts for block in part.split("\n\n")))


def summary(measured: Sequence[tuple[Paper, Experiment, list[Row]]]) -> str:
    """A table of the measured experiments: inputs, and claims of the paper by verdict."""
    lines = ["| paper | experiment | inputs | " + " | ".join(VERDICTS) + " |", "|---" * (3 + len(VERDICTS)) + "|"]
    for paper, each, rows in measured:
        verdicts = Counter(answer.verdict for answer in answers_of(each, rows))
        cells = (paper.title, each.title, len({row["input"] for row in rows}), *(verdicts[name] or "" for name in VERDICTS))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def section(paper: Paper, experiment: Experiment, rows: list[Row]) -> list[str]:
    """The parts about one experiment that has rows, as Markdown, which a terminal shows as it is."""
    assert experiment.runs is not None
    done, declared = len({row["input"] for row in rows}), digest(experiment.runs)
    older = "" if rows[0].get("declared", declared) == declared else "The rows were measured before the experiment was last changed. "
    return [
        f"## {paper.title}: {experiment.title}",
        older + paragraph(experiment, rows),
        f"![{experiment.title}]({stem_of(paper, experiment)}.png)",
        *tables_of(experiment, rows),
        measured_on(paper, experiment, rows, done, experiment.runs.count),
    ]


def html_of(block: str) -> str:
    """One block as HTML: a heading, a table, a list or a paragraph, in the Markdown that a report uses."""
    lines = block.split("\n")
    if heading := re.match("#+ ", block):
        level = len(heading[0]) - 1
        return f"<h{level}>{marked(block[level + 1 :])}</h{level}>"
    if block.startswith("|"):
        return "<table>" + row_html(lines[0], "th") + "".join(row_html(line, "td") for line in lines[2:]) + "</table>"
    if block.startswith("- "):
        return "<ul>" + "".join(f"<li>{marked(line[2:])}</li>" for line in lines) + "</ul>"
    return f"<p>{marked(block)}</p>"


def row_html(line: str, tag: str) -> str:
    """One row of a table."""
    return "<tr>" + "".join(f"<{tag}>{marked(cell.strip())}</{tag}>" for cell in line[1:-1].split("|")) + "</tr>"


def marked(text: str) -> str:
    """A line with images, code and emphasis."""
    text = escape(text)
    for pattern, replacement in MARKS:
        text = re.sub(pattern, replacement, text)
    return text

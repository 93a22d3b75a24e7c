"""One HTML page about all experiments measured in a folder: question, the paper's answer, table, claims and figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from engine.errors import BadOutput
from research.papers import PAPERS
from research.papers.declaration import NAMED, Experiment, Paper
from research.papers.results import Answer, Value, answers_of, disturbance, values_of
from research.papers.running import REPEATS, digest, read

NAME = "papers.html"
VERDICTS = ("agrees", "contradicts", "undecided")
SHOWN = (  # columns of every table whose rows have them: speed, then quality
    "forwards", "step_compression", "seconds", "speedup", "log_probability", "log_probability_deviation", "objects",
    "chamfer_published", "hausdorff_published",
)  # fmt: skip
FRAME = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Experiments of the papers</title><style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }}
table {{ display: block; overflow-x: auto; border-collapse: collapse; font-size: 14px }}
th, td {{ border: 1px solid #ccc; padding: .2rem .5rem; text-align: left }}
img {{ max-width: 100% }}
</style></head><body>
<h1>Experiments of the papers, measured here</h1>
{body}
</body></html>
"""
Row = dict[str, Any]


def stem_of(paper: Paper, experiment: Experiment) -> str:
    """The stem of an experiment's file names."""
    return f"{paper.name}-{experiment.key}"


def write_page(folder: Path) -> Path:
    """Writes the page of a folder of `launch.py papers`; returns its path. Raises BadOutput if it cannot be written."""
    path = folder / NAME
    try:
        path.write_text(page_of(folder), encoding="utf-8")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror}). Choose another folder with --out.") from e
    return path


def page_of(folder: Path) -> str:
    """The page as HTML: a summary table, then a section per experiment."""
    measured = [
        (paper, each, rows)
        for paper in PAPERS.values()
        for each in paper.experiments
        if each.runs and (rows := read(folder / f"{stem_of(paper, each)}.csv"))
    ]
    return FRAME.format(body="\n".join([summary(measured), *(section(*each) for each in measured)]))


def summary(measured: Sequence[tuple[Paper, Experiment, list[Row]]]) -> str:
    """A table of the measured experiments: number of inputs, and the paper's claims counted by verdict."""
    lines = []
    for paper, each, rows in measured:
        verdicts = Counter(answer.verdict for answer in answers_of(each, rows))
        lines.append((paper.title, each.title, inputs_of(rows), *(verdicts[name] or "" for name in VERDICTS)))
    return html_table(("paper", "experiment", "inputs", *VERDICTS), lines)


def section(paper: Paper, experiment: Experiment, rows: list[Row]) -> str:
    """The section about one measured experiment."""
    stem, heads = stem_of(paper, experiment), columns(experiment, values_of(rows))
    table = html_table(("row", *(NAMED[name] for name in heads)), cells(experiment, rows, heads))
    claims = "".join(f"<li>{escape(line)}</li>" for line in claim_lines(experiment, rows))
    words = " ".join(part for part in (experiment.asks, f"The paper: {experiment.reports}", experiment.differs) if part)
    parts = (f"<h2>{escape(f'{paper.title}: {experiment.title}')}</h2>", f"<p>{escape(words)}</p>",
             f'<img src="{stem}.png" alt="{escape(experiment.title)}">', table, f"<ul>{claims}</ul>" if claims else "",
             f"<p>{escape(provenance(paper, experiment, rows))}</p>")  # fmt: skip
    return "\n".join(part for part in parts if part)


def text_of(paper: Paper, experiment: Experiment, rows: list[Row]) -> str:
    """The section as text for a terminal: rows, claims and provenance."""
    heads = columns(experiment, values_of(rows))
    lines = [
        f"{line[0]:32} " + "  ".join(f"{NAMED[n]} {c}" for n, c in zip(heads, line[1:], strict=True))
        for line in cells(experiment, rows, heads)
    ]
    return "\n".join([f"{paper.title}: {experiment.title}", *lines, *claim_lines(experiment, rows), provenance(paper, experiment, rows)])


def inputs_of(rows: Sequence[Row]) -> int:
    """The number of inputs of some rows."""
    return len({row["input"] for row in rows})


def columns(experiment: Experiment, values: dict[str, dict[str, Value]]) -> list[str]:
    """The metrics of the table: the experiment's own, then the ones that every table shows."""
    named = (experiment.drawing.y, experiment.drawing.x, *(name for row in experiment.reported.values() for name in row),
             *(claim.metric for claim in experiment.claims), *SHOWN)  # fmt: skip
    known = {name for row in values.values() for name in row}
    return [name for name in dict.fromkeys(named) if name in known]


def cells(experiment: Experiment, rows: Sequence[Row], heads: Sequence[str]) -> list[list[str]]:
    """The lines of the table: mean and interval, and the paper's number after a semicolon."""
    values = values_of(rows)
    return [
        [label, *(cell(row.get(name), experiment.reported.get(label, {}).get(name)) for name in heads)] for label, row in values.items()
    ]


def cell(value: Value | None, paper: float | None) -> str:
    """The text of a cell: our value, and the paper's after a semicolon."""
    ours = "-" if value is None else interval_text(value)
    return ours if paper is None else f"{ours}; paper {paper:g}"


def interval_text(value: Value) -> str:
    """A mean with its interval."""
    return f"{value.mean:.3g}" + ("" if value.low != value.low else f" ({value.low:.3g} to {value.high:.3g})")


def claim_lines(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """One line per claim, and one about omitted rows."""
    assert experiment.runs is not None
    measured = {row["label"] for row in rows}
    missing = [label for label in experiment.runs.labels if label not in measured]
    same = rows[0].get("declared", digest(experiment.runs)) == digest(experiment.runs)
    left_out = [f"left out, because the model lacks what they need: {'; '.join(missing)}"] if missing and same else []
    return [line_of(each) for each in answers_of(experiment, rows)] + left_out


def line_of(answer: Answer) -> str:
    """The line of text about a claim."""
    claim = answer.claim
    if answer.difference is None:
        return f"not measured: {claim.text}"
    margin = f", margin {claim.margin:g}" if claim.margin else ""
    between = f"{claim.left} minus {claim.right}"
    return f"{answer.verdict}: {claim.text} ({NAMED[claim.metric]}, {between}: {interval_text(answer.difference)}{margin})"


def provenance(paper: Paper, experiment: Experiment, rows: Sequence[Row]) -> str:
    """The command, the inputs and the machine, and a warning if the times are rough."""
    assert experiment.runs is not None
    first, done, count = rows[0], inputs_of(rows), experiment.runs.count
    once = " --once" if any(row.get(REPEATS) == "0" for row in rows) else ""
    declared = digest(experiment.runs)
    parts = [
        f"python launch.py papers {paper.name} {experiment.key}{once}: {done} of {count} inputs, {first['backbone']}, weights "
        f"{first['weights']}, float32, {first['processor']}, PyTorch {first['torch']}, commit {first['commit']}.",
        f"The paper measured {experiment.reported_on}." if experiment.reported_on else "",
        "The rows were measured before the experiment was last changed." if first.get("declared", declared) != declared else "",
        f"Times are rough, because {why}; they decide no claim." if (why := disturbance(rows)) else "",
    ]
    return " ".join(part for part in parts if part)


def html_table(heads: Iterable[object], lines: Iterable[Iterable[object]]) -> str:
    """A table as HTML."""

    def line(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(str(each))}</{tag}>" for each in cells) + "</tr>"

    return "<table>" + line(heads, "th") + "".join(line(each, "td") for each in lines) + "</table>"

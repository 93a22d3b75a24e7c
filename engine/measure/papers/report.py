"""Tells an experiment: a table of our numbers beside the paper's, and of each claim whether it holds here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.measure.papers.declaration import NAMED, Experiment, Paper
from engine.measure.papers.results import Answer, Value, answer, table_of, values_of

SHOWN = (  # in every table that has them: speed, then quality
    "forwards", "step_compression", "seconds", "speedup", "log_probability", "log_probability_deviation", "objects", "frechet",
    "chamfer_published", "hausdorff_published",
)  # fmt: skip


def told(paper: Paper, asked: Experiment, rows: Sequence[dict[str, Any]], count: int) -> str:
    """Returns the Markdown page of an experiment."""
    table = table_of(rows)
    values, done = values_of(rows), len({row["input"] for row in rows})
    answers = [answer(claim, table) for claim in asked.claims]
    return "\n\n".join([
        f"# {paper.title}: {asked.title}",
        f"{asked.asks} {asked.reports}",
        measured_on(paper, asked, rows, done, count),
        f"![{asked.title}]({paper.name}-{asked.key}.png)",
        grid(asked, values),
        *by_family(asked, rows),
        *(["\n".join(f"- {said(a)}" for a in answers)] if answers else []),
        *([asked.differs] if asked.differs else []),
    ]) + "\n"  # fmt: skip


def measured_on(paper: Paper, asked: Experiment, rows: Sequence[dict[str, Any]], done: int, count: int) -> str:
    """Returns the command, the inputs and the machine."""
    first = rows[0]
    part = "" if done >= count else f" Of {count} inputs, {done} are measured; run it again to go on."
    few = f" The experiment is declared with {asked.runs.count} inputs." if asked.runs and asked.runs.count != count else ""
    paper_on = f" The paper's numbers are of {asked.reported_on}." if asked.reported_on else ""
    return (
        f"`python launch.py papers {paper.name} {asked.key}`: {done} inputs, {first['backbone']}, weights {first['weights']}, "
        f"float32, {first['processor']}, PyTorch {first['torch']}, commit {first['commit']}.{part}{few}{paper_on}"
    )


def columns(asked: Experiment, values: dict[str, dict[str, Value]]) -> list[str]:
    """Returns the metrics of the table: those that the experiment names, and those that every table shows."""
    named = [
        asked.drawing.y,
        asked.drawing.x,
        *(name for row in asked.reported.values() for name in row),
        *(c.metric for c in asked.claims),
    ]
    found = {name for row in values.values() for name in row}
    return [name for name in dict.fromkeys((*named, *SHOWN)) if name in found]


def grid(asked: Experiment, values: dict[str, dict[str, Value]]) -> str:
    """Returns the table: mean and interval, and the paper's number after a bar."""
    names = columns(asked, values)
    lines = ["| row | " + " | ".join(NAMED[name] for name in names) + " |", "|---" * (len(names) + 1) + "|"]
    for label, row in values.items():
        cells = [cell(row.get(name), asked.reported.get(label, {}).get(name)) for name in names]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_family(asked: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a table of the drawn metric by family of the inputs, [] if they have none, or only one."""
    families = sorted({row["family"] for row in rows if row.get("family")})
    if len(families) < 2:
        return []
    metric = asked.drawing.y
    each = {family: values_of([row for row in rows if row["family"] == family]) for family in families}
    labels = list(dict.fromkeys(row["label"] for row in rows))
    lines = [f"By family, {NAMED[metric]}:", "", "| row | " + " | ".join(families) + " |", "|---" * (len(families) + 1) + "|"]
    for label in labels:
        lines.append(f"| {label} | " + " | ".join(cell(each[family].get(label, {}).get(metric), None) for family in families) + " |")
    return ["\n".join(lines)]


def cell(value: Value | None, paper: float | None) -> str:
    """Returns one cell."""
    ours = "-" if value is None else short(value)
    return ours if paper is None else f"{ours}; paper {paper:g}"


def short(value: Value) -> str:
    """Returns a mean with its interval."""
    return f"{value.mean:.3g}" + ("" if value.low != value.low else f" ({value.low:.3g} to {value.high:.3g})")


def said(found: Answer) -> str:
    """Returns a line about a claim."""
    claim = found.claim
    if found.difference is None:
        return f"not measured: {claim.text}"
    margin = f", margin {claim.margin:g}" if claim.margin else ""
    between = f"{claim.left} minus {claim.right}"
    return f"**{found.verdict}**: {claim.text} ({NAMED[claim.metric]}, {between}: {short(found.difference)}{margin})"

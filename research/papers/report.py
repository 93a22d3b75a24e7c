"""Tells an experiment: a table of our numbers beside the paper's, and of each claim whether it holds here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from research.papers.declaration import DECIDES, NAMED, Conclusion, Experiment, Paper
from research.papers.results import Answer, Value, answer, table_of, values_of
from research.papers.running import OTHERS, REPEATS, digest
from research.worlds.families import group_of

SHOWN = (  # in every table that has them: speed, then quality
    "forwards", "step_compression", "seconds", "speedup", "log_probability", "log_probability_deviation", "objects", "frechet",
    "chamfer_published", "hausdorff_published",
)  # fmt: skip


TIMES = ("seconds", "speedup", "milliseconds_per_step")  # metrics that other programs disturb
BUSY = 0.25  # cores that other programs may use before it is said
SAID = {
    "agrees": "The paper's claims that hold here",
    "contradicts": "Those that do not",
    "undecided": "Undecided",
    "not measured": "Not measured",
}
MOST_SAID = 4  # rows whose numbers a paragraph compares with the paper's


def tables_of(asked: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the tables of an experiment and its claims, as parts of a page."""
    claims = "\n".join(f"- {said(found)}" for found in answers_of(asked, rows))
    return [grid(asked, values_of(rows)), *by_group(asked, rows), *([claims] if claims else [])]


def paragraph(asked: Experiment, rows: Sequence[dict[str, Any]]) -> str:
    """Returns a paragraph: the question, the paper's answer, our numbers beside the paper's, and which of its claims hold here."""
    values, done = values_of(rows), len({row["input"] for row in rows})
    parts = [asked.asks, f"The paper: {asked.reports}", beside(asked, values)]
    verdicts: dict[str, list[str]] = {}
    for found in answers_of(asked, rows):
        verdicts.setdefault(found.verdict, []).append(f"*{found.claim.text}*{decided_by(asked, found, done)}")
    parts += [f"{words}: {'; '.join(verdicts[verdict])}." for verdict, words in SAID.items() if verdict in verdicts]
    parts.append(left_out(asked, rows))
    parts += [concluded(each, answers_of(asked, rows)) for each in asked.concludes]
    return " ".join(part for part in (*parts, asked.differs) if part)


def left_out(asked: Experiment, rows: Sequence[dict[str, Any]]) -> str:
    """Returns a sentence with the rows that were not measured, because the model lacks something that they need; "" if there are none, and
    for rows that were measured before the declaration had them."""
    assert asked.runs is not None
    if rows[0].get("declared", digest(asked.runs)) != digest(asked.runs):
        return ""
    found = {row["label"] for row in rows}
    missing = [label for label in asked.runs.labels if label not in found]
    return f"Left out, because the model lacks what they need: {'; '.join(missing)}." if missing else ""


def concluded(asked: Conclusion, answers: Sequence[Answer]) -> str:
    """Returns a sentence that answers a question by its claims, with the difference of each and its interval."""
    own = [each for each in answers if each.claim.text in asked.claims]
    verdicts = {each.verdict for each in own}
    word = "yes" if verdicts == {"agrees"} else "no" if "contradicts" in verdicts else "open"
    told = [f"{NAMED[a.claim.metric]} {short(a.difference)} ({a.verdict})" for a in own if a.difference is not None]
    return f"**{asked.text}: {word}.** " + (f"The differences: {'; '.join(told)}." if told else "Nothing of it was measured.")


def decided_by(asked: Experiment, found: Answer, done: int) -> str:
    """Returns what decides an undecided claim, in brackets; "" for another one. done : inputs, of which some may not ask for its metric"""
    if found.verdict != "undecided" or found.difference is None or asked.runs is None:
        return ""
    if found.rough:
        return " (its times must be measured without `--once` on a quiet machine)"
    share = done / found.difference.inputs
    if found.difference.inputs < DECIDES:
        return f" ({math.ceil(found.claim.least * share)} inputs or more can decide it; declared are {asked.runs.count})"
    if found.needs is None:
        return " (the rows are on the border)"
    return f" (about {math.ceil(found.needs * share)} inputs decide it, if the difference stays)"


def answers_of(asked: Experiment, rows: Sequence[dict[str, Any]]) -> list[Answer]:
    """Returns what became of the claims of an experiment. Times that are rough decide none."""
    table, rough = table_of(rows), bool(disturbed(rows))
    found = [answer(claim, table) for claim in asked.claims]
    return [replace(a, verdict="undecided", rough=True) if rough and a.difference and a.claim.metric in TIMES else a for a in found]


def beside(asked: Experiment, values: dict[str, dict[str, Value]]) -> str:
    """Returns a sentence with our numbers beside the paper's, of the metric that most reported rows have."""
    metrics = [name for row in asked.reported.values() for name in row]
    if not metrics:
        return ""
    metric = max(dict.fromkeys(metrics), key=lambda name: (metrics.count(name), name == asked.drawing.y))
    both = [
        (label, values[label][metric], row[metric])
        for label, row in asked.reported.items()
        if metric in row and metric in values.get(label, {})
    ]
    told = [f"{label} {short(ours)}, in the paper {paper:g}" for label, ours, paper in both[:MOST_SAID]]
    return f"Here, {NAMED[metric]}: {'; '.join(told)}." if told else ""


def measured_on(paper: Paper, asked: Experiment, rows: Sequence[dict[str, Any]], done: int, count: int) -> str:
    """Returns the command, the inputs and the machine, and whether other programs disturbed the times."""
    first, inputs = rows[0], f"{done} input{'s' * (done > 1)}"
    part = "" if done >= count else f" Of {count} inputs, {done} are measured; run it again to go on."
    few = f" The experiment is declared with {asked.runs.count} inputs." if asked.runs and asked.runs.count != count else ""
    option = (f" --count {count}" if few else "") + (" --once" if once(rows) else "")
    paper_on = f" The paper's numbers are of {asked.reported_on}." if asked.reported_on else ""
    return (
        f"`python launch.py papers {paper.name} {asked.key}{option}`: {inputs}, {first['backbone']}, weights {first['weights']}, "
        f"float32, {first['processor']}, PyTorch {first['torch']}, commit {first['commit']}.{part}{few}{paper_on}{disturbed(rows)}"
    )


def disturbed(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a sentence if other programs used the processor while times were taken, or if they were taken once, else ""."""
    if not any(row.get(name) for row in rows for name in TIMES):
        return ""
    others = [float(row[OTHERS]) for row in rows if row.get(OTHERS)]
    mean = sum(others) / max(1, len(others))
    why = [f"other programs used {mean:.1f} cores meanwhile"] if mean > BUSY else []
    why += ["each row decoded an input once"] if once(rows) else []
    return (
        f" Times and speed-ups are rough, because {' and '.join(why)}; they decide no claim, and nothing else depends on them."
        if why
        else ""
    )


def once(rows: Sequence[dict[str, Any]]) -> bool:
    """Returns whether rows were measured with --once."""
    return any(row.get(REPEATS) == "0" for row in rows)


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


def by_group(asked: Experiment, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Returns a table of the drawn metric by group of the inputs' families, [] if they have none, or only one."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row.get("family"):
            groups.setdefault(group_of(row["family"]), []).append(row)
    if len(groups) < 2:
        return []
    metric = asked.drawing.y
    each = {name: values_of(of) for name, of in sorted(groups.items())}
    labels = list(dict.fromkeys(row["label"] for row in rows))
    lines = [f"By group of families, {NAMED[metric]}:", "", "| row | " + " | ".join(each) + " |", "|---" * (len(each) + 1) + "|"]
    for label in labels:
        lines.append(f"| {label} | " + " | ".join(cell(of.get(label, {}).get(metric), None) for of in each.values()) + " |")
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

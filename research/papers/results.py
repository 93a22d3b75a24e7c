"""Sums up the stored rows of an experiment: the mean of every row with its interval, and the verdicts about the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from research.papers.declaration import DECIDES, NAMED, YES_OR_NO, Claim, Experiment
from research.papers.running import OTHERS, REPEATS, number

DRAWS = 4000
TIMES = ("seconds", "speedup", "milliseconds_per_step")  # metrics that other programs on the machine disturb
BUSY = 0.25  # cores that other programs may use before times are called rough
FEWEST = 3  # inputs; with fewer, an interval is meaningless


@dataclass(frozen=True)
class Value:
    """A mean over inputs and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    inputs: int


@dataclass(frozen=True)
class Answer:
    """The verdict about a claim: agrees, contradicts, undecided or not measured. difference : left minus right"""

    claim: Claim
    verdict: str
    difference: Value | None


Table = dict[str, dict[str, dict[int, float]]]  # by row, metric and input


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns the numbers of the stored rows."""
    table: Table = {}
    for row in rows:
        mine = table.setdefault(row["label"], {})
        for name in NAMED:
            if (value := number(row.get(name) or "")) is not None:
                mine.setdefault(name, {})[int(row["input"])] = value
    return table


def value_of(numbers: Sequence[float]) -> Value:
    """Returns the mean and its interval; the bounds are NaN with fewer than `FEWEST` inputs."""
    values = np.array(numbers, float)
    if len(values) < FEWEST:
        return Value(float(values.mean()), float("nan"), float("nan"), len(values))
    means = np.random.default_rng(0).choice(values, (DRAWS, len(values))).mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Value(float(values.mean()), float(low), float(high), len(values))


def values_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Value]]:
    """Returns the mean of every row and metric."""
    return {label: {name: value_of([*by.values()]) for name, by in metrics.items()} for label, metrics in table_of(rows).items()}


def answer(claim: Claim, table: Table) -> Answer:
    """Returns the verdict about a claim: decided if the interval, paired by input, lies on one side of zero or of the margin."""
    left, right = (table.get(name, {}).get(claim.metric, {}) for name in (claim.left, claim.right))
    shared = sorted({*left} & {*right})
    if not shared:
        return Answer(claim, "not measured", None)
    difference = value_of([left[i] - right[i] for i in shared])
    if claim.metric in YES_OR_NO and difference.low == difference.high:
        difference = widen(difference)
    return Answer(claim, verdict_of(claim, difference), difference)


def answers_of(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> list[Answer]:
    """Returns the verdicts about an experiment's claims. Rough times decide none."""
    table, is_rough = table_of(rows), bool(disturbance(rows))
    answers = [answer(claim, table) for claim in experiment.claims]
    return [replace(a, verdict="undecided") if is_rough and a.difference and a.claim.metric in TIMES else a for a in answers]


def disturbance(rows: Sequence[dict[str, Any]]) -> str:
    """Returns why the times of the rows are rough, "" if they are not or if there are none."""
    if not any(row.get(name) for row in rows for name in TIMES):
        return ""
    others = [float(row[OTHERS]) for row in rows if row.get(OTHERS)]
    mean = sum(others) / max(1, len(others))
    why = [f"other programs used {mean:.1f} cores at the same time"] if mean > BUSY else []
    return " and ".join(why + (["each row decoded an input once"] if any(row.get(REPEATS) == "0" for row in rows) else []))


def widen(value: Value) -> Value:
    """Returns a mean of equal answers with its 95 % interval by the rule of three: an event unseen in n inputs has a rate up to 3 / n."""
    return replace(value, low=value.mean - 3 / value.inputs, high=value.mean + 3 / value.inputs)


def verdict_of(claim: Claim, difference: Value) -> str:
    """Returns the verdict that an interval implies."""
    low, high = difference.low, difference.high
    if difference.inputs < DECIDES:
        return "undecided"
    if claim.relation == "alike":
        inside, outside = -claim.margin <= low and high <= claim.margin, low > claim.margin or high < -claim.margin
        return "agrees" if inside else "contradicts" if outside else "undecided"
    if claim.relation == "less":
        low, high = -high, -low
    return "agrees" if low > 0 else "contradicts" if high < 0 else "undecided"

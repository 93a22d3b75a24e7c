"""Sums up the stored rows of an experiment: the mean of every row with its interval, and whether the paper's claims hold here."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from research.papers import frechet
from research.papers.declaration import DECIDES, NAMED, YES_OR_NO, Claim
from research.papers.running import number

DRAWS = 4000
FEWEST = 3  # inputs; with fewer an interval says nothing


@dataclass(frozen=True)
class Value:
    """A mean over inputs and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    inputs: int


@dataclass(frozen=True)
class Answer:
    """What became of a claim. verdict : agrees, contradicts, undecided or not measured; difference : left minus right

    needs : of an undecided claim, about how many inputs decide it if the difference stays; None: that cannot be said yet
    rough : undecided because it is about times that other programs disturbed, or that were taken once
    """

    claim: Claim
    verdict: str
    difference: Value | None
    needs: int | None = None
    rough: bool = False


Table = dict[str, dict[str, dict[int, float]]]  # by row, metric and input


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Returns the numbers of the stored rows."""
    found: Table = {}
    for row in rows:
        mine = found.setdefault(row["label"], {})
        for name in NAMED:
            if (value := number(row.get(name) or "")) is not None:
                mine.setdefault(name, {})[int(row["input"])] = value
    return found


def value_of(numbers: Sequence[float]) -> Value:
    """Returns the mean and its interval; NaN bounds with fewer inputs than an interval needs."""
    values = np.array(numbers, float)
    if len(values) < FEWEST:
        return Value(float(values.mean()), float("nan"), float("nan"), len(values))
    drawn = np.random.default_rng(0).choice(values, (DRAWS, len(values))).mean(1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Value(float(values.mean()), float(low), float(high), len(values))


def values_of(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Value]]:
    """Returns the mean of every row and metric, and the distance of every row's pictures from those of its plain decoding."""
    table = table_of(rows)
    found = {label: {name: value_of([*by.values()]) for name, by in metrics.items()} for label, metrics in table.items()}
    for label, value in distances(rows).items():
        found[label]["frechet"] = value
    return found


def distances(rows: Sequence[dict[str, Any]]) -> dict[str, Value]:
    """Returns the distance of each row's pictures from plain decoding's with the same settings, of rows with enough pictures."""
    features: dict[str, dict[int, list[float]]] = {}
    plain: dict[str, str] = {}
    for row in rows:
        if row.get("features"):
            features.setdefault(row["label"], {})[int(row["input"])] = json.loads(row["features"])
            plain[row["label"]] = row["plain"]
    found = {}
    for label, own in features.items():
        both = sorted({*own} & {*features.get(plain[label], {})})
        if label != plain[label] and len(both) >= frechet.FEWEST:
            sets = (np.array([of[i] for i in both]) for of in (own, features[plain[label]]))
            found[label] = Value(*frechet.distance(*sets), len(both))
    return found


def answer(claim: Claim, table: Table) -> Answer:
    """Returns whether a claim holds: its interval, paired by input, must lie on one side of zero, or inside or outside the margin."""
    left, right = (table.get(name, {}).get(claim.metric, {}) for name in (claim.left, claim.right))
    both = sorted({*left} & {*right})
    if not both:
        return Answer(claim, "not measured", None)
    difference = value_of([left[i] - right[i] for i in both])
    if claim.metric in YES_OR_NO and difference.low == difference.high:
        difference = widened(difference)
    verdict = judged(claim, difference)
    return Answer(claim, verdict, difference, needed(claim, difference) if verdict == "undecided" else None)


def needed(claim: Claim, difference: Value) -> int | None:
    """Returns about how many inputs decide a claim: an interval shrinks with the root of their number, and one of equal answers with their
    number. None with too few inputs, or for a difference on the border itself, which no number of inputs decides."""
    border = abs(abs(difference.mean) - claim.margin)
    if difference.inputs < DECIDES or border < 1e-9:
        return None
    shrinks = ((difference.high - difference.low) / 2 / border) ** (1 if equal_answers(claim, difference) else 2)
    return max(difference.inputs + 1, math.ceil(difference.inputs * shrinks - 1e-9))


def equal_answers(claim: Claim, difference: Value) -> bool:
    """Returns whether the interval is that of equal answers; see `widened`."""
    return claim.metric in YES_OR_NO and math.isclose(difference.high - difference.mean, 3 / difference.inputs)


def widened(value: Value) -> Value:
    """Returns a mean of equal answers with the interval that they allow: what was not seen in n inputs happens in up to 3 of n, at 95 %."""
    return replace(value, low=value.mean - 3 / value.inputs, high=value.mean + 3 / value.inputs)


def judged(claim: Claim, difference: Value) -> str:
    """Returns the verdict of an interval."""
    low, high = difference.low, difference.high
    if difference.inputs < DECIDES:
        return "undecided"
    if claim.relation == "alike":
        inside, outside = -claim.margin <= low and high <= claim.margin, low > claim.margin or high < -claim.margin
        return "agrees" if inside else "contradicts" if outside else "undecided"
    if claim.relation == "less":
        low, high = -high, -low
    return "agrees" if low > 0 else "contradicts" if high < 0 else "undecided"

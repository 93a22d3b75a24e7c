"""The statistic of claims by distribution, and its power: what so many runs would find."""

from __future__ import annotations

from collections import Counter
from math import pi, sqrt

Law = dict[tuple[int, ...], float]

LEAST = 10  # expected runs of a cell; the others are pooled
SURE = 2.326  # standard deviations: 99 % of a normal distribution lie above its mean less so many
STEP = 200  # numbers of runs are multiples of it


def statistic(counts: Counter[tuple[int, ...]], law: Law, runs: int) -> dict[str, float]:
    """Pooled chi-square as z, total variation distance and its expected value under the law."""
    large = {s: p * runs for s, p in law.items() if p * runs >= LEAST}
    rest = runs - sum(large.values())
    chi = sum((counts[s] - e) ** 2 / e for s, e in large.items())
    seen_rest = runs - sum(counts[s] for s in large)
    cells = len(large)
    if rest >= LEAST:
        chi += (seen_rest - rest) ** 2 / rest
        cells += 1
    elif seen_rest > 10 * max(rest, 1):  # impossible sequences
        chi += (seen_rest - rest) ** 2 / max(rest, 1)
        cells += 1
    z = (chi - (cells - 1)) / (2 * (cells - 1)) ** 0.5
    outside = sum(c for s, c in counts.items() if s not in law)
    tv = 0.5 * (sum(abs(counts[s] / runs - p) for s, p in law.items()) + outside / runs)
    floor = 0.5 * sum((2 * p * (1 - p) / (pi * runs)) ** 0.5 for p in law.values())
    return {"z": round(z, 2), "tv": round(tv, 4), "floor": round(floor, 4)}


def detectable(law: Law, runs: int, threshold: float) -> float:
    """The smallest total variation distance, over the cells of the statistic, at which z passes the threshold in 99 % of all measurements,
    however the distributions differ.

    A distance t over cells of probability p moves the chi-square by `runs` times the sum of (difference)² / p, which is at least 4 t²
    (Cauchy and Schwarz). With k degrees of freedom and moved by m it has mean k + m and variance 2k + 4m, about a normal one; so
    m - SURE sqrt(2k + 4m) = threshold sqrt(2k) is solved for m.
    """
    large = [p for p in law.values() if p * runs >= LEAST]
    freedom = len(large) - 1 + (runs * (1 - sum(large)) >= LEAST)
    above = threshold * sqrt(2 * freedom)
    half = above + 2 * SURE**2
    moved = half + sqrt(half**2 - above**2 + 2 * SURE**2 * freedom)
    return 0.5 * sqrt(moved / runs)


def runs_for(law: Law, distance: float, threshold: float) -> int:
    """The runs from which on a total variation distance is detectable."""
    runs = STEP
    while detectable(law, runs, threshold) > distance:
        runs += STEP
    return runs


def share_found(runs: int) -> float:
    """The smallest share of runs that differ of which one is seen with 99 %."""
    return 1 - 0.01 ** (1 / runs)

"""The statistic of claims by distribution, and its power: the differences that a number of runs can detect."""

from __future__ import annotations

from collections import Counter
from math import pi, sqrt

Distribution = dict[tuple[int, ...], float]

CELL_RUNS = 10  # expected runs of a cell; smaller cells are pooled
SURE = 2.326  # standard deviations: 99 % of a normal distribution lies above the mean minus this
STEP = 200  # the number of runs is a multiple of it


def statistic(counts: Counter[tuple[int, ...]], distribution: Distribution, runs: int) -> dict[str, float]:
    """Returns the pooled chi-square with its degrees of freedom, and as z; and the total variation distance with its expected value under
    the distribution (floor)."""
    large = {s: p * runs for s, p in distribution.items() if p * runs >= CELL_RUNS}
    rest = runs - sum(large.values())
    chi = sum((counts[s] - e) ** 2 / e for s, e in large.items())
    outside = sum(c for s, c in counts.items() if s not in distribution)
    chi += outside**2  # a cell that expects one at most
    seen_rest = runs - sum(counts[s] for s in large) - outside
    cells = len(large)
    if rest >= CELL_RUNS:
        chi += (seen_rest - rest) ** 2 / rest
        cells += 1
    elif seen_rest > 10 * max(rest, 1):  # nearly impossible sequences
        chi += (seen_rest - rest) ** 2 / max(rest, 1)
        cells += 1
    z = (chi - (cells - 1)) / (2 * (cells - 1)) ** 0.5 if cells > 1 else 0.0
    tv = 0.5 * (sum(abs(counts[s] / runs - p) for s, p in distribution.items()) + outside / runs)
    floor = 0.5 * sum((2 * p * max(0.0, 1 - p) / (pi * runs)) ** 0.5 for p in distribution.values())
    return {"z": round(z, 2), "tv": round(tv, 4), "floor": round(floor, 4), "chi_square": round(chi, 1), "freedom": max(0, cells - 1)}


def detectable(distribution: Distribution, runs: int, threshold: float) -> float:
    """Returns the smallest total variation distance, over the cells of the statistic, at which z exceeds the threshold in 99 % of all
    measurements, however the distributions differ.

    A distance t over cells of probability p shifts the chi-square by m = `runs` times the sum of (difference)² / p, and the sum is at least
    4 t² (Cauchy-Schwarz). With k degrees of freedom the shifted chi-square has mean k + m and variance 2k + 4m and is nearly normal; so
    m - SURE sqrt(2k + 4m) = threshold sqrt(2k) is solved for m.
    """
    large = [p for p in distribution.values() if p * runs >= CELL_RUNS]
    freedom = max(0, len(large) - 1 + (runs * (1 - sum(large)) >= CELL_RUNS))
    above = threshold * sqrt(2 * freedom)
    half = above + 2 * SURE**2
    moved = half + sqrt(half**2 - above**2 + 2 * SURE**2 * freedom)
    return min(1.0, 0.5 * sqrt(moved / runs))


def runs_for(distribution: Distribution, distance: float, threshold: float) -> int:
    """Returns the smallest number of runs at which a total variation distance is detectable."""
    runs = STEP
    while detectable(distribution, runs, threshold) > distance:
        runs += STEP
    return runs


def detectable_share(runs: int) -> float:
    """Returns the smallest share of differing runs at which at least one is seen with probability 99 %."""
    return 1 - 0.01 ** (1 / runs)

"""The deviation that a number of runs should detect equals the one that it detects."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from research.exactness.power import Distribution, detectable, detectable_share, runs_for, statistic

THRESHOLD = 4.0


def random_distribution(cells: int) -> Distribution:
    """A random distribution with large and small cells."""
    drawn = np.random.default_rng(1).dirichlet(np.full(cells, 2.0))
    return {(i,): float(p) for i, p in enumerate(drawn)}


def distort(distribution: Distribution, distance: float) -> np.ndarray:
    """The distribution at a distance that moves the chi-square least: every cell by the same share of its probability."""
    p = np.array(list(distribution.values()))
    up = p.cumsum() < 0.5
    return np.where(up, p * (1 + distance / p[up].sum()), p * (1 - distance / p[~up].sum()))


def detected_share(distribution: Distribution, distance: float, runs: int, times: int = 400) -> float:
    """The share of measurements of such a distribution in which z passes the threshold."""
    rng = np.random.default_rng(2)
    counts = [Counter({(i,): int(n) for i, n in enumerate(row)}) for row in rng.multinomial(runs, distort(distribution, distance), times)]
    return float(np.mean([statistic(each, distribution, runs)["z"] > THRESHOLD for each in counts]))


@pytest.mark.parametrize(("cells", "runs"), [(8, 1000), (60, 4000), (300, 8000)])
def test_what_is_detectable_is_found_with_99_percent(cells: int, runs: int) -> None:
    distribution = random_distribution(cells)
    distance = detectable(distribution, runs, THRESHOLD)
    assert detected_share(distribution, distance, runs) >= 0.97 and detected_share(distribution, distance / 2, runs) < 0.5
    assert detected_share(distribution, 0.0, runs) < 0.02


def test_as_many_runs_as_a_distance_needs() -> None:
    distribution = random_distribution(60)
    runs = runs_for(distribution, 0.05, THRESHOLD)
    assert detectable(distribution, runs, THRESHOLD) <= 0.05 < detectable(distribution, runs - 200, THRESHOLD)
    assert runs_for(distribution, 0.1, THRESHOLD) < runs


def test_the_share_of_runs_of_which_one_is_seen() -> None:
    assert 1 - (1 - detectable_share(400)) ** 400 == pytest.approx(0.99)

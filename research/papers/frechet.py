"""The distance between two sets of pictures: Fréchet's, between the judge's features, with the bias of small sets taken out.

Both sets are drawn for the same prompts. The features are means over the judge's last layer. They are projected to the main directions in
which the reference varies and scaled so that its variance is 1 in total; a distance of 1 is the reference's own spread. A Fréchet distance
of small sets is too large even between equal distributions. The bootstrap says by how much; that is subtracted, so a value can be below 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DIRECTIONS = 8
FEWEST = 2 * DIRECTIONS  # pictures; a covariance of fewer says nothing
DRAWS = 400


@dataclass(frozen=True)
class Axes:
    """The main directions of a reference [N, D]: its mean [D], directions [DIRECTIONS, D], and the scale that makes its variance 1."""

    middle: np.ndarray
    directions: np.ndarray
    scale: float

    @classmethod
    def of(cls, reference: np.ndarray) -> Axes:
        """Returns the axes of a reference [N, D]."""
        middle = reference.mean(0)
        _, spread, directions = np.linalg.svd(reference - middle, full_matrices=False)
        return cls(middle, directions[:DIRECTIONS], float(np.sqrt((spread[:DIRECTIONS] ** 2).sum() / (len(reference) - 1)) or 1.0))

    def place(self, features: np.ndarray) -> np.ndarray:
        """Returns the coordinates [..., DIRECTIONS] of features [..., D]."""
        return (features - self.middle) @ self.directions.T / self.scale


def frechet(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the squared Fréchet distance between normal distributions with the means and covariances of features [N, D] and [M, D]."""
    first, second = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    values, vectors = np.linalg.eigh(first)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    mixed = np.sqrt(np.linalg.eigvalsh(root @ second @ root).clip(0)).sum()
    return float(((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(first) + np.trace(second) - 2 * mixed)


def distance(features: np.ndarray, reference: np.ndarray) -> tuple[float, float, float]:
    """Returns the distance of two sets [N, D], paired by prompt, and its 95 % interval; NaN with fewer than FEWEST pictures."""
    if len(features) < FEWEST:
        return float("nan"), float("nan"), float("nan")
    axes = Axes.of(reference)
    ours, theirs = axes.place(features), axes.place(reference)
    found = frechet(ours, theirs)
    r = np.random.default_rng(0)
    drawn = np.array([frechet(ours[i], theirs[i]) for i in r.integers(0, len(ours), (DRAWS, len(ours)))])
    low, high = np.quantile(drawn, (0.025, 0.975))
    return 2 * found - float(drawn.mean()), 2 * found - float(high), 2 * found - float(low)

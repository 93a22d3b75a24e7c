"""Nearest neighbours among points."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree


class Nearest:
    """A k-d tree of points [N, 3].

    The points are moved so that no coordinate is near 0. Where denormal numbers are flushed, as in every thread that generates
    (`torch.set_flush_denormal`), the number next to 0 is 0 itself, and scipy's tree would split points on such a plane forever.
    """

    def __init__(self, points: np.ndarray):
        low = points.min(0)
        self.shift = (float(np.ptp(points, 0).max()) or 1.0) - np.asarray(low, np.float64)
        self.tree = cKDTree(points + self.shift)

    def query(self, points: np.ndarray, k: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Distances and indices [N], or [N, k], of the k nearest points, the nearest first."""
        return self.tree.query(points + self.shift, k)

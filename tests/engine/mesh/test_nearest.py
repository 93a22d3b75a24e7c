"""Neighbours are found even if denormal numbers are flushed to zero, as in every generating thread."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.mesh.nearest import Nearest


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_points_on_a_plane_through_zero(flushed: bool, scale: float) -> None:
    r = np.random.default_rng(0)
    points = r.random((2000, 3)) * scale
    points[:, 1] = 0
    points[:600, 0] = 0
    queries = r.random((50, 3)) * scale
    expected = np.linalg.norm(queries[:, None] - points, axis=2)
    torch.set_flush_denormal(flushed)
    try:
        distance, index = Nearest(points).query(queries)
    finally:
        torch.set_flush_denormal(False)
    assert (index == expected.argmin(1)).all()
    np.testing.assert_allclose(distance, expected.min(1), rtol=1e-6)


def test_all_points_may_be_one() -> None:
    distance, index = Nearest(np.ones((5, 3))).query(np.zeros((1, 3)), 2)
    assert index.shape == (1, 2)
    np.testing.assert_allclose(distance, np.sqrt(3))

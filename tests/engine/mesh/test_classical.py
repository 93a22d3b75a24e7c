"""The classical surface: near the points, with at most the wanted faces, outward; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import NotSupported
from engine.mesh.classical import reconstruct, reconstruct_once, surface
from engine.mesh.distance import distance
from engine.mesh.fit import fit_of


def ball(count: int, seed: int = 0, axes: tuple[float, float, float] = (0.9, 0.9, 0.9)) -> np.ndarray:
    """Points [count, 6] of an ellipsoid, with outward normals."""
    unit = np.random.default_rng(seed).normal(size=(count, 3))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    normals = unit / axes
    return np.concatenate([unit * axes, normals / np.linalg.norm(normals, axis=1, keepdims=True)], 1)


@pytest.mark.parametrize("count", [300, 1000, 4096, 20_000])
@pytest.mark.parametrize("axes", [(0.9, 0.9, 0.9), (0.9, 0.5, 0.2)])
def test_the_surface_is_near_the_points_and_points_outward(count: int, axes: tuple[float, float, float]) -> None:
    cloud = ball(count, axes=axes)
    vertices, faces = surface(cloud, 400)
    fit = fit_of(distance((vertices, faces), cloud))
    assert fit is not None and fit.verdict == "good", fit
    assert len(faces) <= 410
    a, b, c = vertices[faces].swapaxes(0, 1)
    assert np.einsum("fk,fk->", a, np.cross(b, c)) > 0  # the volume that it encloses


def test_a_caller_gets_it_from_another_process_or_a_sentence() -> None:
    vertices, faces = reconstruct(ball(2000), 120)
    assert 60 < len(faces) <= 125 and vertices.shape[1] == 3 and np.isfinite(vertices).all()
    assert faces.max() < len(vertices)
    with pytest.raises(NotSupported, match="span no classical surface"):
        reconstruct(np.tile([[0.1, 0.2, 0.3, 0.0, 0.0, 1.0]], (50, 1)), 100)


def test_runs_of_one_cloud_share_a_surface() -> None:
    cloud = ball(500).astype(np.float32)
    made = reconstruct_once(cloud.tobytes(), 40)
    assert reconstruct_once(cloud.copy().tobytes(), 40) is made
    assert reconstruct_once(cloud.tobytes(), 60) is not made and reconstruct_once((-cloud).tobytes(), 40) is not made

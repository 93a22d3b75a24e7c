"""Vertices that move to the points of the input."""

from __future__ import annotations

import numpy as np
import pytest

from engine.mesh import shrinkwrap
from engine.mesh.bpt_tokens import frame_of
from engine.mesh.distance import distance
from engine.mesh.shrinkwrap import shrink_to_points
from research.worlds.lowpoly_shapes import degrade, held_out_shape, sample_points


def shape_of(family: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices and faces of a held-out shape in the model's frame, and 8,192 points of it."""
    shape = held_out_shape(family, 0)
    vertices = frame_of(shape.vertices).to_model(shape.vertices)
    return vertices, shape.faces, sample_points(vertices, shape.faces, 8192, np.random.default_rng(1))


def shake(vertices: np.ndarray, far: float) -> np.ndarray:
    """The vertices, each moved by up to `far` along each axis; vertices at one place move together."""
    places, owner = np.unique(vertices, axis=0, return_inverse=True)
    return (places + np.random.default_rng(2).uniform(-far, far, places.shape))[owner.reshape(-1)]


@pytest.mark.parametrize("family", ["chair", "house", "barrel", "sword"])
def test_a_shaken_shape_comes_back(family):
    vertices, faces, points = shape_of(family)
    wrong = shake(vertices, 0.04)
    before, after = (distance((v, faces), (vertices, faces)) for v in (wrong, shrink_to_points(wrong, faces, points)))
    assert after["chamfer"] - after["floor"] < 0.7 * (before["chamfer"] - before["floor"])
    assert after["normal_consistency"] > before["normal_consistency"]


def test_what_lies_on_its_points_stays():
    vertices, faces, points = shape_of("table")
    moves = np.abs(shrink_to_points(vertices, faces, points) - vertices)
    assert moves.mean() < 0.005 and moves.max() < 0.03


def test_vertices_at_one_place_stay_together():
    vertices, faces, points = shape_of("crate")
    apart = vertices[faces].reshape(-1, 3)  # every face has its own corners
    moved = shrink_to_points(shake(apart, 0.03), np.arange(len(apart)).reshape(-1, 3), points)
    assert len(np.unique(moved, axis=0)) == len(np.unique(apart, axis=0))


def test_scans_with_noise_help_and_those_of_few_points_are_left():
    vertices, faces, points = shape_of("bottle")
    wrong, better = shake(vertices, 0.03), []
    before = distance((wrong, faces), (vertices, faces))["chamfer"]
    for seed in range(16):
        scan = degrade(points[:2048], np.random.default_rng(seed))
        moved = shrink_to_points(wrong, faces, scan)
        after = distance((moved, faces), (vertices, faces))["chamfer"]
        assert np.isfinite(moved).all() and after < 1.5 * before  # the worst one sees one side only, with strong noise
        if len(np.unique(scan[:, :3], axis=0)) < 256:
            assert np.array_equal(moved, wrong)
        better.append(after < 0.95 * before)
    assert sum(better) >= 13


def test_the_back_of_a_thin_board_is_not_drawn_to_its_front():
    corners = np.array([(x, y, z) for z in (0.0, 0.02) for y in (-0.9, 0.9) for x in (-0.9, 0.9)])
    front, back = np.array([[4, 5, 7], [4, 7, 6]]), np.array([[0, 3, 1], [0, 2, 3]])
    faces = np.concatenate([front, back])
    # only the front was scanned, and it lies elsewhere
    seen = sample_points(corners + np.array([0, 0, 0.05]), front, 4096, np.random.default_rng(0))
    for turned in (1, -1):
        scan = seen * np.array([1, 1, 1, turned, turned, turned], np.float32)
        moved = shrink_to_points(corners, faces, scan)
        assert moved[4:, 2].mean() > 0.055 and moved[:4, 2].mean() < 0.03
    assert shrink_to_points(corners, faces, seen[:, :3])[:4, 2].mean() > 0.03  # without normals nothing tells them apart


def test_far_points_draw_nothing():
    vertices, faces, points = shape_of("pillar")
    stray = points.copy()
    stray[:200, :3] += [0, 5.0, 0]
    assert shrink_to_points(vertices, faces, stray)[:, 1].max() < vertices[:, 1].max() + 0.1


def test_the_same_twice_and_the_arguments_stay():
    vertices, faces, points = shape_of("lamp")
    wrong = shake(vertices, 0.03)
    before = wrong.copy()
    assert np.array_equal(shrink_to_points(wrong, faces, points), shrink_to_points(wrong, faces, points)) and np.array_equal(wrong, before)


def test_what_cannot_be_wrapped_comes_back_as_it_is():
    vertices, faces, points = shape_of("gem")
    for v, f, p in (
        (vertices, faces[:0], points),
        (vertices[:0], faces[:0], points),
        (vertices * 0, faces, points),
        (vertices, faces, points[:1]),
    ):
        assert np.array_equal(shrink_to_points(v, f, p), v)


def test_a_mesh_that_would_lie_farther_away_stays(monkeypatch):
    vertices, faces, points = shape_of("gem")
    monkeypatch.setattr(shrinkwrap, "_moves", lambda places, *rest: np.full(places.shape, 0.1))
    assert np.array_equal(shrink_to_points(vertices, faces, points), vertices)

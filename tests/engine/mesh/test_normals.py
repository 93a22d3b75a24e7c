"""Estimated normals are perpendicular to the surface and point outward."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.mesh.normals import complete, estimate, outwardness, unit
from tests.engine.mesh.shapes import box, join, points_on, sphere_points, table, torus

SHAPES = {
    "sphere": lambda n: sphere_points(n),
    "box": lambda n: points_on(box((1.0, 2.0, 3.0)), n),
    "torus": lambda n: points_on(torus(), n),
    "plate": lambda n: points_on(box((2.0, 0.2, 2.0)), n),
    "two boxes": lambda n: points_on(join(box(), box((1.0, 3.0, 1.0), (4.0, 0.0, 0.0))), n),
    "bowl": lambda n: points_on(bowl(), n),
}


def bowl() -> tuple[np.ndarray, np.ndarray]:
    """A half shell with an inner and an outer wall: a torus' inside turned up, cut open along its ring."""
    vertices, faces = torus(48, 24, 1.0, 0.0)
    u, v = np.divmod(np.arange(len(vertices)), 24)
    angle = np.minimum(v, 23 - v) / 11 * np.pi / 2  # down the outer wall and up the inner
    radius = np.where(v < 12, 1.0, 0.8)
    a = 2 * np.pi * u / 48
    flat = radius * np.cos(angle)
    return np.stack([flat * np.cos(a), -radius * np.sin(angle), flat * np.sin(a)], 1), faces[:, ::-1]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("count", [2048, 8192])
def test_estimated_normals_point_outward(name, count):
    points = SHAPES[name](count)
    normals = estimate(points[:, :3])
    assert np.linalg.norm(normals, axis=1) == pytest.approx(np.ones(count))
    agreement = np.einsum("nc,nc->n", normals, points[:, 3:])
    assert (agreement > 0).mean() > 0.99
    assert np.median(agreement) > 0.99


def test_thin_legs_are_oriented_too():
    points = points_on(table(), 8192)
    outside = np.abs(points[:, 1]) > 0.101  # where the legs enter the top there are surfaces inside
    agreement = np.einsum("nc,nc->n", estimate(points[:, :3]), points[:, 3:])[outside]
    assert (agreement > 0).mean() > 0.97  # a leg is five points wide, so its edges are hard to tell


def test_noise_is_borne():
    points = points_on(torus(), 4096)
    shaken = points[:, :3] + np.random.default_rng(0).normal(size=(4096, 3)) * 0.01
    agreement = np.einsum("nc,nc->n", estimate(shaken), points[:, 3:])
    assert (agreement > 0).mean() > 0.99 and np.median(agreement) > 0.98


def test_position_and_size_do_not_matter():
    points = points_on(torus(), 2048)
    moved = points[:, :3] * 1e-3 + [5.0, -700.0, 2.0]
    agreement = np.einsum("nc,nc->n", estimate(moved), points[:, 3:])
    assert (agreement > 0).mean() > 0.99


def test_sixteen_thousand_points_take_less_than_a_second():
    points = points_on(torus(), 16_384)[:, :3]
    times = []
    for _ in range(3):  # the machine may be busy
        start = time.process_time()
        estimate(points)
        times.append(time.process_time() - start)
    assert min(times) < 1.0


@pytest.mark.parametrize("count", [1, 3, 4, 5, 16, 40])
def test_few_points(count):
    assert np.linalg.norm(estimate(sphere_points(count)[:, :3]), axis=1) == pytest.approx(np.ones(count))


def test_points_on_a_line_or_a_plane_have_some_normal():
    for thin in ([1, 0, 0], [1, 1, 0]):
        points = np.random.default_rng(0).normal(size=(100, 3)) * thin
        normals = estimate(points)
        assert np.isfinite(normals).all() and np.linalg.norm(normals, axis=1) == pytest.approx(np.ones(100))


def test_what_is_no_normal():
    normals, good = unit(np.array([[0, 0, 2.0], [0, 0, 0], [np.nan, 0, 1], [np.inf, 0, 0], [1e200, 0, 0], [0, 3e-5, 0]]))
    assert good.tolist() == [True, False, False, False, False, True]
    assert normals[[0, 5]].tolist() == [[0, 0, 1], [0, 1, 0]] and not normals[1:5].any()


def test_given_normals_are_kept():
    points = sphere_points(500)
    normals, note = complete(points[:, :3], points[:, 3:] * 7)
    assert note == "" and normals == pytest.approx(points[:, 3:])


def test_outward():
    points = sphere_points(500)
    assert outwardness(points[:, :3], points[:, 3:]) > 0.95
    assert outwardness(points[:, :3], -points[:, 3:]) < -0.95

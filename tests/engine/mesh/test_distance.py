"""Chamfer and Hausdorff distance with their floors: on surfaces, on clouds, and by the protocol of the papers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.mesh.distance import distance
from engine.mesh.frame import SIDE
from research.bench.mesh_inputs import published_distance
from tests.engine.mesh.shapes import box, points_on, sphere_points, table, torus


def test_a_mesh_and_itself_are_at_the_floor():
    stats = distance(torus(), torus())
    assert stats["count"] == 16_384 and stats["sampled"] == "surface"
    assert stats["chamfer"] == pytest.approx(stats["floor"], rel=0.03)
    assert stats["hausdorff"] == pytest.approx(stats["floor_hausdorff"], rel=0.5)
    assert stats["normal_consistency"] == pytest.approx(stats["floor_normal_consistency"], abs=0.01) and stats["normal_consistency"] > 0.95


@pytest.mark.parametrize("count", [512, 1024, 4096, 16_384])
def test_the_floor_is_what_uniform_points_have(count):
    """On a plane the nearest of n uniform points is at 0.5 / sqrt(n / area) on average; the chamfer distance sums two of these.
    Measured on low-poly props, which are slimmer than a cube, it is 0.076 at 1,024 points and 0.020 at 16,384."""
    area = 6 * SIDE**2
    assert distance(box(), box(), count)["floor"] == pytest.approx(np.sqrt(area / count), rel=0.08)
    thin = box((1.0, 0.3, 0.3))
    floor = distance(thin, thin, count)["floor"]
    assert floor == pytest.approx({512: 0.1063, 1024: 0.0763, 4096: 0.0389, 16_384: 0.0197}[count], rel=0.35)


def test_a_known_distance():
    """Two squares face to face, a tenth of their side apart: every nearest point is at least that far."""
    square = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], float), np.array([[0, 1, 2], [0, 2, 3]])
    moved = square[0] + [0, 0, 0.1], square[1]
    stats = distance(moved, square)
    assert stats["chamfer"] == pytest.approx(2 * 0.1 * SIDE, rel=0.01)
    assert stats["hausdorff"] == pytest.approx(0.1 * SIDE, rel=0.05)
    assert distance((moved[0] * 100, moved[1]), (square[0] * 100, square[1]))["chamfer"] == pytest.approx(stats["chamfer"], rel=1e-6)
    turned = square[0][:, [0, 2, 1]], square[1]
    assert distance(turned, square)["normal_consistency"] < 0.1


def test_a_wrong_size_is_punished_unless_each_is_boxed():
    vertices, faces = box()
    half = vertices / 2, faces
    assert distance(half, (vertices, faces))["chamfer"] > 10 * distance(half, (vertices, faces))["floor"]
    stats = published_distance(half, (vertices, faces))
    assert stats["count"] == 1024 and stats["repeats"] == 5
    assert stats["chamfer"] == pytest.approx(stats["floor"], rel=0.05)


def test_a_cloud_has_a_floor_too():
    """Both sides get as many points as half of the cloud, and the floor is between its halves."""
    cloud = sphere_points(3000)
    stats = distance(torus(), cloud)
    assert stats["sampled"] == "cloud" and stats["count"] == 1500
    assert stats["floor"] == pytest.approx(np.sqrt(4 * np.pi * (SIDE / 2) ** 2 / 1500), rel=0.1)
    assert stats["chamfer"] > 2 * stats["floor"]
    alike = distance(sphere_points(3000, 1), cloud)
    assert alike["chamfer"] == pytest.approx(alike["floor"], rel=0.1)
    bare = distance(torus(), cloud[:, :3])
    assert bare["normal_consistency"] is None and bare["chamfer"] == pytest.approx(stats["chamfer"])
    assert published_distance(torus(), cloud)["count"] == 1024


def test_a_mesh_through_a_cloud_of_itself():
    stats = distance(table(), points_on(table(), 40_000))
    assert stats["count"] == 16_384
    assert stats["chamfer"] == pytest.approx(stats["floor"], rel=0.05)


def test_without_faces_there_is_no_distance():
    nothing = np.zeros((0, 3)), np.zeros((0, 3), int)
    flat = np.zeros((3, 3)), np.array([[0, 1, 2]])
    for result in (nothing, flat):
        stats = distance(result, torus())
        assert stats["chamfer"] is None and stats["count"] == 0 and set(stats) == set(distance(box(), torus(), 64))
        assert published_distance(result, torus())["chamfer"] is None


def test_the_seed_decides():
    assert distance(box(), torus(), 500, 3) == distance(box(), torus(), 500, 3)
    assert distance(box(), torus(), 500, 3) != distance(box(), torus(), 500, 4)

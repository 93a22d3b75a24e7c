"""Polygons of any shape become triangles that cover them once. Files with such polygons are in tests/faults/corpus/meshes.py."""

from __future__ import annotations

import time

import numpy as np
import pytest

from engine.errors import BadFile
from engine.mesh import surface
from engine.mesh.formats import ears, polygons
from engine.mesh.formats.source import Source
from engine.mesh.read import read
from tests.engine.mesh.files import obj


@pytest.fixture
def source(tmp_path) -> Source:
    (tmp_path / "a.obj").write_text("# polygons")
    return Source(tmp_path / "a.obj")


def triangulate(source: Source, points: np.ndarray, faces: list[list[int]]) -> np.ndarray:
    """Triangles of faces."""
    return polygons.triangles(source, points, np.concatenate(faces), np.array([len(f) for f in faces]))


def covers_once(points: np.ndarray, face: list[int], triangles: np.ndarray) -> None:
    """All triangles turn as the polygon does, and their areas add up to its own."""
    corners = points[face]
    normal = np.cross(corners - corners[0], np.roll(corners - corners[0], -1, 0)).sum(0)
    crosses = surface.crosses(points, triangles)
    whole = np.linalg.norm(normal)
    assert len(triangles) == len(face) - 2
    assert (crosses @ normal / whole).min() > -1e-9 * whole
    assert np.linalg.norm(crosses, axis=1).sum() == pytest.approx(whole, rel=1e-9)


def star(random: np.random.Generator, count: int) -> np.ndarray:
    """A jagged polygon around a point, in a plane parallel to no axis."""
    angles = 2 * np.pi * (np.arange(count) + random.random(count) * 0.9) / count
    flat = np.stack([np.cos(angles), np.sin(angles), np.zeros(count)], 1) * (0.05 + random.random((count, 1)))
    turn = np.linalg.qr(random.normal(size=(3, 3)))[0]
    return flat @ turn + random.normal(size=3) * 10


def test_random_polygons_are_covered_once(source):
    random = np.random.default_rng(0)
    points, faces = [], []
    for _ in range(120):
        corners = star(random, int(random.integers(4, 40)))
        faces.append(np.roll(np.arange(len(corners)) + sum(map(len, points)), random.integers(9)).tolist())
        points.append(corners)
    joined = np.concatenate(points)
    ends = np.cumsum([len(f) - 2 for f in faces])
    for face, triangles in zip(faces, np.split(triangulate(source, joined, faces), ends[:-1])):  # in the order of the file
        assert set(triangles.reshape(-1)) == set(face)
        covers_once(joined, face, triangles)


def test_a_chunk_ends_anywhere(source, monkeypatch):
    random = np.random.default_rng(1)
    faces = [np.arange(k * 12, k * 12 + size).tolist() for k, size in enumerate([3, 12, 4, 2, 5, 0, 12, 7, 3])]
    points = np.concatenate([star(random, 12) for _ in faces])
    whole = triangulate(source, points, faces)
    monkeypatch.setattr(polygons, "CHUNK", 5)
    monkeypatch.setattr(ears, "CHUNK", 5)
    assert (triangulate(source, points, faces) == whole).all()


@pytest.mark.parametrize(
    ("corners", "first"),
    [
        ([(0, 0, 0), (2, 0, 0), (3, 1, 0), (0, 1, 0)], 1),  # the shorter diagonal
        ([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], 0),  # equal ones: from the first corner
        ([(0, 0, 0), (9, 1, 0), (0, 2, 0), (1, 1, 0)], 1),  # the one inside, though the other is shorter
        ([(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 2, 0)], 1),  # the one that leaves no triangle flat
        ([(0, 0, 0), (3, 0, 1), (3, 3, 0), (0, 3, 1)], 0),  # not planar: still the shorter one
    ],
)
def test_the_better_diagonal(source, corners, first):
    points = np.array(corners, np.float64)
    expected = {0: [[0, 1, 2], [0, 2, 3]], 1: [[1, 2, 3], [1, 3, 0]]}[first]
    if first == 0 and points[1, 2]:
        points[2, :2] = 2.9  # makes the first diagonal the shorter one
    assert triangulate(source, points, [[0, 1, 2, 3]]).tolist() == expected


@pytest.mark.parametrize("broken", range(5))
def test_a_polygon_with_a_broken_corner_is_dropped_as_a_whole(tmp_path, broken):
    points = np.array([[0, 0, 0], [2, 0, 0], [2, 2, 0], [1, 0.5, 0], [0, 2, 0], [5, 0, 0], [6, 0, 0], [5, 1, 0]], np.float64)
    points[broken] = np.nan
    mesh = read(obj(tmp_path / "a.obj", points, [[0, 1, 2, 3, 4], [5, 6, 7]]))
    assert mesh.notes == ["3 faces with NaN or infinite corners were dropped."]
    assert len(mesh.surface[1]) == 1


def test_a_polygon_that_crosses_itself_ends(source):
    pentagram = np.array([[np.cos(a), np.sin(a), 0] for a in 4 * np.pi / 5 * np.arange(5)])
    assert len(triangulate(source, pentagram, [[0, 1, 2, 3, 4]])) == 3
    assert len(triangulate(source, np.zeros((6, 3)), [[*range(6)]])) == 4


def test_many_concave_polygons_are_cut_together(source):
    """A hundred thousand of one shape take a second or two, where one by one would take minutes."""
    shape = np.array([[0, 0, 0], [2, 0, 0], [2, 1, 0], [1, 1, 0], [1, 2, 0], [0, 2, 0]], np.float64)
    points = (shape + np.random.default_rng(0).normal(size=(100_000, 1, 3))).reshape(-1, 3)
    start = time.process_time()
    triangles = polygons.triangles(source, points, np.arange(len(points)), np.full(100_000, 6))
    assert time.process_time() - start < 10
    assert surface.areas(points, triangles).sum() == pytest.approx(300_000)


def test_a_concave_polygon_that_would_take_minutes_is_refused(source):
    count = 40_000
    angles = 2 * np.pi * np.arange(count) / count
    points = np.stack([np.cos(angles), np.sin(angles), np.zeros(count)], 1)
    assert len(triangulate(source, points, [[*range(count)]])) == count - 2  # convex: a fan
    points[::2] *= 0.9
    with pytest.raises(BadFile, match=r"too many corners to split them \(the largest has 40,000\)"):
        triangulate(source, points, [[*range(count)]])

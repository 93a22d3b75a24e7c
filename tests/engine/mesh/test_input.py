"""From a file to the model's frame and back: scale, position, axes, what is dropped, and what is sampled."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import BadPrompt
from engine.mesh.frame import SIDE, UP, choose_up, fit, outliers
from engine.mesh.read import DRAWN, read, sample
from tests.engine.mesh.files import obj, ply, stl, text
from tests.engine.mesh.shapes import box, points_on, sphere_points, table, torus

OFFSET = np.array([512_345.25, -20.0, 6_100_000.5])  # of a scan in the coordinates of a map


@pytest.mark.parametrize("up", UP)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 2.5e5])
@pytest.mark.parametrize("offset", [np.zeros(3), OFFSET], ids=["at home", "far away"])
def test_there_and_back(up, scale, offset):
    points = np.random.default_rng(1).uniform(-1, 1, (500, 3)) * [1.0, 0.3, 2.0] * scale + offset
    frame = fit(points, up)
    inside = frame.to_model(points)
    assert np.ptp(inside, 0).max() == pytest.approx(SIDE, rel=1e-4)
    assert (inside.min(0) + inside.max(0)) == pytest.approx(np.zeros(3), abs=1e-4)
    assert np.abs(frame.from_model(inside) - points).max() <= 1e-9 * (np.abs(offset).max() + scale)
    assert np.linalg.det(frame.rotation) == pytest.approx(1)
    assert frame.turn_back(frame.turn(points)) == pytest.approx(points)


@pytest.mark.parametrize(
    ("up", "axis"), [("x", [1, 0, 0]), ("y", [0, 1, 0]), ("z", [0, 0, 1]), ("-x", [-1, 0, 0]), ("-y", [0, -1, 0]), ("-z", [0, 0, -1])]
)
def test_the_chosen_axis_becomes_up(up, axis):
    frame = fit(np.eye(3), up)
    assert frame.turn(np.array([axis], float)) == pytest.approx(np.array([[0, 1, 0]]))


def test_an_input_returns_to_its_file(tmp_path):
    points = points_on(table(), 3000)
    points[:, :3] = points[:, :3] * 0.02 + [7.0, -3.0, 1.0]
    cloud = read(text(tmp_path / "a.xyz", points), up="-z")
    assert np.abs(cloud.points[:, :3]).max() <= SIDE / 2 + 1e-6
    assert cloud.reference == pytest.approx(points, abs=1e-6)
    assert cloud.points.dtype == np.float32
    assert np.linalg.norm(cloud.points[:, 3:], axis=1) == pytest.approx(np.ones(3000), abs=1e-6)


def test_up_is_that_of_the_format_where_nobody_looks(tmp_path):
    vertices, faces = table()
    assert read(stl(tmp_path / "a.stl", vertices, faces)).frame.up == "z"
    assert read(obj(tmp_path / "a.obj", vertices, faces.tolist())).frame.up == "y"
    assert read(tmp_path / "a.stl", up="y").frame.up == "y"
    assert choose_up(".ply") == "y" and choose_up(".ply", "-X") == "-x"
    with pytest.raises(BadPrompt, match="cannot be 'w'"):
        choose_up(".ply", "w")


def test_outliers_are_dropped_and_nothing_else(tmp_path):
    random = np.random.default_rng(3)
    for mesh in (torus(), table(), box((1.0, 0.02, 1.0))):
        points = points_on(mesh, 4000)[:, :3]
        assert not outliers(points).any()
        stray = random.uniform(-3, 3, (60, 3))
        far = outliers(np.concatenate([points, stray]))
        assert not far[:4000].any() and far[4000:].sum() > 40
    cloud = read(text(tmp_path / "a.xyz", np.concatenate([points, [[0.0, 50.0, 0.0]]])))
    assert cloud.notes[0] == "1 point far from all others was dropped."
    assert np.ptp(cloud.points[:, 0]) == pytest.approx(SIDE, abs=1e-3)


def test_an_uneven_cloud_loses_nothing():
    near, away = points_on(box(), 4000)[:, :3], points_on(box((1.0, 1.0, 1.0), (1.5, 0.0, 0.0)), 600, 1)[:, :3] * 3
    assert not outliers(np.concatenate([near, away])).any()


def test_a_mesh_is_sampled_evenly(tmp_path):
    """Points per area, on faces of very different sizes."""
    vertices, faces = box((4.0, 2.0, 1.0))
    mesh = read(ply(tmp_path / "a.ply", vertices, faces.tolist()))
    assert mesh.points.shape == (DRAWN, 6)
    shares = [(np.abs(mesh.points[:, 3 + axis]) > 0.99).mean() for axis in range(3)]
    assert shares == pytest.approx([2 / 14, 4 / 14, 8 / 14], abs=0.02)
    for axis in range(3):  # on their faces
        on = np.abs(mesh.points[:, 3 + axis]) > 0.99
        assert np.abs(mesh.points[on, axis]) == pytest.approx(np.full(on.sum(), SIDE / 8 * (4, 2, 1)[axis]), abs=1e-5)


def test_samples(tmp_path):
    mesh = read(ply(tmp_path / "a.ply", box()[0], box()[1].tolist()))
    cloud = read(text(tmp_path / "a.xyz", sphere_points(300)))
    for shape in (mesh, cloud):
        assert sample(shape, 256, 1).shape == (256, 6) and sample(shape, 256, 1).dtype == np.float32
        assert (sample(shape, 256, 1) == sample(shape, 256, 1)).all()
        assert (sample(shape, 256, 1) != sample(shape, 256, 2)).any()
        assert sample(shape, 1000, 1).shape == (1000, 6)
        assert sample(shape, 0, 1).shape == (0, 6)
    assert len(np.unique(sample(cloud, 300, 4), axis=0)) == 300  # no repetition while there are enough
    assert len(np.unique(sample(cloud, 1000, 4), axis=0)) == 300


def test_reading_is_the_same_every_time(tmp_path):
    path = text(tmp_path / "a.xyz", points_on(table(), 2000)[:, :3])
    assert (read(path).points == read(path).points).all()

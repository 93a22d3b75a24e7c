"""Which way is up: the same cloud turned gets the same answer turned, and the shipped network knows the shapes of the world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.mesh.frame import SIDE, centre
from engine.mesh.read import read
from engine.mesh.rotation import rotation as around
from engine.recognition import up
from engine.recognition.network import CloudNetwork
from engine.recognition.up import AXES, UNSURE, Upright, orientations, read_standing, rotation, stand_up
from research.worlds.lowpoly_shapes import alike_up, held_out_shapes, orient, sample_points
from tests.engine.mesh.files import obj, ply, stl
from tests.engine.mesh.shapes import box, points_on, sphere_points, table


@pytest.fixture(scope="module")
def random() -> Upright:
    torch.manual_seed(0)
    return Upright(CloudNetwork(1, 32))


class Sure:
    """A network that answers one axis of the file."""

    def __init__(self, axis: str, chance: float = 0.9999):
        self.answer = np.where(np.array(AXES) == axis, chance, (1 - chance) / 5)

    def chances(self, points: np.ndarray) -> np.ndarray:
        return self.answer


def test_the_rotations_stand_each_axis_upright():
    cloud = torch.tensor([[[*rotation(axis)[1], *rotation(axis)[1]] for axis in AXES]], dtype=torch.float32)
    stands = orientations(cloud)
    assert stands.shape == (1, 6, 4, 6, 6)
    for i in range(6):
        assert torch.allclose(stands[0, i, :, i, 3:], torch.tensor([0.0, 1, 0]).expand(4, 3), atol=1e-6)
    assert len(np.unique(stands[0, :, :, :2, :3].reshape(24, -1).numpy().round(3), axis=0)) == 24


@pytest.mark.parametrize("axis", AXES)
def test_a_turned_cloud_gets_the_turned_answer(random, axis):
    cloud = points_on(table(), 2000)
    turn = around(90.0) @ rotation(axis)  # takes the axis of the turned cloud to +Y
    before = random.chances(cloud)
    after = random.chances(np.concatenate([cloud[:, :3] @ turn, cloud[:, 3:] @ turn], 1))
    for i, name in enumerate(AXES):
        where = (turn.T @ rotation(name)[1]).round().tolist()
        j = next(k for k, other in enumerate(AXES) if rotation(other)[1].tolist() == where)
        assert after[j] == pytest.approx(before[i], abs=1e-5)
    assert before.sum() == pytest.approx(1) and np.ptp(before) > 1e-4


def test_scale_and_place_do_not_matter(random):
    cloud = points_on(table(), 2000)
    far = np.concatenate([cloud[:, :3] * 40 + [5, -300, 7], cloud[:, 3:]], 1)
    assert random.chances(far) == pytest.approx(random.chances(cloud), abs=1e-4)


@pytest.mark.parametrize("axis", AXES)
def test_an_input_is_stood_on_the_answer(tmp_path, axis):
    vertices, faces = table()
    path = ply(tmp_path / "a.ply", vertices + 3, faces.tolist())
    shape, wanted = stand_up(read(path), Sure(axis)), read(path, axis)
    assert shape.frame.up == axis and f"The {axis} axis was taken as up (probability " in shape.notes[-1]
    assert np.allclose(shape.points, wanted.points, atol=1e-5)
    assert np.allclose(shape.frame.to_model(vertices), wanted.frame.to_model(vertices))


def test_a_doubtful_answer_gives_way_to_the_format_and_the_ground(tmp_path):
    vertices, faces = box((1.0, 1.3, 0.8))
    unsure = Sure("x", 0.25)
    assert stand_up(read(obj(tmp_path / "a.obj", vertices, faces.tolist())), unsure).frame.up == "y"
    shape = stand_up(read(stl(tmp_path / "a.stl", vertices, faces)), unsure)
    assert shape.frame.up == "z" and shape.notes[-1].startswith(f"{UNSURE} (z, ")
    standing = vertices - [vertices[:, 0].max(), 0, 0]  # its box ends at x = 0: it hangs below, or stands on its head
    assert stand_up(read(stl(tmp_path / "b.stl", standing, faces)), unsure).frame.up == "-x"
    assert stand_up(read(obj(tmp_path / "b.obj", vertices, faces.tolist())), Sure("x")).frame.up == "x"


def test_what_a_person_says_is_not_asked(tmp_path, monkeypatch):
    path = ply(tmp_path / "a.ply", *(part.tolist() if i else part for i, part in enumerate(table())))
    monkeypatch.setattr(up, "shipped_network", lambda: Sure("-z"))
    assert read_standing(path).frame.up == "-z"
    shape = read_standing(path, "x")
    assert shape.frame.up == "x" and not shape.notes


def test_training_clouds_lean_only_when_they_are_asked_to():
    shape = next(s for s in held_out_shapes(40) if s.family == "crate")
    for tilted in (0.0, 1.0):
        straight = []
        for seed in range(8):
            cloud, axis = orient(shape, np.random.default_rng(seed), 1024, 0.0, 0.0, tilted)
            upward = cloud[:, 3:] @ rotation(AXES[axis]).T
            straight.append((np.abs(upward).max(1) > 0.9999).mean() > 0.95)
            assert np.ptp(cloud[:, :3], axis=0).max() == pytest.approx(SIDE, abs=1e-4)
        assert all(straight) if not tilted else sum(straight) < 4


def test_the_shipped_network_stands_held_out_shapes_upright():
    """In any of the six orientations, because a turned cloud gets the turned answer. The card has the share of all shapes."""
    shapes = held_out_shapes(47)
    judge = up.load()
    right = []
    for i, shape in enumerate(shapes):
        cloud = sample_points(shape.vertices, shape.faces, 4096, np.random.default_rng(i))
        right.append(int(judge.chances(cloud).argmax()) in alike_up(shape))
    assert np.mean(right) >= 0.9
    worse = up.load()
    worse.network.answer = torch.nn.Linear(*reversed(worse.network.answer.weight.shape))  # what was learned is what answers
    assert np.mean([int(worse.chances(sample_points(s.vertices, s.faces, 4096, np.random.default_rng(0))).argmax()) in alike_up(s)
                    for s in shapes]) < 0.8  # fmt: skip


def test_a_ball_has_an_answer_too(random):
    assert np.isfinite(random.chances(sphere_points(500))).all()
    few = replace(read_points(), points=read_points().points[:16])
    assert stand_up(few, random).points.shape == (16, 6)


def read_points():
    """An input of few points."""
    from engine.assets import clouds

    return read(clouds() / "chair.ply")


def test_centred_fills_the_box():
    cloud = centre(points_on(table(), 500) * 7)
    assert np.abs(cloud[:, :3]).max() == pytest.approx(SIDE / 2) and np.allclose(cloud[:, 3:], points_on(table(), 500)[:, 3:] * 7)

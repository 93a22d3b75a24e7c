"""The judge of meshes: its training data, and the shipped judge's knowledge of the families."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.random import PCG64, Generator

from engine.mesh.frame import SIDE
from engine.mesh.rotation import rotation
from engine.recognition.network import FEATURES, POINTS, CloudNetwork, features, subsample
from research import mesh_judge
from research.mesh_judge import MeshJudge
from research.train.cloud_lessons import CHUNK, GROUP, PASSES, STEPS, CloudDataset
from research.train.mesh_judge import NAMES, cloud_of, coarsen, lesson, shapes
from research.worlds.families import FAMILIES
from research.worlds.lowpoly_shapes import in_boxes, sample_points
from tests.engine.mesh import shapes as plain


@pytest.fixture(scope="module")
def judge() -> MeshJudge:
    return mesh_judge.load()


def test_shapes_outside_the_boxes_are_taught_and_those_inside_are_held_out():
    assert not any(in_boxes(s) for s in shapes(Generator(PCG64(0)), 60))
    held_out = list(shapes(Generator(PCG64(0)), len(NAMES), held_out=True))
    assert all(in_boxes(s) for s in held_out) and [s.family for s in held_out] == list(FAMILIES)


def test_a_lesson_is_a_function_of_its_number():
    (first, families), (again, _), (other, _) = lesson(5, 8), lesson(5, 8), lesson(6, 8)
    assert first.shape == (8, FEATURES) and torch.equal(first, again) and not torch.equal(first, other)
    assert families.max() < len(NAMES)
    cloud = cloud_of(next(shapes(Generator(PCG64(2)), 1)), Generator(PCG64(3)))
    assert cloud.shape == (POINTS, 6) and np.abs(cloud[:, :3]).max() == pytest.approx(SIDE / 2, abs=1e-5)


def test_each_cloud_of_a_group_is_used_as_often_as_another():
    drawn_of: list[int] = []

    def draw(number: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        drawn_of.append(number)
        return torch.zeros(count, 1), torch.arange(count) + number * count

    lessons = CloudDataset(draw)
    used = torch.cat([lessons.batch(step)[1] for step in range(STEPS)])
    assert torch.bincount(used).tolist() == [PASSES] * GROUP and len(drawn_of) == GROUP // CHUNK
    assert lessons.batch(STEPS)[1].min() >= GROUP  # the next group
    assert torch.equal(CloudDataset(draw).batch(STEPS + 3)[1], lessons.batch(STEPS + 3)[1])  # a resumed training draws the same


def test_a_coarse_shape_loses_faces_and_keeps_its_size():
    shape = next(shapes(Generator(PCG64(1)), 1))
    rough = [coarsen(shape, Generator(PCG64(i))) for i in range(12)]
    assert min(len(r.polygons) for r in rough) < len(shape.polygons)
    assert all(np.allclose(np.ptp(r.vertices, 0), np.ptp(shape.vertices, 0), atol=0.2 * np.ptp(shape.vertices)) for r in rough)


def test_the_order_of_points_does_not_matter_and_the_front_neither():
    torch.manual_seed(0)
    random = MeshJudge(NAMES, CloudNetwork(len(NAMES), 32))
    cloud = plain.points_on(plain.table(), POINTS)
    mixed = cloud[np.random.default_rng(0).permutation(POINTS)]
    turn = rotation(90.0)
    turned = np.concatenate([cloud[:, :3] @ turn.T, cloud[:, 3:] @ turn.T], 1)
    for other in (mixed, turned, cloud * [3, 3, 3, 1, 1, 1]):
        assert random.chances(other) == pytest.approx(random.chances(cloud), abs=1e-4)


def test_features_tell_height_normals_and_proportions_apart():
    cloud = subsample(plain.points_on(plain.table(), POINTS))[None]
    first = features(cloud)
    assert first.shape == (1, FEATURES)
    blind = torch.cat([cloud[..., :3], torch.zeros_like(cloud[..., 3:])], -1)
    turned_over = cloud * torch.tensor([1.0, -1, -1, 1, -1, -1])
    flat = cloud * torch.tensor([1.0, 0.5, 1, 1, 1, 1])
    assert all(not torch.allclose(features(other), first, atol=0.1) for other in (blind, turned_over, flat))


def test_a_mesh_without_a_face_is_nothing(judge):
    assert judge.chances_of_mesh(np.zeros((3, 3)), np.zeros((0, 3), np.int64)) is None
    assert judge.chances_of_mesh(np.zeros((3, 3)), np.array([[0, 1, 2]])) is None and judge.name(None) == ""


def test_the_shipped_judge_names_held_out_shapes(judge):
    assert judge.names == NAMES
    held_out = list(shapes(Generator(PCG64(7)), len(NAMES), held_out=True))
    right = [
        judge.name(judge.chances(sample_points(s.vertices, s.faces, 4096, np.random.default_rng(i)))) == s.family
        for i, s in enumerate(held_out)
    ]
    assert np.mean(right) >= 0.85
    alike = [judge.name(judge.chances_of_mesh(s.vertices, s.faces)) == s.family for s in held_out]
    assert np.mean(alike) >= 0.85

"""Which points finished faces cover: against a brute force over sampled triangles, and as a pure function of the tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.mesh.bpt_tokens import BPT, dequantize, parse, serialize
from engine.mesh.coverage import REACH, Coverage, squared_distances
from engine.networks.local_reader import BLOCKS, NEAR, LocalReader, Surface

CUBE = np.array([[x, y, z] for x in (30, 90) for y in (30, 90) for z in (30, 90)])
FACES = np.array(
    [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]
)
TOKENS = serialize(CUBE, FACES).tolist()


def cloud(count: int = 300) -> np.ndarray:
    """Points in and around the cube, in the model's cube."""
    return dequantize(np.random.default_rng(0).uniform(25, 95, (count, 3)))


def walked(machine: Coverage, tokens: list[int]) -> list:
    """The states before the first token and after each of them."""
    states = [machine.start]
    for token in tokens:
        states.append(machine.next(states[-1], token))
    return states


def sampled_distance(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The distance of points to a triangle, by a fine grid of points on it."""
    a, b = np.meshgrid(np.linspace(0, 1, 60), np.linspace(0, 1, 60))
    a, b = a[a + b <= 1], b[a + b <= 1]
    on = corners[0] + a[:, None] * (corners[1] - corners[0]) + b[:, None] * (corners[2] - corners[0])
    return np.linalg.norm(points[:, None] - on[None], axis=2).min(1)


@pytest.mark.parametrize("corners", [((10, 10, 10), (20, 10, 10), (10, 25, 15)), ((5, 5, 5), (5, 5, 5), (9, 9, 9)), ((3, 3, 3),) * 3])
def test_distance_to_a_triangle(corners):
    points = np.random.default_rng(1).uniform(0, 30, (200, 3)).astype(np.float32)
    found = np.sqrt(squared_distances(points, np.array(corners, np.float32)))
    np.testing.assert_allclose(found, sampled_distance(points, np.array(corners, np.float32)), atol=0.2)


@pytest.mark.parametrize("length", range(0, len(TOKENS) + 1, 5))
def test_covered_points_are_those_near_the_faces_of_the_prefix(length):
    machine = Coverage(cloud())
    covered = walked(machine, TOKENS[:length])[-1].covered
    faces = parse(TOKENS[:length]).triangles().astype(np.float32)
    squared = [squared_distances(machine.cells, face) for face in faces]
    near = np.min(squared, 0) <= REACH**2 if squared else np.zeros(300, bool)
    assert covered.tolist() == near.tolist()


def test_a_hypothetical_path_changes_no_state():
    machine = Coverage(cloud())
    before = walked(machine, TOKENS[:20])[-1]
    copy = before.covered.copy()
    walked_on = machine.next(machine.next(before, TOKENS[20]), TOKENS[21])
    assert (before.covered == copy).all() and walked_on is not before
    with pytest.raises(ValueError, match="read-only"):
        before.covered[0] = True


@pytest.mark.parametrize("token", [-1, BPT.eos, BPT.vocabulary + 3])
def test_ids_without_geometry_change_nothing(token):
    machine = Coverage(cloud())
    state = walked(machine, TOKENS[:9])[-1]
    assert machine.next(state, token) is state


def test_surroundings_are_the_nearest_points():
    points = np.concatenate([cloud(), np.zeros((300, 3))], 1)
    surface = Surface(points)
    states = walked(surface.coverage, TOKENS)
    read = surface.around(states)
    assert read.near.shape == (len(states), 2 * NEAR, 12) and read.empty.shape == (len(states), BLOCKS)
    assert not read.near[0].any(), "before the first vertex there is no nearest point"
    assert read.empty[0].expm1().sum().round() == 300
    distance = np.linalg.norm(surface.coverage.cells - states[-1].newest, axis=1)
    np.testing.assert_allclose(np.expm1(read.near[-1, :NEAR, 6].numpy()), np.sort(distance)[:NEAR], rtol=1e-4)
    open_ones = np.sort(distance[~states[-1].covered])[:NEAR]
    np.testing.assert_allclose(np.expm1(read.near[-1, NEAR:, 6].numpy()), open_ones, rtol=1e-4)


def test_a_new_reader_adds_nothing():
    reader = LocalReader(32)
    reader.begin()
    surface = Surface(np.concatenate([cloud(), np.zeros((300, 3))], 1))
    added = reader(surface.around(walked(surface.coverage, TOKENS)))
    assert torch.equal(added, reader.mixed.bias.expand_as(added))

"""The inputs of `bench mesh`: point clouds of held-out procedural shapes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from engine.mesh.bpt_tokens import frame_of
from research.worlds.lowpoly_shapes import Shape, held_out_shapes, sample_points

CLOUD = 16_384  # points of an input


@dataclass
class Subject:
    """A held-out shape as an input: its surface in the model's frame and a point cloud of it [N, 6]."""

    name: str
    vertices: np.ndarray
    faces: np.ndarray
    points: torch.Tensor


def subject_of(shape: Shape, seed: int) -> Subject:
    """Returns the input for a shape; the seed draws its points."""
    vertices = frame_of(shape.vertices).to_model(shape.vertices)
    points = sample_points(vertices, shape.faces, CLOUD, np.random.default_rng(seed))
    return Subject(shape.family, vertices, shape.faces, torch.from_numpy(points))


def subjects(count: int, kind: str, families: Iterable[str]) -> list[Subject]:
    """Returns the first `count` held-out shapes: "boxes" of the families that the model was trained on, or unseen "families"."""
    taught = set(families)
    shapes = held_out_shapes(8 * count, kind)
    chosen = [s for s in shapes if kind == "families" or s.family in taught][:count]
    return [subject_of(s, i) for i, s in enumerate(chosen)]

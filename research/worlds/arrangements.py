"""Contents of files besides single objects: objects on a tile or side by side, and flat tiles with little on them.

They teach which way is up: a rug, a road or a floor lies flat, and a house often comes with its ground.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from research.worlds.families.family import MeshShape
from research.worlds.solids import Solid, box, circle, prism

FLAT = (0.02, 0.14)  # thickness of a tile, as a fraction of its width


def join_shapes(one: MeshShape, other: MeshShape) -> MeshShape:
    """Two shapes as one, named after the first."""
    width = max(one.polygons.shape[1], other.polygons.shape[1])
    other_polygons = np.where(other.polygons >= 0, other.polygons + len(one.vertices), -1)
    both = [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=-1) for p in (one.polygons, other_polygons)]
    labels = np.concatenate([one.labels, np.full(len(other.polygons), len(one.part_names))])
    return replace(
        one, vertices=np.concatenate([one.vertices, other.vertices]), polygons=np.concatenate(both), labels=labels,
        part_names=(*one.part_names, other.family),
    )  # fmt: skip


def solid_shape(solid: Solid, name: str) -> MeshShape:
    """A solid as a shape of one part."""
    width = max(map(len, solid.polygons))
    polygons = np.array([(*polygon, *(-1,) * (width - len(polygon))) for polygon in solid.polygons], np.int64)
    return MeshShape(np.asarray(solid.points, np.float64), polygons, np.zeros(len(polygons), np.int64), (name,), name, {})


def tile(rng: Generator, width: float = 10.0) -> MeshShape:
    """A flat box or prism whose upper side is at y = 0, with up to four small blocks on it."""
    thick = width * rng.uniform(*FLAT)
    sides = int(rng.choice([4, 6, 8, 12]))
    flat = box(width, thick, width * rng.uniform(0.4, 1)) if sides == 4 else prism(circle(sides, width / 2), thick)
    parts = solid_shape(flat.move(y=-thick), "tile")
    for _ in range(rng.integers(5) if rng.random() < 0.6 else 0):
        size = width * rng.uniform(0.03, 0.2, 3)
        x, z = rng.uniform(-0.3, 0.3, 2) * width
        parts = join_shapes(parts, solid_shape(box(*size).move(x, -0.1 * size[1], z), "block"))
    return parts


def arrange(shape: MeshShape, other: MeshShape, rng: Generator) -> MeshShape:
    """A shape on a tile, a shape next to another one, or a tile alone, in equal shares."""
    low, high = shape.vertices.min(0), shape.vertices.max(0)
    wide = float((high - low)[[0, 2]].max())
    choice = rng.integers(3)
    if choice == 0:
        return replace(tile(rng), family=shape.family)
    if choice == 1:
        ground = tile(rng, wide * rng.uniform(1.0, 1.8))
        below = np.array([(low + high)[0] / 2, low[1], (low + high)[2] / 2])
        return join_shapes(shape, replace(ground, vertices=ground.vertices + below))
    scale = wide / float(np.ptp(other.vertices, 0)[[0, 2]].max()) * rng.uniform(0.3, 1.2)
    scaled = other.vertices * scale
    axis = int(rng.choice([0, 2]))
    step = np.zeros(3)
    step[axis] = high[axis] - scaled[:, axis].min() + wide * rng.uniform(0, 0.3)
    step[1] = low[1] - scaled[:, 1].min()
    return join_shapes(shape, replace(other, vertices=scaled + step))

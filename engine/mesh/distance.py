"""Chamfer and Hausdorff distance between a result and its reference, each with its sampling floor.

Two finite samples of the same surface are not at distance zero. This floor is measured with every distance, because it can be most of
a published number: typical meshes have a chamfer floor of 0.08 at 1,024 points and of 0.02 at 16,384 points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.mesh import surface
from engine.mesh.frame import SIDE
from engine.mesh.nearest import Nearest
from engine.mesh.random_streams import COMPARE, generator

Shape = tuple[np.ndarray, np.ndarray] | np.ndarray  # (vertices [V, 3], faces [F, 3]), or points [N, 3] or [N, 6] with unit normals
COUNT = 16_384


def distance(result: Shape, reference: Shape, count: int = COUNT, seed: int = 0) -> dict[str, Any]:
    """Distances between two shapes in the same coordinates, in units where the longest side of the reference's box is 1.9.

    chamfer            : mean distance of a's points to b plus mean distance of b's points to a; plain distances, not squared
    added, missed      : the two halves of chamfer: from the result's points to the reference, and from the reference's to the result
    hausdorff          : the largest of all these distances
    floor, floor_hausdorff : the same between two samples of the reference alone; no result can be expected to be lower
    normal_consistency : mean |n . n of the nearest point|, both ways; None if a side has no normals
    floor_normal_consistency : the same of the reference alone
    count              : points drawn from each side
    sampled            : "surface" or "cloud", the kind of the reference; the comparison and the floor use disjoint random points of a
                         cloud, so that `count` is at most half the size of the cloud
    All distances are None if either side is a mesh without area, or a cloud of fewer than two points.
    """
    random = generator(COMPARE, seed)
    count = min(count, available_points(reference), available_points(result))
    measures: dict[str, Any] = {
        "chamfer": None, "added": None, "missed": None, "hausdorff": None, "floor": None, "floor_hausdorff": None,
        "normal_consistency": None, "floor_normal_consistency": None, "count": count,
        "sampled": "surface" if isinstance(reference, tuple) else "cloud",
    }  # fmt: skip
    if not count:
        return measures
    scale = SIDE / float(np.ptp(box_points(reference), 0).max())
    one, other = _two_samples(reference, count, random)
    drawn_result = _two_samples(result, count, random)[0]
    measures["added"], measures["missed"], measures["hausdorff"], measures["normal_consistency"] = _compare(drawn_result, one, scale)
    there, back, measures["floor_hausdorff"], measures["floor_normal_consistency"] = _compare(other, one, scale)
    return measures | {"chamfer": measures["added"] + measures["missed"], "floor": there + back}


def available_points(shape: Shape) -> int:
    """Number of points that can be drawn twice: any number from a surface, half of a cloud."""
    if not isinstance(shape, tuple):
        return len(shape) // 2
    vertices, faces = shape
    return 2**62 if len(faces) and surface.areas(vertices, faces).sum() > 0 else 0


def box_points(shape: Shape) -> np.ndarray:
    """The points [N, 3] that define the shape's box: the vertices of its faces, or all points."""
    if not isinstance(shape, tuple):
        return shape[:, :3]
    vertices, faces = shape
    return np.asarray(vertices, np.float64)[np.unique(faces)]


def _two_samples(shape: Shape, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two samples [count, 3 or 6] that share no point."""
    if isinstance(shape, tuple):
        return surface.draw(*shape, count, random), surface.draw(*shape, count, random)
    chosen = random.permutation(len(shape))[: 2 * count]
    return shape[chosen[:count]], shape[chosen[count:]]


def _compare(a: np.ndarray, b: np.ndarray, scale: float) -> tuple[float, float, float, float | None]:
    """Mean distance from a to b and from b to a, Hausdorff distance and normal consistency of two samples."""
    to_b, nearest_b = Nearest(b[:, :3]).query(a[:, :3])
    to_a, nearest_a = Nearest(a[:, :3]).query(b[:, :3])
    consistency = None
    if a.shape[1] == b.shape[1] == 6:
        there = np.abs(np.einsum("nc,nc->n", a[:, 3:], b[nearest_b, 3:])).mean()
        back = np.abs(np.einsum("nc,nc->n", b[:, 3:], a[nearest_a, 3:])).mean()
        consistency = float(there + back) / 2
    return float(to_b.mean()) * scale, float(to_a.mean()) * scale, float(max(to_b.max(), to_a.max())) * scale, consistency

"""Splits polygons of any shape, and strips, into triangles.

A fan from one corner suits every polygon that contains it: all convex ones, and many others. Quads take the better diagonal. Other
polygons, such as an L or a face with a hole and the bridge to it, are cut into ears (see ears.py).
"""

from __future__ import annotations

import numpy as np

from engine.mesh.formats.ears import EXACT, clip
from engine.mesh.formats.source import Source
from engine.mesh.surface import is_simple

CHUNK = 2**17  # corners per batch
FLAT = 1e-6  # a triangle below this share of its polygon's area has none
SHORTER = 1 - 1e-6  # a diagonal is shorter if the difference exceeds rounding


def triangles(source: Source, points: np.ndarray, corners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Triangles of polygons in the order of the file, int64 [F, 3]: n - 2 of a polygon with n corners, none below three corners.

    Quads are split by the diagonal inside them, convex ones by the shorter diagonal (the first corner's if they are equal); other
    polygons as fans around their first corner if these stay inside, else by ear clipping in the plane of their Newell normal. A
    polygon with a corner that is not finite is a fan around it, so that it can be dropped as a whole. Triangles with a repeated
    vertex from polygons of four or more corners are left out. Indices are not checked; if one is out of range, all
    polygons are fans.

    points  : [V, 3] the vertices
    corners : vertex indices of all polygons, one after the other
    sizes   : [P] number of corners of each
    """
    sizes, corners = np.asarray(sizes, np.int64), np.asarray(corners).astype(np.int64)
    counts = np.maximum(sizes - 2, 0)
    source.check_faces(int(counts.sum()))
    if not len(sizes) or sizes.max() <= 3:
        return corners.reshape(-1, 3) if (sizes == 3).all() else corners[_fans(sizes)]
    if corners.min() < 0 or corners.max() >= len(points):
        return corners[_fans(sizes)]
    ends = np.cumsum(sizes)
    cuts = np.flatnonzero(np.diff(ends // CHUNK)) + 1
    parts = zip(np.split(corners, ends[cuts - 1]), np.split(sizes, cuts))
    return np.concatenate([_split(source, points, *part) for part in parts])


def strips(indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Triangles of strips, int64 [F, 3]: every other one is reversed. Degenerate ones, which only join strips, are left out.

    indices : vertex indices of all strips, one after the other
    sizes   : [S] number of indices of each
    """
    sizes = np.asarray(sizes, np.int64)
    counts = np.maximum(sizes - 2, 0)
    step = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    at, odd = np.repeat(np.cumsum(sizes) - sizes, counts) + step, step % 2
    faces = np.asarray(indices).astype(np.int64)[np.stack([at, at + 1 + odd, at + 2 - odd], 1)]
    return faces[is_simple(faces)]


def _fans(sizes: np.ndarray, apexes: np.ndarray | None = None) -> np.ndarray:
    """Places of the corners of fans, int64 [F, 3], in the concatenated corners of polygons.

    apexes : [P] the corner of each polygon that all its triangles share; None: the first
    """
    counts = np.maximum(sizes - 2, 0)
    start = np.repeat(np.cumsum(sizes) - sizes, counts)
    step = np.arange(len(start)) - np.repeat(np.cumsum(counts) - counts, counts)
    around = np.stack([np.zeros_like(step), step + 1, step + 2], 1)
    if apexes is not None:
        around = (around + np.repeat(apexes, counts)[:, None]) % np.repeat(sizes, counts)[:, None]
    return start[:, None] + around


def _split(source: Source, points: np.ndarray, corners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Triangles of polygons whose indices are all valid."""
    xyz = np.asarray(points, np.float64)[corners]
    starts, counts = np.cumsum(sizes) - sizes, np.maximum(sizes - 2, 0)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    apexes = _broken_corners(xyz, starts, sizes, owner)
    quads = np.flatnonzero((sizes == 4) & (apexes < 0))
    if len(quads):
        apexes[quads] = _diagonals(xyz[starts[quads][:, None] + np.arange(4)])
    concave = np.zeros(len(sizes), bool) if sizes.max() <= 4 else _are_left_by_fans(xyz, sizes) & (apexes < 0)
    places = _fans(sizes, np.maximum(apexes, 0))
    if concave.any():
        rows = np.repeat(concave, counts)
        chosen = np.repeat(concave, sizes)
        places[rows] = np.flatnonzero(chosen)[clip(source, xyz[chosen], sizes[concave])]
    faces = corners[places]
    return faces[is_simple(faces) | np.repeat(sizes <= 3, counts)]


def _broken_corners(xyz: np.ndarray, starts: np.ndarray, sizes: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """First non-finite corner of each polygon, -1 if there is none; int64 [P]."""
    broken = np.full(len(sizes), -1, np.int64)
    at = np.flatnonzero(~np.isfinite(xyz).all(1))[::-1]
    broken[owner[at]] = at - starts[owner[at]]
    return broken


def _diagonals(quads: np.ndarray) -> np.ndarray:
    """First corner of the better diagonal of each quad [Q, 4, 3]: 0 or 1.

    A diagonal is inside if both its triangles turn as the quad does. If both diagonals are, the shorter one is better; if none is
    (corners in a line, a crossed quad), the one whose smaller triangle is larger.
    """
    one, other = quads[:, 2] - quads[:, 0], quads[:, 3] - quads[:, 1]
    normal = np.cross(one, other)
    whole = _dot(normal, normal)

    def smaller(a: int, b: int, c: int, d: int) -> np.ndarray:
        """The smaller of the triangles abc and acd, as a share of the quad."""
        left = np.cross(quads[:, b] - quads[:, a], quads[:, c] - quads[:, a])
        right = np.cross(quads[:, c] - quads[:, a], quads[:, d] - quads[:, a])
        return np.minimum(_dot(left, normal), _dot(right, normal)) / np.maximum(whole, np.finfo(float).tiny)

    first, second = smaller(0, 1, 2, 3), smaller(1, 2, 3, 0)
    both = (first > FLAT) & (second > FLAT)
    return np.where(both, _dot(other, other) < SHORTER * _dot(one, one), second > first + FLAT).astype(np.int64)


def _are_left_by_fans(xyz: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """True for polygons of five or more corners whose fan around the first corner leaves the polygon or has triangles without area.

    Triangles without area are correct in polygons with thousands of corners: cutting ears there would only cost speed.
    """
    counts, index = np.maximum(sizes - 2, 0), _fans(sizes)
    owner = np.repeat(np.arange(len(sizes)), counts)
    crosses = np.cross(xyz[index[:, 1]] - xyz[index[:, 0]], xyz[index[:, 2]] - xyz[index[:, 0]])
    normal = np.stack([np.bincount(owner, crosses[:, k], len(sizes)) for k in range(3)], 1)
    shares = _dot(crosses, normal[owner])
    whole, smallest = _dot(normal, normal), np.full(len(sizes), np.inf)
    has = counts > 0
    smallest[has] = np.minimum.reduceat(shares, (np.cumsum(counts) - counts)[has])
    return (sizes > 4) & (smallest < np.where(sizes <= EXACT, FLAT / np.maximum(sizes, 1), -FLAT) * whole)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("nc,nc->n", a, b)

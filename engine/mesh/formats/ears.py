"""Ear clipping: triangles of polygons that need not be convex, many polygons at a time.

An ear is a corner whose triangle lies inside the polygon: it turns as the polygon does, contains no other corner, and its third side
crosses none of the polygon's. The best shaped ear goes first, until three corners are left. Only the two corners next to an ear change
by cutting it, so that a polygon of n corners takes n steps of n operations.

Corners may coincide: a face with a hole is written as one polygon that runs to the hole and back over a bridge.
A polygon that crosses itself has no correct triangulation; it is cut as well as possible.
"""

from __future__ import annotations

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.source import Source

EXACT = 1_000  # maximum corners of a polygon; above, nearly correct triangles stay
WORK = 2e8  # maximum operations on corners: half a minute
STEP = 20_000  # operations on corners that take as long as the overhead of a call
CHUNK = 2**17  # corners per batch
NOTHING = 1e-12  # share of the polygon's box below which a triangle has no area
SPIKE, FLAT, BLOCKED, OUTSIDE = 2.0, -1.0, -2.0, -4.0  # ranks of corners that are not ears; ears have 0 .. 1


def clip(source: Source, xyz: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Places in `xyz` of the triangles of polygons, int64 [sum of sizes - 2, 3], polygon after polygon.

    Raises BadFile for polygons that would take minutes.

    xyz   : [sum of sizes, 3] finite corners, polygon after polygon
    sizes : [P] number of corners of each, 4 or more
    """
    starts, counts = np.cumsum(sizes) - sizes, sizes - 2
    out = np.empty((counts.sum(), 3), np.int64)
    targets = np.cumsum(counts) - counts
    groups = _groups(sizes)
    if sum(sizes[group].max() * (sizes[group].sum() + STEP) for group in groups) > WORK:
        raise BadFile(
            f"{source.name} has concave faces with too many corners to split them (the largest has {sizes.max():,}); "
            "split its faces into triangles first."
        )
    for group in groups:
        corners = np.minimum(np.arange(sizes[group].max()), sizes[group][:, None] - 1) + starts[group][:, None]
        cut = _clip(_project(xyz[corners]), sizes[group])
        for polygon, (start, target, count) in enumerate(zip(starts[group], targets[group], counts[group])):
            out[target : target + count] = start + cut[polygon, :count]
    return out


def _groups(sizes: np.ndarray) -> list[np.ndarray]:
    """Groups of polygons to cut together: similar sizes, and not too many corners in total."""
    order = np.argsort(sizes, kind="stable")
    groups, first = [], 0
    while first < len(order):
        smallest = sizes[order[first]]
        last = np.searchsorted(sizes[order], smallest + smallest // 4, side="right")
        last = min(last, first + max(CHUNK // int(smallest), 1))
        groups.append(order[first:last])
        first = last
    return groups


def _project(xyz: np.ndarray) -> np.ndarray:
    """Polygons [P, n, 3] in the plane of their Newell normals, counter-clockwise, [P, n, 2]; equal corners stay exactly equal."""
    xyz = xyz - xyz[:, :1]
    normal = np.cross(xyz, np.roll(xyz, -1, 1)).sum(1)
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    normal = np.where(length > 0, normal / np.where(length > 0, length, 1), [0.0, 0.0, 1.0])
    axis = np.eye(3)[np.abs(normal).argmin(1)]
    right = np.cross(axis, normal)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    up = np.cross(normal, right)
    return np.stack([sum(xyz[:, :, k] * side[:, None, k] for k in range(3)) for side in (right, up)], -1)


def _clip(xy: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Triangles [P, n - 2, 3] of polygons [P, n, 2] whose first `sizes` corners count; the rows after a polygon's own are not set."""
    count, most = xy.shape[:2]
    out = np.zeros((count, most - 2, 3), np.int64)
    ring = Ring(xy, sizes)
    rows = np.arange(count)
    for step in range(most - 2):
        rows = rows[sizes[rows] - 2 > step]
        ear = ring.rank[rows].argmax(1)
        out[rows, step] = np.stack([ring.before[rows, ear], ear, ring.after[rows, ear]], 1)
        ring.remove(rows, ear)
    return out


class Ring:
    """The remaining corners of polygons, linked in circles, and the rank of each as an ear.

    before, after : [P, n] the neighbours of a corner
    rank          : [P, n] in 0 .. 1 by its shape for an ear, SPIKE to cut first, below 0 for other corners, -inf for those that are cut
    """

    def __init__(self, xy: np.ndarray, sizes: np.ndarray):
        """xy : [P, n, 2] corners, counter-clockwise; sizes : [P] number of corners that count"""
        count, most = xy.shape[:2]
        places, rows = np.arange(most), np.arange(count)
        self.xy, self.left = xy, places < sizes[:, None]
        self.before = np.where(places > 0, places - 1, sizes[:, None] - 1)
        self.after = np.where(places < sizes[:, None] - 1, places + 1, 0)
        self.nothing = NOTHING * np.prod(np.ptp(xy, axis=1), 1)
        # Only a concave corner can be the first to reach into an ear, and cutting ears makes no new ones
        corners = (xy[rows[:, None], self.before], xy, xy[rows[:, None], self.after])
        reflex = self.left & (_turn(*corners) <= self.nothing[:, None])
        self.reflex = np.argsort(~reflex, 1, kind="stable")[:, : reflex.sum(1).max()]
        self.obstacles = xy[rows[:, None], self.reflex]
        self.touching = _have_coinciding(xy, self.left)
        self.rank = np.full((count, most), -np.inf)
        for place in range(most):
            some = rows[sizes > place]
            self.rank[some, place] = self._ranks(some, np.full(len(some), place))

    def remove(self, rows: np.ndarray, ear: np.ndarray) -> None:
        """Cuts one corner from each of the polygons `rows`."""
        before, after = self.before[rows, ear], self.after[rows, ear]
        self.after[rows, before], self.before[rows, after] = after, before
        self.left[rows, ear], self.rank[rows, ear] = False, -np.inf
        rows, changed = np.concatenate([rows, rows]), np.concatenate([before, after])
        self.rank[rows, changed] = self._ranks(rows, changed)

    def _ranks(self, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Ranks [rows] of one corner of each of the polygons `rows`."""
        a, b, c = (self.xy[rows, at] for at in (self.before[rows, places], places, self.after[rows, places]))
        area = _turn(a, b, c)
        longest = np.maximum(np.maximum(_square(b - a), _square(c - b)), _square(a - c))
        shape = area / np.maximum(longest, np.finfo(float).tiny)
        rank = np.where(area < 0, OUTSIDE + np.maximum(shape, -1), shape)
        flat = np.abs(area) <= self.nothing[rows]
        rank[flat] = np.where(((b - a) * (c - b)).sum(-1) > 0, FLAT, SPIKE)[flat]  # out and back, or one place twice: no area
        convex = np.flatnonzero(~flat & (rank > 0))
        if len(convex):
            blocked = convex[self._are_blocked(rows[convex], a[convex, None], b[convex, None], c[convex, None])]
            rank[blocked] = BLOCKED - shape[blocked]
        return rank

    def _are_blocked(self, rows: np.ndarray, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """True where another corner lies in the triangle abc or on its sides, or where corners coincide and a side crosses ac."""
        xy = self.obstacles[rows]
        inside = (_turn(c, a, xy) >= 0) & (_turn(a, b, xy) >= 0) & (_turn(b, c, xy) >= 0)
        inside &= self.left[rows[:, None], self.reflex[rows]]
        inside &= ~((xy == a).all(-1) | (xy == b).all(-1) | (xy == c).all(-1))
        blocked = inside.any(1)
        some = np.flatnonzero(~blocked & self.touching[rows])  # there, a side may pass between coinciding corners
        if len(some):
            blocked[some] = self._are_crossed(rows[some], a[some], c[some])
        return blocked

    def _are_crossed(self, rows: np.ndarray, a: np.ndarray, c: np.ndarray) -> np.ndarray:
        """True where a side of the polygon crosses ac."""
        xy, following = self.xy[rows], self.after[rows]
        ends, across = np.take_along_axis(xy, following[..., None], 1), _turn(c, a, xy)
        crossing = across * np.take_along_axis(across, following, 1) < 0
        return (self.left[rows] & crossing & (_turn(xy, ends, a) * _turn(xy, ends, c) < 0)).any(1)


def _have_coinciding(xy: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """True for polygons [P, n, 2] with two corners in one place; only corners with `counted` [P, n] count."""
    x, y = np.where(counted, xy[..., 0], np.inf), xy[..., 1]
    order = np.lexsort((y, x), 1)
    x, y = np.take_along_axis(x, order, 1), np.take_along_axis(y, order, 1)
    return ((x[:, 1:] == x[:, :-1]) & (y[:, 1:] == y[:, :-1]) & np.isfinite(x[:, 1:])).any(1)


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Twice the signed area of the triangles abc [..., 2], positive if they are counter-clockwise."""
    return (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (c[..., 0] - a[..., 0])


def _square(a: np.ndarray) -> np.ndarray:
    return (a * a).sum(-1)

"""Closed solids with clean topology: boxes, prisms, lathes and sweeps, all of them lofts through rings of points.

A solid keeps its polygons; triangles are made at the very end (`split` in research/worlds/families/family.py), because the diagonal of a
quad depends on its final place. +Y is up, +Z is the front; polygons are counter-clockwise seen from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.mesh.rotation import rotation

Outline = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Solid:
    """Points float64 [V, 3] and convex polygons, each a tuple of at least three indices."""

    points: np.ndarray
    polygons: tuple[tuple[int, ...], ...]

    def move(self, x: float = 0, y: float = 0, z: float = 0) -> Solid:
        """A translated copy."""
        return Solid(self.points + np.array([x, y, z], float), self.polygons)

    def scale(self, x: float = 1, y: float = 1, z: float = 1) -> Solid:
        """A copy scaled about the origin by positive factors."""
        return Solid(self.points * np.array([x, y, z], float), self.polygons)

    def mirror(self) -> Solid:
        """The mirror image at x = 0, with polygons reversed so that they still face outwards."""
        return Solid(self.points * np.array([-1.0, 1, 1]), tuple(polygon[::-1] for polygon in self.polygons))

    def rotate(self, degrees: float, axis: str = "y") -> Solid:
        """A copy rotated about an axis through the origin, right-handed: about y the front (+z) turns to the right (+x)."""
        return Solid(self.points @ rotation(degrees, axis).T, self.polygons)


def join(solids: Iterable[Solid]) -> Solid:
    """Several solids as one; nothing is welded."""
    points, polygons, count = [], [], 0
    for solid in solids:
        points.append(solid.points)
        polygons += [tuple(i + count for i in polygon) for polygon in solid.polygons]
        count += len(solid.points)
    return Solid(np.concatenate(points), tuple(polygons))


# --- the loft, and solids made with it --------------------------------------------------------------------------------


def loft(rings: Sequence[np.ndarray], closed: bool = False) -> Solid:
    """The skin through rings float [n, 3], each counter-clockwise seen from the last ring; one point is a tip.

    closed: the last ring is joined to the first; otherwise both ends get a polygon as a lid.
    """
    starts = np.cumsum([0] + [len(ring) for ring in rings]).tolist()
    sides = max(len(ring) for ring in rings)
    polygons: list[tuple[int, ...]] = []
    if not closed and len(rings[0]) > 1:
        polygons.append(tuple(range(sides - 1, -1, -1)))
    for lower in range(len(rings) - (not closed)):
        upper = (lower + 1) % len(rings)
        a, b = starts[lower], starts[upper]
        for i in range(sides):
            j = (i + 1) % sides
            if len(rings[lower]) == 1:
                polygons.append((a, b + j, b + i))
            elif len(rings[upper]) == 1:
                polygons.append((a + i, a + j, b))
            else:
                polygons.append((a + i, a + j, b + j, b + i))
    if not closed and len(rings[-1]) > 1:
        polygons.append(tuple(range(starts[-2], starts[-1])))
    return Solid(np.concatenate([np.reshape(ring, (-1, 3)) for ring in rings]).astype(float), tuple(polygons))


def circle(sides: int, radius: float = 1, phase: float = 0) -> np.ndarray:
    """A regular polygon (x, z), float [sides, 2], from the front towards the right; phase in steps of a side."""
    angle = 2 * np.pi * (np.arange(sides) + phase) / sides
    return radius * np.stack([np.sin(angle), np.cos(angle)], 1)


def level(outline: Outline | np.ndarray, y: float, scale: float = 1) -> np.ndarray:
    """An outline (x, z) at a height, float [n, 3]."""
    flat = np.asarray(outline, float) * scale
    return np.stack([flat[:, 0], np.full(len(flat), float(y)), flat[:, 1]], 1)


def rectangle(width: float, depth: float) -> np.ndarray:
    """An outline (x, z) about the origin, float [4, 2]."""
    x, z = width / 2, depth / 2
    return np.array([(-x, z), (x, z), (x, -z), (-x, -z)])


def box(width: float, height: float, depth: float, x: float = 0, y: float = 0, z: float = 0, taper: float = 1) -> Solid:
    """A box with (x, y, z) at the middle of its lower side; `taper` scales the upper side."""
    outline = rectangle(width, depth)
    return loft([level(outline, 0), level(outline, height, taper)]).move(x, y, z)


def roof(width: float, height: float, depth: float, y: float = 0, ridge: float = 0) -> Solid:
    """A pyramid (ridge 0), or a hipped roof with a ridge of this length in x: two hips and two slopes over a rectangle."""
    base = level(rectangle(width, depth), 0)
    if not ridge:
        return loft([base, np.array([[0, height, 0]])]).move(y=y)
    points = np.concatenate([base, [[-ridge / 2, height, 0], [ridge / 2, height, 0]]])
    return Solid(points, ((3, 2, 1, 0), (0, 1, 5, 4), (1, 2, 5), (2, 3, 4, 5), (3, 0, 4))).move(y=y)


def prism(outline: Outline | np.ndarray, height: float, y: float = 0, taper: float = 1) -> Solid:
    """A convex outline (x, z), counter-clockwise seen from above, raised from y."""
    return loft([level(outline, y), level(outline, y + height, taper)])


def extrude(outline: Outline | np.ndarray, depth: float) -> Solid:
    """A convex outline (x, y), counter-clockwise seen from the front, from z = -depth/2 to depth/2."""
    flat = np.asarray(outline, float)
    return loft([np.column_stack([flat, np.full(len(flat), z)]) for z in (-depth / 2, depth / 2)])


def extrude_side(outline: Outline | np.ndarray, width: float) -> Solid:
    """A convex outline (z, y), forwards and up, counter-clockwise, from x = -width/2 to width/2."""
    return extrude(outline, width).rotate(-90)


def cut_out(points: Outline | np.ndarray, pieces: Sequence[tuple[int, ...]], depth: float) -> Solid:
    """A flat shape (x, y) that need not be convex and may have holes, from z = -depth/2 to depth/2, made of convex pieces.

    pieces : indices of points, counter-clockwise seen from the front; edges that belong to a single piece become sides
    """
    flat = np.asarray(points, float)
    count = len(flat)
    edges = [(a, b) for piece in pieces for a, b in zip(piece, piece[1:] + piece[:1], strict=True)]
    polygons = [polygon for piece in pieces for polygon in (piece[::-1], tuple(i + count for i in piece))]
    polygons += [(a, b, b + count, a + count) for a, b in edges if (b, a) not in edges]
    return Solid(np.concatenate([np.column_stack([flat, np.full(count, z)]) for z in (-depth / 2, depth / 2)]), tuple(polygons))


def tray(outline: Outline | np.ndarray, height: float, wall: float, floor: float = 0.75, flare: float = 1) -> Solid:
    """An open box or tub on y = 0 over a convex outline (x, z); its upper rim is wider by `flare`, its wall about `wall` thick."""
    flat = np.asarray(outline, float)
    inner = 1 - wall / np.abs(flat).max(0)
    return loft([level(flat, 0), level(flat * flare, height), level(flat * inner * flare, height), level(flat * inner, floor)])


def lathe(profile: Sequence[tuple[float, float]], sides: int, phase: float = 0) -> Solid:
    """A profile (radius, y), from bottom to top on the outside, revolved about the y axis; radius 0 is a tip.

    It may continue down the inside, as for a cup.
    """
    return loft([level(circle(sides, radius, phase), y) if radius else np.array([[0, y, 0]]) for radius, y in profile])


def ball(radius: float, sides: int, y: float, squash: float = 1, phase: float = 0) -> Solid:
    """A round body of three rings and two tips, its lowest point at y."""
    rings = [(0, -1), (0.75, -0.65), (1, 0), (0.75, 0.65), (0, 1)]
    return lathe([(r * radius, y + (h + 1) * radius * squash) for r, h in rings], sides, phase)


def sweep(path: Sequence[tuple[float, float]], outline: Outline | np.ndarray) -> Solid:
    """An outline (across, z) along a bent line (x, y) in the front plane; rings bisect the bends."""
    points = np.asarray(path, float)
    step = np.diff(points, axis=0)
    step /= np.linalg.norm(step, axis=1, keepdims=True)
    tangent = np.concatenate([step[:1], step[:-1] + step[1:], step[-1:]])
    # A ring at a bend is wider by 1 / cos(half the bend), so that the arms keep their thickness.
    length = np.linalg.norm(tangent, axis=1, keepdims=True)
    widen = np.where(np.arange(len(points))[:, None] % (len(points) - 1) == 0, 1, 2 / length)
    side = np.stack([tangent[:, 1], -tangent[:, 0]], 1) / length * widen
    flat = np.asarray(outline, float)
    rings = []
    for place, across in zip(points, side):
        ring = np.zeros((len(flat), 3))
        ring[:, :2] = place + flat[:, :1] * across
        ring[:, 2] = flat[:, 1]
        rings.append(ring)
    return loft(rings)


# --- repeating --------------------------------------------------------------------------------------------------------


def pair(solid: Solid) -> Solid:
    """A solid and its mirror image at x = 0."""
    return join([solid, solid.mirror()])


def four(solid: Solid) -> Solid:
    """A solid in all four quarters: mirrored at x = 0, and both turned by 180 degrees."""
    both = pair(solid)
    return join([both, both.rotate(180)])


def ring_of(solid: Solid, count: int, start: float = 0) -> Solid:
    """Copies turned about the y axis, the first by `start` degrees."""
    return join(solid.rotate(start + 360 * i / count) for i in range(count))


def row(solid: Solid, count: int, step: float) -> Solid:
    """Copies side by side in x, centred on the solid's own place."""
    return join(solid.move(x=(i - (count - 1) / 2) * step) for i in range(count))


def icosphere(subdivisions: int) -> Solid:
    """A sphere of radius 1 made of triangles: 20, 80, 320."""
    golden = (1 + 5**0.5) / 2
    points = [(-1, golden, 0), (1, golden, 0), (-1, -golden, 0), (1, -golden, 0), (0, -1, golden), (0, 1, golden),
              (0, -1, -golden), (0, 1, -golden), (golden, 0, -1), (golden, 0, 1), (-golden, 0, -1), (-golden, 0, 1)]  # fmt: skip
    faces = [(0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11), (1, 5, 9), (5, 11, 4), (11, 10, 2), (10, 7, 6), (7, 1, 8),
             (3, 9, 4), (3, 4, 2), (3, 2, 6), (3, 6, 8), (3, 8, 9), (4, 9, 5), (2, 4, 11), (6, 2, 10), (8, 6, 7), (9, 8, 1)]  # fmt: skip
    vertices = [np.array(p) / np.linalg.norm(p) for p in points]
    for _ in range(subdivisions):
        middle: dict[tuple[int, int], int] = {}

        def between(a: int, b: int, middle: dict[tuple[int, int], int] = middle) -> int:
            key = (min(a, b), max(a, b))
            if key not in middle:
                point = vertices[a] + vertices[b]
                middle[key] = len(vertices)
                vertices.append(point / np.linalg.norm(point))
            return middle[key]

        finer = []
        for a, b, c in faces:
            ab, bc, ca = between(a, b), between(b, c), between(c, a)
            finer += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        faces = finer
    return Solid(np.array(vertices), tuple(faces))

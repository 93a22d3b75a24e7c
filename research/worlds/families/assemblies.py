"""Assemblies: random compositions of simple solids, mostly symmetrical, for the variety outside the other families."""

from __future__ import annotations

import numpy as np
from numpy.random import PCG64, Generator

from research.worlds.families.family import Parts, ShapeFamily
from research.worlds.solids import Solid, ball, box, circle, extrude, extrude_side, four, join, lathe, pair, prism, ring_of

MOST = 200  # triangles; a part that would exceed it is left out
PLANS = {  # places of the parts; the first one is always used, so every plan shows
    "mirror": ("sides", "top", "front", "sides"),
    "legs": ("legs", "top", "sides", "front"),
    "ring": ("around", "top", "around", "top"),
    "stack": ("top", "top", "sides", "top"),
    "free": ("aside", "top", "aside", "front"),
}
KINDS = ("box", "prism", "frustum", "cone", "ball", "wedge")


def _solid(kind: str, width: float, height: float, depth: float, sides: int, r: Generator) -> Solid:
    """A simple solid on y = 0 that fills a box of this size about the y axis."""
    if kind == "box":
        return box(width, height, depth)
    if kind == "wedge":
        outline = [
            [(-0.5, 0), (0.5, 0), (0, 1)], [(-0.5, 0), (0.5, 0), (0.25, 1), (-0.25, 1)], [(-0.5, 0), (0.5, 0), (0.5, 0.5), (-0.5, 1)],
            [(-0.5, 0), (0.5, 0), (0.5, 0.625), (0.25, 1), (-0.25, 1), (-0.5, 0.625)],
        ][r.integers(4)]  # fmt: skip
        return (extrude if r.random() < 0.5 else extrude_side)(outline, 1).scale(width, height, depth)
    if kind == "ball":
        return ball(0.5, sides, 0).scale(width, height, depth)
    if kind == "cone":
        return lathe([(0.5, 0), (0, 1)], sides).scale(width, height, depth)
    if kind == "frustum":
        taper = float(r.choice([0.5, 0.625, 0.75]))
        low = box(1, 1, 1, taper=taper) if r.random() < 0.5 else prism(circle(sides, 0.5), 1, taper=taper)
        return (low if r.random() < 0.75 else low.rotate(180, "z").move(y=1)).scale(width, height, depth)
    upright = prism(circle(sides, 0.5, 0.5), 1)
    lie = r.integers(3)
    lying = upright if lie == 0 else upright.move(y=-0.5).rotate(90, "z" if lie == 1 else "x").move(y=0.5)
    return lying.scale(width, height, depth)


def _size(r: Generator, low: float, high: float) -> float:
    """A multiple of half a unit."""
    return float(r.integers(round(low * 2), round(high * 2) + 1)) / 2


def _triangles(solid: Solid) -> int:
    return sum(len(polygon) - 2 for polygon in solid.polygons)


def _meet(solids: list[Solid]) -> bool:
    """True if tokens cannot distinguish corners of two solids, or of two copies in one, because they are too close."""
    points = join(solids).points
    cell = np.ptp(points, axis=0).max() / 96
    return len(np.unique(np.round(points / cell), axis=0)) < len(points)


def _place_part(place: str, last: Solid, sides: int, r: Generator) -> Solid:
    """A part placed relative to the previous part, sunk a little into it."""
    low, high = last.points.min(0), last.points.max(0)
    wide, tall, deep = high - low
    middle = (low + high) / 2
    plain = ("box", "frustum", "cone", "wedge", "prism")
    if place == "top":
        one = _solid(str(r.choice(KINDS)), *(_size(r, 1.5, max(2, wide)), _size(r, 1, 5), _size(r, 1.5, max(2, deep))), sides, r)
        return one.move(middle[0], high[1] - 0.25 - 0.0625 * one.points[:, 1].max(), middle[2])
    if place == "legs":
        thin = _size(r, 1, 2)
        leg = _solid(str(r.choice(("box", "frustum", "prism"))), thin, _size(r, 2, 6), thin, 4, r)
        leg = leg.move(y=low[1] - leg.points[:, 1].max() + 0.5)
        return four(leg.move(max(wide * 0.375, thin * 0.625), 0, max(deep * 0.375, thin * 0.625)))
    kind = str(r.choice(plain))
    size = _size(r, 1, max(1.5, wide * 0.75)), _size(r, 1, max(1.5, tall)), _size(r, 1, max(1.5, deep * 0.75))
    height = low[1] + tall * float(r.choice([0, 0.25, 0.5])) + 0.125
    if place == "front":
        return _solid(kind, *size, sides, r).move(middle[0], height, high[2] + size[2] * 0.25)
    if place == "around":
        count = int(r.choice([3, 4, 6]))
        one = _solid(kind, min(size[0], wide * 0.5), size[1], size[2], 4, r)
        return ring_of(one.move(0, height, max(wide, deep) / 2 + size[2] * 0.1875), count)
    one = _solid(kind, *size, sides if place == "aside" else min(sides, 6), r).move(high[0] + size[0] * 0.25, height, middle[2])
    return pair(one) if place == "sides" else one


def assembly(plan: str, core: str, parts: int, sides: int, seed: int) -> Parts:
    """A core and parts placed around it by a plan: at both sides, on legs, in a ring, on top of each other or freely."""
    r = Generator(PCG64([seed, parts, list(PLANS).index(plan), KINDS.index(core)]))
    body = _solid(core, _size(r, 4, 10), _size(r, 3, 9), _size(r, 4, 10), sides, r)
    solids, last = {"core": body}, body
    for i in range(parts - 1):
        place = PLANS[plan][0 if i == 0 else r.integers(4)]
        one = _place_part(place, last if place == "top" else body, sides, r)
        if sum(map(_triangles, solids.values())) + _triangles(one) > MOST or _meet([*solids.values(), one]):
            continue
        solids[f"part {i + 1}"] = one
        last = one if place == "top" else last
    return solids


ASSEMBLIES = (
    ShapeFamily(
        assembly,
        {"plan": tuple(PLANS), "core": ("box", "prism", "frustum", "ball", "wedge"), "parts": (3, 4, 5), "sides": (6, 8),
         "seed": range(2**20)},
        ({"plan": ("ring",), "core": ("ball", "frustum")}, {"core": ("wedge",), "parts": (4,)}),
    ),
)  # fmt: skip

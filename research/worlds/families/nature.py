"""Families of plants, stones and animals."""

from __future__ import annotations

import numpy as np
from numpy.random import PCG64, Generator

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    Solid,
    ball,
    box,
    circle,
    extrude_side,
    icosphere,
    join,
    lathe,
    level,
    loft,
    pair,
    prism,
    rectangle,
    ring_of,
    sweep,
    tray,
)


def tree(kind: str, sides: int, trunk: float, crown: float, tiers: int) -> Parts:
    """A pine of cones, a round crown, a tall poplar or a tree with a large and a small crown."""
    parts = {"trunk": prism(circle(6, 1), trunk + 1, taper=0.75)}
    if kind == "pine":
        cones = [lathe([(crown * (1 - 0.25 * i), trunk + 3 * i), (0, trunk + 3 * i + 4.5)], sides) for i in range(tiers)]
        parts["crown"] = join(cones)
    elif kind == "poplar":
        tall = 4 + 2 * tiers
        parts["crown"] = lathe([(crown * 0.5, trunk), (crown * 0.75, trunk + tall * 0.375), (0, trunk + tall)], sides)
    elif kind == "round":
        parts["crown"] = ball(crown, sides, trunk)
    else:
        parts["crown"] = join([ball(crown * 0.75, sides, trunk), ball(crown * 0.5, sides, trunk - 0.5).move(crown, tiers, 0)])
    return parts


def mushroom(cap: str, sides: int, stem: float, radius: float, small: bool) -> Parts:
    """A stem under a dome, a cone or a flat cap, perhaps with a smaller one next to it."""
    outer = {
        "dome": [(radius, stem - 0.5), (radius, stem + 0.75), (radius * 0.625, stem + 2.5), (0, stem + 3.25)],
        "cone": [(radius, stem - 0.5), (radius * 0.375, stem + 3), (0, stem + 5)],
        "flat": [(radius * 0.5, stem), (radius, stem + 1), (radius, stem + 2), (0, stem + 2.5)],
    }[cap]
    whole = {"stem": lathe([(1.5, 0), (1, stem * 0.5), (1, stem + 0.5)], sides), "cap": lathe(outer, sides)}
    if small:
        whole["small"] = join(mushroom(cap, 6, stem, radius, False).values()).scale(0.5, 0.5, 0.5).move(radius + 1, 0, 1)
    return whole


def cactus(sides: int, height: float, left: float, right: float, pot: bool) -> Parts:
    """A column with up to two bent arms (0 = no arm, else the height of the elbow), perhaps in a pot."""
    ground = 2.5 if pot else 0
    column = lathe([(1.25, 0), (1.5, height * 0.5), (1, height - 1), (0, height)], sides)
    parts = {"column": column.move(y=ground)}
    outline = circle(4, 0.75)
    for side, elbow in (("left", left), ("right", right)):
        if elbow:
            path = [(0.5, height * elbow), (3, height * elbow), (3, height * elbow + 3)]
            # The path runs to the right and then up.
            arm = sweep(path, outline)
            parts[side] = (arm.mirror() if side == "left" else arm).move(y=ground)
    if pot:
        parts["pot"] = lathe([(1.75, 0), (2.5, 3)], sides)
    return parts


def crystal(sides: int, count: int, height: float, lean: float, base: bool) -> Parts:
    """A tall pointed prism with smaller ones leaning away around it."""
    main = lathe([(1.25, 0), (1.75, height - 3), (0, height)], sides)
    small = lathe([(0.75, 0), (1, height * 0.375), (0, height * 0.5)], sides).rotate(lean, "x").move(z=1.25, y=0.25)
    parts = {"main": main, "others": ring_of(small, count, 30)}
    if base:
        parts["base"] = lathe([(3.5, -0.5), (2.5, 1)], 6)
    return parts


def rock(variant: int, flat: float, wide: float) -> Parts:
    """A sphere of 80 triangles with its vertices pushed in or out by steps, cut flat below."""
    sphere = icosphere(1)
    pushes = np.array([0.75, 0.875, 1.0, 1.125])[Generator(PCG64(variant)).integers(4, size=len(sphere.points))]
    points = sphere.points * pushes[:, None] * 6 * np.array([wide, flat, 1])
    return {"rock": Solid(np.maximum(points, [-99, -3.5 * flat, -99]), sphere.polygons)}


def gem(cut: str, sides: int, radius: float, crown: float, pavilion: float) -> Parts:
    """A cut stone: a brilliant on its point, a long step cut, a double point, or a drop."""
    if cut == "drop":
        r, tall = radius * 0.75, pavilion + crown + 2
        return {"gem": lathe([(0, 0), (r * 0.75, 1), (r, tall * 0.375), (r * 0.625, tall * 0.625), (0, tall)], sides)}
    if cut == "double":
        return {"gem": lathe([(0, 0), (radius * 0.75, pavilion), (radius * 0.75, pavilion + crown), (0, 2 * pavilion + crown)], sides)}
    low = [(0, 0)] if cut == "brilliant" else [(radius * 0.375, 0), (radius * 0.75, pavilion * 0.375)]
    stone = lathe([*low, (radius, pavilion * 0.75), (radius, pavilion * 0.75 + 0.5), (radius * 0.625, pavilion * 0.75 + crown)], sides, 0.5)
    return {"gem": stone.scale(1.5, 1, 1) if cut == "step" else stone}


def fish(length: float, tall: float, wide: float, tail: str, dorsal: str) -> Parts:
    """A fish that looks to the front, with a tail, fins and eyes."""
    z = length / 2
    outline = np.array([(0, -1), (1, -0.375), (1, 0.375), (0, 1), (-1, 0.375), (-1, -0.375)])

    def ring(place: float, height: float, breadth: float) -> np.ndarray:
        flat = outline * [breadth / 2, height / 2]
        return np.column_stack([flat, np.full(6, place)])

    back = [ring(-z, tall * 0.1875, wide * 0.25), ring(-z * 0.25, tall * 0.75, wide * 0.875)]
    head = [ring(z * 0.375, tall, wide), ring(z * 0.875, tall * 0.4375, wide * 0.5), np.array([[0, 0, z]])]
    body = loft([*back, *head])
    end = -z + 0.5
    if tail == "fork":
        blade = extrude_side([(end, -0.25), (end, 0.75), (end - 3.5, tall * 0.5), (end - 2.5, tall * 0.25)], 0.5)
        fins = join([blade, Solid(blade.points * [1, -1, 1], tuple(p[::-1] for p in blade.polygons))])
    else:
        fins = extrude_side([(end, -0.5), (end, 0.5), (end - 3, tall * 0.5), (end - 3, -tall * 0.5)], 0.5)
    parts = {"body": body, "tail": fins}
    top = {"long": [(z * 0.5, tall * 0.375), (z * 0.25, tall * 0.75), (-z * 0.5, tall * 0.5), (-z * 0.5, tall * 0.25)],
           "high": [(z * 0.5, tall * 0.375), (-z * 0.125, tall * 0.9375), (-z * 0.25, tall * 0.3125)]}[dorsal]  # fmt: skip
    parts["dorsal fin"] = extrude_side(top, 0.5)
    side = extrude_side([(0, -0.5), (0, 0.5), (-2.5, 0.75), (-2.5, -1.25)], 0.5).rotate(-40).move(wide * 0.4375, -tall * 0.125, z * 0.4375)
    parts["side fins"] = pair(side)
    parts["eyes"] = pair(box(0.75, 0.75, 0.75, wide * 0.375, tall * 0.0625, z * 0.6875))
    return parts


def plant(pot: str, sides: int, leaves: int, length: float, lean: float, bloom: bool) -> Parts:
    """Leaves around a stem in a pot, perhaps with a flower on top."""
    parts = {
        "round": {"pot": lathe([(1.75, 0), (2.75, 3), (2.25, 3), (1.75, 2.25)], sides)},
        "square": {"pot": tray(rectangle(4, 4), 3, 0.5, 2.25, 1.25)},
        "rimmed": {"pot": lathe([(1.75, 0), (2.5, 2.5)], sides), "rim": lathe([(3, 2), (3, 3)], sides)},
    }[pot]
    middle = np.array([(0.875, 0), (0, -0.25), (-0.875, 0), (0, 0.25)])
    leaf = loft([np.array([[0, 0, 0]]), level(middle, length * 0.5), np.array([[0, length, 0.0]])]).rotate(lean, "x")
    parts["leaves"] = ring_of(leaf.move(y=2.25, z=0.375), leaves)
    parts["stem"] = prism(circle(4, 0.375), length * 0.75, 2)
    if bloom:
        parts["bloom"] = lathe([(0, length * 0.75 + 1.5), (1.75, length * 0.75 + 2.5), (0.75, length * 0.75 + 3)], sides)
    return parts


NATURE = (
    ShapeFamily(
        tree,
        {"kind": ("pine", "poplar", "round", "double"), "sides": (6, 8), "trunk": (3, 4, 6), "crown": (3, 4, 5), "tiers": (2, 3)},
        ({"kind": ("pine",), "crown": (5,)}, {"kind": ("round", "double"), "trunk": (4,), "sides": (8,)}),
    ),
    ShapeFamily(
        mushroom,
        {"cap": ("dome", "cone", "flat"), "sides": (6, 8), "stem": (4, 6, 8), "radius": (3, 4, 5), "small": YES_NO},
        ({"cap": ("cone",), "stem": (6,)}, {"radius": (5,), "small": (True,), "sides": (6,)}),
    ),
    ShapeFamily(
        cactus,
        {"sides": (6, 8), "height": (8, 10, 12), "left": (0, 0.25, 0.5), "right": (0, 0.375, 0.5), "pot": YES_NO},
        ({"left": (0.5,), "right": (0,)}, {"height": (10,), "pot": (True,), "sides": (8,)}),
    ),
    ShapeFamily(
        crystal,
        {"sides": (5, 6), "count": (2, 3, 4), "height": (8, 10, 12), "lean": (25, 40), "base": YES_NO},
        ({"count": (3,), "lean": (40,)}, {"height": (12,), "base": (True,), "sides": (6,)}),
    ),
    ShapeFamily(
        rock,
        {"variant": tuple(range(40)), "flat": (0.625, 0.75, 1), "wide": (1, 1.25)},
        ({"variant": (0, 1, 2, 3)}, {"flat": (1,), "wide": (1.25,)}),
    ),
    ShapeFamily(
        gem,
        {"cut": ("brilliant", "step", "double", "drop"), "sides": (6, 8), "radius": (4, 5, 6), "crown": (1.5, 2, 3), "pavilion": (5, 6)},
        ({"cut": ("step",), "radius": (5,)}, {"cut": ("brilliant", "double"), "crown": (2,), "pavilion": (6,)}),
    ),
    ShapeFamily(
        fish,
        {"length": (10, 12, 14), "tall": (4, 5, 6), "wide": (2, 3), "tail": ("fork", "fan"), "dorsal": ("long", "high")},
        ({"tail": ("fork",), "tall": (5,)}, {"length": (14,), "wide": (3,), "dorsal": ("long",)}),
    ),
    ShapeFamily(
        plant,
        {"pot": ("round", "square", "rimmed"), "sides": (6, 8), "leaves": (5, 6, 8), "length": (5, 6, 8), "lean": (30, 45),
         "bloom": YES_NO},
        ({"pot": ("square",), "leaves": (6,)}, {"length": (6,), "lean": (45,), "bloom": (True,)}),
    ),
)  # fmt: skip

"""Families of tools, weapons and parts of machines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    Solid,
    ball,
    box,
    circle,
    extrude,
    join,
    lathe,
    level,
    loft,
    pair,
    prism,
    rectangle,
)


def gear(teeth: int, radius: float, thickness: float, bore: float, hub: bool, upright: bool) -> Parts:
    """A toothed wheel with a bore, lying or standing; the hub is a collar around the bore."""
    step = 2 * np.pi / teeth

    def point(distance: float, turn: float, y: float) -> tuple[float, float, float]:
        return distance * np.sin(turn * step), y, distance * np.cos(turn * step)

    points, polygons = [], []
    for i in range(teeth):
        for distance, turn in ((radius - 2, -0.25), (radius, -0.125), (radius, 0.125), (radius - 2, 0.25), (bore, 0)):
            points += [point(distance, i + turn, 0), point(distance, i + turn, thickness)]
    for i in range(teeth):
        a, b = 10 * i, 10 * ((i + 1) % teeth)
        ring = [a, a + 2, a + 4, a + 6, b]  # root, tip, tip, root, the next tooth's root: lower points, the upper ones follow each
        polygons += [(p, q, q + 1, p + 1) for p, q in pairwise(ring)]
        polygons.append((a + 9, b + 9, b + 8, a + 8))  # the bore faces the axis
        for face in ((a, a + 2, a + 4, a + 6), (a, a + 6, a + 8), (a + 6, b, b + 8, a + 8)):
            polygons += [face[::-1], tuple(p + 1 for p in face)]
    wheel = Solid(np.array(points), tuple(polygons))
    parts = {"wheel": wheel}
    if hub:
        wide, y = bore + 1.25, thickness + 1
        parts["hub"] = loft(
            [level(circle(teeth, r), h) for r, h in ((wide, -1), (wide, y), (bore + 0.25, y), (bore + 0.25, -1))], closed=True
        )
    return {name: solid.rotate(90, "x") for name, solid in parts.items()} if upright else parts


def sword(kind: str, length: float, grip: float, guard: str, pommel: bool) -> Parts:
    """A sword or a dagger, its point upwards: a narrow, a broad or a curved blade on a guard and a grip."""
    parts = {"grip": prism(circle(6, 0.625), grip + 0.5)}
    y, long = grip, length * (0.5 if kind == "dagger" else 1)
    if kind == "curved":
        sizes = [(0.0, 1.0, 0.0), (0.375, 1.0, 0.5), (0.75, 0.75, 1.75)]
        section = np.array([(1, 0), (0, -0.5), (-1, 0), (0, 0.5)])
        rings = [level(section * [wide, 1] + [shift, 0], y + long * at) for at, wide, shift in sizes]
        parts["blade"] = loft([*rings, np.array([[3.5, y + long, 0]])])
    else:
        wide = {"narrow": 1.0, "broad": 1.75, "dagger": 1.25}[kind]
        section = np.array([(wide, 0), (0, -0.5), (-wide, 0), (0, 0.5)])
        parts["blade"] = loft([level(section, y), level(section, y + long, 0.875), np.array([[0, y + long + 2, 0]])])
    if guard == "cross":
        parts["guard"] = box(5.5, 1, 1.5, y=grip - 0.25)
    elif guard == "wings":
        parts["guard"] = pair(extrude([(0, 0), (2.5, 1), (3, 2), (0, 1.25)], 1.25).move(-0.125, grip - 0.5))
    else:
        parts["guard"] = prism(circle(6, 1.875), 0.75, grip - 0.25)
    if pommel:
        parts["pommel"] = ball(1, 4, -0.75)
    return parts


def axe(kind: str, handle: float, size: float, edge: float, band: bool) -> Parts:
    """An axe with one blade or two, or a pickaxe, its head above."""
    parts = {"handle": prism(circle(6, 0.75), handle, taper=0.875)}
    y = handle - 2
    if kind == "pick":
        point = extrude([(0, -0.75), (size + 1, -2), (size * 0.5, 0.5), (0, 0.75)], 1)
        parts["head"] = pair(point.move(-0.125, y))
        parts["socket"] = box(1.75, 2.25, 2, y=y - 1.125)
        if band:
            parts["band"] = prism(circle(6, 1.125), 1)
        return parts
    blade = extrude([(0, -1), (size * 0.75, -edge), (size, -edge * 0.5), (size, edge * 0.5), (size * 0.75, edge), (0, 1)], 0.75)
    blade = blade.move(0.25, y)
    parts["head"] = pair(blade) if kind == "double" else blade
    parts["socket"] = box(2, 2.5, 2, 0 if kind == "double" else -0.25, y - 1.25)
    if kind == "single":
        parts["back"] = box(1.25, 1.5, 1.25, -1.5, y - 0.75)
    if band:
        parts["band"] = prism(circle(6, 1.125), 1)
    return parts


def hammer(kind: str, handle: float, size: float, thick: float, cap: bool) -> Parts:
    """A claw hammer, a mallet with a round head or a war hammer with a spike, its head above."""
    parts = {"handle": prism(circle(6, 0.625), handle + 0.5)}
    y = handle
    if kind == "claw":
        parts["head"] = box(size * 0.5, thick, thick, -size * 0.1875, y - thick / 2)
        parts["face"] = lathe([(thick * 0.5, 0), (thick * 0.75, 0.5), (thick * 0.75, 1.5)], 6).rotate(90, "z").move(-size * 0.375, y)
        claw = extrude([(0, -thick * 0.375), (size * 0.5, -thick), (size * 0.5, -thick * 0.75), (0, thick * 0.375)], 0.75)
        parts["claw"] = join(claw.move(0, y, s * thick * 0.375) for s in (-1, 1))
    elif kind == "mallet":
        parts["head"] = lathe([(thick, -size / 2), (thick, size / 2)], 8, 0.5).rotate(90, "z").move(0, y)
        parts["rings"] = pair(lathe([(thick + 0.375, -0.5), (thick + 0.375, 0.5)], 8, 0.5).rotate(90, "z").move(size * 0.375, y))
    else:
        parts["head"] = box(size * 0.5, thick * 1.5, thick * 1.5, -size * 0.125, y - thick * 0.75)
        parts["face"] = box(1.25, thick * 2, thick * 2, -size * 0.375, y - thick)
        parts["spike"] = loft([level(rectangle(thick, thick), 0), np.array([[0, size * 0.5, 0]])]).rotate(-90, "z").move(size * 0.0625, y)
    if cap:
        parts["pommel"] = prism(circle(6, 1.125), 1)
    return parts


def shield(kind: str, width: float, height: float, boss: str, thick: float) -> Parts:
    """A shield that stands with its face to the front: round, square, pointed below or long and pointed; a rim, and a boss or bands."""
    x, y = width / 2, (width if kind == "round" else height) / 2
    outline = {
        "round": [(px * x, pz * x) for px, pz in circle(8, 1, 0.5)],
        "square": [(-x, -y), (x, -y), (x, y), (-x, y)],
        "heater": [(0, -y), (x * 0.75, -y * 0.5), (x, 0), (x, y), (-x, y), (-x, 0), (-x * 0.75, -y * 0.5)],
        "kite": [(0, -y * 1.25), (x * 0.875, 0), (x * 0.875, y * 0.5), (x * 0.375, y),
                 (-x * 0.375, y), (-x * 0.875, y * 0.5), (-x * 0.875, 0)],
    }[kind]  # fmt: skip
    if kind == "round":
        outline = outline[::-1]  # a circle has the opposite direction in this plane
    flat = np.array(outline)

    def ring(scale: float, z: float) -> np.ndarray:
        return np.column_stack([flat * scale, np.full(len(flat), z)])

    half = thick / 2
    dome = [] if boss == "cross" else [ring(0.5, thick)]  # bands lie on a flat board
    frame = [ring(1, -half - 0.25), ring(1, half + 0.25), ring(0.875, half + 0.25), ring(0.875, -half - 0.25)]
    parts = {"board": loft([ring(0.9375, -half), ring(0.9375, half), *dome]), "rim": loft(frame, closed=True)}
    if boss == "boss":
        parts["boss"] = lathe([(1.75, 0), (1.25, 1), (0, 1.5)], 6).rotate(90, "x").move(z=thick - 0.25)
    elif boss == "cross":
        parts["bands"] = join([box(width * 0.9375, 1.25, 1, 0, y * 0.125, half), box(1.25, y * 1.5, 0.75, 0, -y * 0.625, half)])
    else:
        parts["grip"] = box(1, 4, 1.25, 0, -2, -thick / 2 - 0.5)
    return parts


IMPLEMENTS = (
    ShapeFamily(
        gear,
        {"teeth": (6, 7, 8), "radius": (7, 8), "thickness": (2, 3), "bore": (2, 3), "hub": YES_NO, "upright": YES_NO},
        ({"teeth": (7,), "upright": (True,)}, {"thickness": (3,), "hub": (True,), "bore": (3,)}),
    ),
    ShapeFamily(
        sword,
        {"kind": ("narrow", "broad", "curved", "dagger"), "length": (12, 14, 16), "grip": (3, 4, 5), "guard": ("cross", "wings", "disc"),
         "pommel": YES_NO},
        ({"kind": ("broad",), "guard": ("wings",)}, {"length": (14,), "grip": (4,), "pommel": (True,)}),
    ),
    ShapeFamily(
        axe,
        {"kind": ("single", "double", "pick"), "handle": (10, 12, 14), "size": (3, 4, 5), "edge": (2, 2.5), "band": YES_NO},
        ({"kind": ("double",), "handle": (12,)}, {"size": (4,), "band": (True,), "kind": ("single", "pick")}),
    ),
    ShapeFamily(
        hammer,
        {"kind": ("claw", "mallet", "war"), "handle": (8, 10, 12), "size": (5, 6, 8), "thick": (1.5, 2), "cap": YES_NO},
        ({"kind": ("mallet",), "handle": (10,)}, {"size": (6,), "thick": (2,), "cap": (True,)}),
    ),
    ShapeFamily(
        shield,
        {"kind": ("round", "square", "heater", "kite"), "width": (8, 9, 10), "height": (10, 12), "boss": ("boss", "cross", "grip"),
         "thick": (1, 1.5)},
        ({"kind": ("heater",), "boss": ("boss",)}, {"kind": ("kite", "square"), "width": (9,), "thick": (1.5,)}),
    ),
)  # fmt: skip

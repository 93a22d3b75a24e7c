"""Families of buildings and their parts."""

from __future__ import annotations

import numpy as np

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    box,
    circle,
    cut_out,
    extrude,
    extrude_side,
    four,
    join,
    lathe,
    level,
    loft,
    pair,
    rectangle,
    ring_of,
    roof,
    row,
)


def house(width: float, depth: float, storeys: int, top: str, windows: int, chimney: bool) -> Parts:
    """A body with a door and windows in front under a gable (either way), hipped or flat roof."""
    height = 4 + 3.5 * (storeys - 1)
    front = depth / 2
    parts = {"body": box(width, height, depth), "door": box(2, 3, 0.75, -width / 4 if windows else 0, 0, front)}
    if windows:
        panes = [box(1.5, 1.5, 0.75, width / 4, 1.5, front)]
        panes += [box(1.5, 1.5, 0.75, x, 5, front) for x in ((-width / 4, width / 4) if windows == 2 else (0,)) if storeys == 2]
        parts["windows"] = join(panes)
    eaves = height - 0.25
    if top == "gable":
        parts["roof"] = extrude([(-width / 2 - 1, 0), (width / 2 + 1, 0), (0, width / 2)], depth + 1.5).move(y=eaves)
    elif top == "side":
        parts["roof"] = extrude_side([(-depth / 2 - 1, 0), (depth / 2 + 1, 0), (0, depth / 2)], width + 1.5).move(y=eaves)
    elif top == "hip":
        parts["roof"] = roof(width + 1.5, 4, depth + 1.5, eaves, max(width - depth, 0))
    else:
        parts["roof"] = box(width + 1, 1, depth + 1, y=eaves)
    if chimney:
        parts["chimney"] = box(1.25, 4, 1.25, width / 4, height, -depth / 4)
    return parts


def tower(sides: int, radius: float, height: float, top: str, flare: bool, door: bool) -> Parts:
    """A round keep, perhaps with a flared foot, under a cone, battlements or a dome."""
    head = radius + 1
    foot = [(radius + 1, 0), (radius, 2)] if flare else [(radius, 0)]
    body = lathe([*foot, (radius, height), (head, height + 1), (head, height + 3)], sides)
    parts = {"body": body}
    if top == "cone":
        parts["roof"] = lathe([(head + 0.75, height + 2.75), (0, height + 9)], sides)
    elif top == "dome":
        parts["roof"] = lathe([(head - 0.5, height + 2.75), (head - 1, height + 5), (0, height + 6.5)], sides)
    else:
        parts["battlements"] = ring_of(box(1.5, 1.75, 1.5, 0, height + 2.75, head - 1.125), 4 if sides % 4 == 0 else 6)
    if door:
        inner = radius * np.cos(np.pi / sides) if sides == 6 else radius
        parts["door"] = box(2, 3.5, 1, 0, 0, inner + (0.75 if flare else 0))
    return parts


def stairs(steps: int, rise: float, run: float, width: float, rail: str) -> Parts:
    """Steps as blocks side by side, rising to the back, perhaps with rails on posts."""
    length = steps * run
    # Each block reaches a little under the next one, so that neighbours share no edge.
    blocks = [
        box(width, rise * (i + 1), run + 0.25, z=length / 2 - run * (i + 0.5) - (0.125 if i + 1 < steps else 0)) for i in range(steps)
    ]
    parts = {"steps": join(blocks)}
    if rail != "none":
        x, low, high = width / 2 - 0.5, length / 2 - run / 2, -length / 2 + run / 2
        posts = [box(0.5, 4, 0.5, x, rise * 0.75, low), box(0.5, 4, 0.5, x, rise * (steps - 0.25), high)]
        y_low, y_high = rise * 0.75 + 3.75, rise * (steps - 0.25) + 3.75
        bar = extrude_side([(high, y_high), (low, y_low), (low, y_low + 0.75), (high, y_high + 0.75)], 0.75)
        side = join([*posts, bar.move(x=x)])
        parts["rails"] = pair(side) if rail == "both" else side
    return parts


def fence(posts: int, gap: float, height: float, tip: str, rails: int) -> Parts:
    """Posts, pointed or flat, on two or three rails."""
    outline = rectangle(1, 1)
    rings = [level(outline, 0), level(outline, height - 1)]
    rings += [np.array([[0, height, 0]])] if tip == "pointed" else [level(outline, height, 0.5)] if tip == "bevelled" else []
    bars = [box((posts - 1) * gap + 2, 0.5, 0.5, y=height * (i + 1) / (rails + 1.5)) for i in range(rails)]
    return {"posts": row(loft(rings), posts, gap), "rails": join(bars)}


def pillar(sides: int, height: float, radius: float, base: str, capital: str, shaft: str) -> Parts:
    """A column on a base under a capital; the shaft is straight, thinner above, or broken off and without a capital."""
    wide = radius + 1
    foot = {
        "square": box(2 * wide, 1, 2 * wide),
        "stepped": join([box(2 * wide + 1, 1, 2 * wide + 1), box(2 * wide - 0.5, 1, 2 * wide - 0.5, y=0.75)]),
        "round": lathe([(wide, 0), (wide, 0.75), (radius + 0.25, 1.5)], sides),
    }[base]
    if shaft == "broken":
        ring = level(circle(sides, radius), height * 0.625)
        ring[:, 1] += np.linspace(-1, 1, sides) ** 2 * 2.5
        tip = np.array([[0, height * 0.625, 0]])
        return {"base": foot, "shaft": loft([level(circle(sides, radius), 0.5), ring, tip])}
    thin = radius * (0.75 if shaft == "tapered" else 1)
    parts = {"base": foot, "shaft": lathe([(radius, 0.5), (thin, height)], sides)}
    if capital == "slab":
        parts["capital"] = box(2 * thin + 1.5, 1, 2 * thin + 1.5, y=height - 0.25)
    elif capital == "flared":
        parts["capital"] = lathe([(thin, height - 0.75), (thin + 1.25, height + 0.75)], sides)
        parts["slab"] = box(2 * thin + 2.5, 0.75, 2 * thin + 2.5, y=height + 0.5)
    else:
        parts["ring"] = lathe([(thin + 0.5, height - 1.5), (thin + 0.5, height - 0.75)], sides)
        parts["capital"] = box(2 * thin + 2, 1.25, 2 * thin + 2, y=height - 0.25)
    return parts


def _opening(kind: str, width: float, height: float) -> tuple[list[tuple[float, float]], list[tuple[int, ...]]]:
    """Points and convex pieces of the front of a wall with an opening in its middle."""
    x = width / 2
    if kind == "window":
        a, low, high = 1.5, height * 0.375, height * 0.75
        points = [(-x, 0), (x, 0), (x, height), (-x, height), (-a, low), (a, low), (a, high), (-a, high)]
        return points, [(0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)]
    if kind == "door":
        a, high = 1.75, height * 0.6875
        points = [(-x, 0), (-a, 0), (-a, high), (a, high), (a, 0), (x, 0), (x, height), (-x, height)]
        return points, [(0, 1, 2, 7), (2, 3, 6, 7), (3, 4, 5, 6)]
    a, high = 2, height * 0.5
    arch = [(-a, high), (-a * 0.625, high + 1.25), (0, high + 1.75), (a * 0.625, high + 1.25), (a, high)]
    points = [(-x, 0), (-a, 0), *arch, (a, 0), (x, 0), (x, height), (-x, height)]
    return points, [(0, 1, 2, 10), (2, 3, 10), (3, 4, 10), (4, 9, 10), (4, 5, 9), (5, 6, 9), (6, 7, 8, 9)]


def wall(opening: str, width: float, height: float, thick: float, top: str, leaf: bool) -> Parts:
    """A piece of wall, closed or with a window, a door or an arch; its leaf is a pane with bars or a door."""
    if opening == "none":
        parts = {"wall": box(width, height, thick)}
        parts["stones"] = join(box(2.5, 1, thick + 0.5, *place) for place in ((-width / 4, height * 0.25), (width * 0.1875, height * 0.5)))
        if leaf:  # a pilaster at each end
            parts["leaf"] = pair(box(1.5, height, thick + 1, width / 2))
    else:
        parts = {"wall": cut_out(*_opening(opening, width, height), thick)}
    if opening == "window":
        sill = box(4.5, 0.5, thick + 1.5, y=height * 0.375 - 0.25)
        parts["sill"] = sill
        if leaf:
            parts["leaf"] = join(
                [box(0.5, height * 0.375 + 0.5, 0.5, y=height * 0.375 - 0.25), box(3.5, 0.5, 0.5, y=height * 0.5625 - 0.25)]
            )
    elif opening == "door" and leaf:
        knob = box(0.5, 0.5, 1, 1, height * 0.3125, 0.25)
        parts["leaf"] = join([box(3.75, height * 0.6875 + 0.25, 0.5), knob])
    elif opening == "arch" and leaf:
        parts["leaf"] = join(box(0.5, height * 0.75, 0.5, x) for x in (-1.25, 0, 1.25))
    if top == "battlements":
        parts["top"] = row(box(width / 5, 1.75, thick + 0.5, y=height - 0.25), 3, width * 0.4)
    elif top == "coping":
        parts["top"] = box(width + 0.5, 0.75, thick + 1, y=height - 0.25)
    return parts


def bridge(kind: str, length: float, width: float, height: float, rail: str) -> Parts:
    """A way from left to right: a stone arch, a humped arch, or planks on piles; with walls, rails on posts or nothing at its sides."""
    x, z = length / 2, width / 2 - 0.25
    rise = {"arch": 0.0, "hump": 2.0, "planks": 0.0}[kind]

    def above(at: float) -> float:
        """The height of the deck there."""
        return height + rise * (1 - (at / x) ** 2)

    places = [-x, -x * 0.5, 0, x * 0.5, x]
    parts = {}
    if kind == "planks":
        parts["deck"] = box(length, 0.75, width, y=height - 0.75)
        parts["piles"] = join(four(box(1, height, 1, x * at, 0, z - 0.5)) for at in (0.375, 0.875))
        parts["beam"] = box(length - 1, 0.75, width * 0.5, y=height - 1.25)
    else:
        a = x * 0.625
        inside = [(-a, 0), (-a * 0.75, height * 0.5), (0, height * 0.75), (a * 0.75, height * 0.5), (a, 0)]
        upper = [(at, above(at)) for at in places]
        points = [(-x, 0), *inside, (x, 0), *upper[::-1]]
        parts["deck"] = cut_out(points, [(0, 1, 2, 10, 11), (2, 3, 9, 10), (3, 4, 8, 9), (4, 5, 6, 7, 8)], width)
    if rail == "none":
        return parts
    low, high = (-0.5, 1.5) if rail == "walls" else (1.75, 2.5)
    stops = places if rise else [-x, x]
    band = [(at, above(at) + low) for at in stops] + [(at, above(at) + high) for at in stops]
    count = len(stops)
    sides = [cut_out(band, [(i, i + 1, count + i + 1, count + i) for i in range(count - 1)], 0.75 if rail == "walls" else 0.5)]
    if rail == "posts":
        sides += [box(0.75, 3.25, 0.75, at * 0.9375, above(at) - 0.5) for at in places[::2]]
    parts["rails"] = join(side.move(z=s * z) for side in sides for s in (-1, 1))
    return parts


def well(sides: int, radius: float, height: float, top: str, bucket: bool) -> Parts:
    """A round wall with a hole; above it a beam on two posts, perhaps with a roof and a bucket on a rope."""
    outside = [(radius, 0), (radius, height - 0.75), (radius + 0.5, height - 0.75), (radius + 0.5, height)]
    parts = {"wall": lathe([*outside, (radius - 1, height), (radius - 1, 0.75)], sides)}
    reach, high = radius - 0.25, height + 6
    parts["posts"] = pair(box(0.75, 7, 0.75, reach, height - 0.75))
    parts["beam"] = box(2 * reach + (2 if top == "beam" else 0.25), 0.75, 0.75, y=high - 1.5)
    if top == "gable":
        deep = radius + 0.5
        parts["roof"] = extrude_side([(-deep, 0), (deep, 0), (0, deep * 0.75)], 2 * radius + 2).move(y=high - 0.25)
    elif top == "hip":
        parts["roof"] = roof(2 * radius + 2.5, 3.5, 2 * radius + 1, high - 0.25)
    if bucket:
        parts["bucket"] = join([lathe([(0.75, height + 1), (1, height + 2.5)], 6), box(0.5, 3, 0.5, y=height + 2.25)])
    return parts


BUILDINGS = (
    ShapeFamily(
        house,
        {"width": (8, 10, 12), "depth": (6, 8), "storeys": (1, 2), "top": ("gable", "side", "hip", "flat"), "windows": (0, 1, 2),
         "chimney": YES_NO},
        ({"top": ("hip",), "storeys": (2,)}, {"width": (10,), "chimney": (True,), "windows": (0,)}),
    ),
    ShapeFamily(
        tower,
        {"sides": (6, 8), "radius": (3, 4), "height": (8, 12, 16), "top": ("cone", "battlements", "dome"), "flare": YES_NO,
         "door": YES_NO},
        ({"top": ("dome",), "height": (12,)}, {"radius": (4,), "flare": (True,), "sides": (8,), "door": (True,)}),
    ),
    ShapeFamily(
        stairs,
        {"steps": (3, 4, 5, 6), "rise": (1, 1.5), "run": (1.5, 2), "width": (4, 6, 8), "rail": ("none", "one", "both")},
        ({"steps": (5,), "rail": ("one",)}, {"width": (6,), "rise": (1.5,), "run": (2,)}),
    ),
    ShapeFamily(
        fence,
        {"posts": (3, 4, 5), "gap": (2, 3), "height": (5, 7), "tip": ("flat", "bevelled", "pointed"), "rails": (2, 3)},
        ({"posts": (4,), "tip": ("bevelled",)}, {"gap": (3,), "height": (7,), "rails": (3,)}),
    ),
    ShapeFamily(
        pillar,
        {"sides": (6, 8), "height": (10, 12, 14), "radius": (1.5, 2), "base": ("square", "stepped", "round"),
         "capital": ("slab", "flared", "ring"), "shaft": ("straight", "tapered", "broken")},
        ({"base": ("stepped",), "height": (12,)}, {"radius": (2,), "shaft": ("tapered",), "sides": (8,)}),
    ),
    ShapeFamily(
        wall,
        {"opening": ("none", "window", "door", "arch"), "width": (10, 12, 14), "height": (8, 9, 10), "thick": (1.5, 2),
         "top": ("plain", "coping", "battlements"), "leaf": YES_NO},
        ({"opening": ("window",), "width": (12,)}, {"top": ("battlements",), "height": (9,), "thick": (2,)}),
    ),
    ShapeFamily(
        bridge,
        {"kind": ("arch", "hump", "planks"), "length": (14, 16, 20), "width": (5, 6), "height": (4, 5), "rail": ("none", "walls", "posts")},
        ({"kind": ("hump",), "rail": ("posts",)}, {"length": (16,), "width": (6,), "height": (5,)}),
    ),
    ShapeFamily(
        well,
        {"sides": (6, 8), "radius": (3, 3.5, 4), "height": (3, 4), "top": ("beam", "gable", "hip"), "bucket": YES_NO},
        ({"top": ("hip",), "height": (4,)}, {"radius": (3.5,), "bucket": (True,), "sides": (8,)}),
    ),
)  # fmt: skip

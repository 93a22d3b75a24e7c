"""Families of containers."""

from __future__ import annotations

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    Solid,
    ball,
    box,
    extrude,
    extrude_side,
    four,
    join,
    lathe,
    level,
    loft,
    pair,
    rectangle,
    sweep,
    tray,
)


def bottle(kind: str, sides: int, radius: float, body: float, neck: float) -> Parts:
    """A turned bottle: wine, flask, jar or vase."""
    thin, top = radius * 0.375, body + neck
    profile = {
        "wine": [(radius, 0), (radius, body), (thin, body + radius), (thin, top + radius)],
        "flask": [(radius, 0), (radius * 1.25, body * 0.25), (thin, body), (thin, top), (thin * 1.5, top + 1)],
        "jar": [(radius * 0.75, 0), (radius, 1), (radius, body), (radius * 0.75, body + 1)],
        "vase": [(radius * 0.625, 0), (radius, body * 0.5), (thin, body), (radius * 0.75, top)],
    }[kind]
    parts = {"glass": lathe(profile, sides)}
    if kind in ("wine", "jar"):
        wide = thin if kind == "wine" else radius * 0.75
        parts["lid"] = lathe([(wide + 0.5, profile[-1][1] - 0.75), (wide + 0.5, profile[-1][1] + 0.5)], sides)
    return parts


def mug(sides: int, radius: float, height: float, handle: str, wall: float) -> Parts:
    """A cup with a wall and a handle on its right."""
    cup = lathe([(radius * 0.875, 0), (radius, height), (radius - wall, height), (radius * 0.875 - wall, 1)], sides)
    low, high, out = height * 0.25, height * 0.75, radius + 2
    inside = radius * 0.9
    path = {
        "square": [(inside, high), (out, high), (out, low), (inside * 0.95, low)],
        "round": [(inside, high), (out - 0.5, high), (out, height * 0.5), (out - 0.5, low), (inside * 0.95, low)],
        "drop": [(inside, high), (out, high), (inside * 0.95, low)],
    }[handle]
    return {"cup": cup, "handle": sweep(path, rectangle(0.75, 1))}


def barrel(sides: int, height: float, radius: float, bulge: float, bands: int) -> Parts:
    """Bulging staves with bands."""
    wide = radius * bulge
    staves = lathe([(radius, 0), (wide, height * 0.375), (wide, height * 0.625), (radius, height)], sides)
    places = {1: (0.5,), 2: (0.125, 0.875), 3: (0.125, 0.5, 0.875)}[bands]
    hoops = []
    for place in places:
        here = wide if place == 0.5 else radius + (wide - radius) / 3
        hoops.append(lathe([(here + 0.5, height * place - 0.5), (here + 0.5, height * place + 0.5)], sides))
    return {"staves": staves, "bands": join(hoops)}


def chest(width: float, depth: float, height: float, lid: str, bands: bool, feet: bool) -> Parts:
    """A box with a flat, sloped or rounded lid, a lock and perhaps bands and feet."""
    half = depth / 2
    outline = {
        "flat": [(-half, 0), (half, 0), (half, 1.5), (-half, 1.5)],
        "sloped": [(-half, 0), (half, 0), (half * 0.5, 2.5), (-half * 0.5, 2.5)],
        "round": [(-half, 0), (half, 0), (half, 1), (half * 0.5, 2.5), (-half * 0.5, 2.5), (-half, 1)],
    }[lid]
    grown = [(z * 1.125, y if y == 0 else y + 0.5) for z, y in outline]
    parts = {
        "body": box(width - 0.5, height, depth - 0.5),
        "lid": extrude_side(outline, width).move(y=height - 0.25),
        "lock": box(1.5, 1.5, 1, 0, height - 1, half),
    }
    if bands:
        parts["bands"] = pair(extrude_side(grown, 1).move(width * 0.25, height - 0.5))
    if feet:
        parts["feet"] = four(box(1, 1, 1, width / 2 - 0.75, -0.5, half - 0.75))
    return parts


def cup(kind: str, sides: int, radius: float, height: float, stem: float) -> Parts:
    """A goblet on a stem, a tumbler, a bowl on a ring or a trophy with two handles."""
    thin = radius - 0.5
    if kind == "tumbler":
        tall = height + stem
        glass = [(radius * 0.75, 0), (radius, tall), (thin, tall), (radius * 0.75 - 0.5, 1)]
        return {"cup": lathe(glass, sides), "band": lathe([(radius * 0.75 + 0.5, 0), (radius * 0.75 + 0.5, 1)], sides)}
    if kind == "bowl":
        wide, deep = radius * 1.5, height * 0.625
        bowl = [
            (wide * 0.5, 0.5),
            (wide * 0.875, deep * 0.5),
            (wide, deep),
            (wide - 0.5, deep),
            (wide * 0.75, deep * 0.5),
            (wide * 0.375, 1.25),
        ]
        return {"cup": lathe(bowl, sides), "foot": lathe([(wide * 0.5, 0), (wide * 0.375, 0.25 * stem)], sides)}
    bowl = lathe(
        [
            (0.75, stem),
            (radius, stem + height * 0.5),
            (radius, stem + height),
            (thin, stem + height),
            (thin, stem + height * 0.5),
            (0.5, stem + 1),
        ],
        sides,
    )
    foot = lathe([(radius * 0.875, 0), (radius * 0.75, 0.5), (0.5, 1), (0.5, stem + 0.25)], sides)
    parts = {"cup": bowl, "foot": foot}
    if kind == "trophy":
        high, low = stem + height * 0.875, stem + height * 0.375
        path = [(radius * 0.875, high), (radius + 1.75, high), (radius + 1.75, low), (radius * 0.75, low)]
        parts["handles"] = pair(sweep(path, rectangle(0.75, 0.75)))
    return parts


def plate(sides: int, radius: float, rim: float, height: float, count: int) -> Parts:
    """One to three plates, each a flat middle with a rim that rises outwards; a stack stands on the lowest."""
    well = radius * rim
    one = lathe([(well * 0.875, 0), (well, 0.25), (radius, height), (radius, height + 0.5), (well, 0.875), (well * 0.875, 0.75)], sides)
    return {f"plate {i + 1}": one.move(y=i * 1.25) for i in range(count)}


def keg(sides: int, length: float, radius: float, bulge: float, stand: str, tap: bool) -> Parts:
    """A barrel that lies on a cradle, on blocks or on the floor, with hoops and perhaps a tap in front."""
    wide, z = radius * bulge, length / 2
    staves = lathe([(radius, -z), (wide, -z * 0.25), (wide, z * 0.25), (radius, z)], sides, 0.5)
    here = radius + (wide - radius) / 3
    hoops = join(lathe([(here + 0.375, y - 0.5), (here + 0.375, y + 0.5)], sides, 0.5) for y in (-z * 0.75, z * 0.75))
    ground = wide + {"floor": 0.0, "blocks": 0.75, "cradle": 1.5}[stand]
    parts = {name: solid.rotate(90, "x").move(y=ground) for name, solid in (("staves", staves), ("hoops", hoops))}
    if stand == "blocks":
        parts["stand"] = four(extrude([(-1, 0), (1, 0), (1, 2.25), (0.25, 2.25)], 1.25).move(wide * 0.75, 0, z * 0.5))
    elif stand == "cradle":
        beam = join([box(2 * wide, 1.5, 1.25, z=z * 0.5), pair(box(1, 3, 0.75, wide - 0.75, 0.5, z * 0.5))])
        parts["stand"] = join([beam, beam.rotate(180)])
    if tap:
        parts["tap"] = join(
            [box(0.75, 0.75, 2, 0, ground - radius * 0.5, z + 0.5), box(0.5, 1.5, 0.5, 0, ground - radius * 0.5 + 0.5, z + 1)]
        )
    return parts


def crate(kind: str, width: float, height: float, depth: float, lid: bool) -> Parts:
    """A wooden box: with posts and rims, with crossed boards, with bands of slats, or open; a lid reaches over."""
    x, z = width / 2, depth / 2

    def rim(y: float, tall: float, out: float) -> Solid:
        """A frame around the box."""
        sizes = ((out, y), (out, y + tall), (-0.5, y + tall), (-0.5, y))
        return loft([level(rectangle(width + 2 * o, depth + 2 * o), h) for o, h in sizes], closed=True)

    inner = width - 0.5, depth - 0.5
    parts = {"box": tray(rectangle(*inner), height, 0.75) if kind == "open" else box(inner[0], height - 0.5, inner[1], y=0.25)}
    if kind == "slats":
        parts["slats"] = join(rim(height * i / 3, height / 3 - 0.5, 0.25) for i in range(3))
    else:
        parts["rims"] = join([rim(0, 1, 0.25), rim(height - 1, 1, 0.25)])
        parts["posts"] = four(box(1, height - 1, 1, x - 0.25, 0.5, z - 0.25))
    if kind == "crossed":
        a, b = x - 0.5, height - 1
        board = extrude([(-a, 0.75), (-a + 1.5, 0.75), (a, b - 1), (a, b), (a - 1.5, b), (-a, 1.75)], 0.75)
        parts["boards"] = join([board.move(z=s * (z - 0.25)) for s in (-1, 1)])
    if lid:
        parts["lid"] = box(width + 1, 0.75, depth + 1, y=height - 0.25)
    elif kind == "open":
        parts["load"] = join([ball(height * 0.25, 5, height * 0.5).move(s * width * 0.1875, 0, s * depth * 0.125) for s in (-1, 1)])
    return parts


VESSELS = (
    ShapeFamily(
        bottle,
        {"kind": ("wine", "flask", "jar", "vase"), "sides": (6, 8), "radius": (2, 3, 4), "body": (6, 8, 10), "neck": (2, 3, 4)},
        ({"kind": ("flask",), "body": (8,)}, {"kind": ("wine", "vase"), "radius": (3,), "neck": (3,)}),
    ),
    ShapeFamily(
        mug,
        {"sides": (6, 8), "radius": (3, 3.5, 4), "height": (6, 7, 8), "handle": ("square", "round", "drop"), "wall": (0.5, 0.75)},
        ({"handle": ("round",), "height": (7,)}, {"radius": (4,), "sides": (8,), "wall": (0.75,)}),
    ),
    ShapeFamily(
        barrel,
        {"sides": (6, 8), "height": (8, 10, 12), "radius": (3, 4), "bulge": (1.125, 1.25), "bands": (1, 2, 3)},
        ({"bands": (3,), "height": (10,)}, {"sides": (8,), "radius": (4,), "bulge": (1.25,)}),
    ),
    ShapeFamily(
        chest,
        {"width": (8, 10, 12), "depth": (5, 6), "height": (3, 4, 5), "lid": ("flat", "sloped", "round"), "bands": YES_NO,
         "feet": YES_NO},
        ({"lid": ("sloped",), "width": (12,)}, {"height": (4,), "bands": (True,), "feet": (True,)}),
    ),
    ShapeFamily(
        cup,
        {"kind": ("goblet", "tumbler", "bowl", "trophy"), "sides": (6, 8), "radius": (3, 3.5, 4), "height": (5, 6, 7), "stem": (3, 4)},
        ({"kind": ("goblet",), "height": (6,)}, {"kind": ("goblet", "trophy"), "radius": (4,), "stem": (4,)}),
    ),
    ShapeFamily(
        plate,
        {"sides": (6, 8), "radius": (5, 6, 7), "rim": (0.625, 0.75), "height": (1, 1.5, 2), "count": (1, 1, 2)},
        ({"radius": (6,), "count": (2,)}, {"height": (2,), "rim": (0.75,), "sides": (8,)}),
    ),
    ShapeFamily(
        keg,
        {"sides": (6, 8), "length": (8, 10, 12), "radius": (3, 3.5, 4), "bulge": (1.125, 1.25), "stand": ("floor", "blocks", "cradle"),
         "tap": YES_NO},
        ({"stand": ("blocks",), "length": (10,)}, {"radius": (3.5,), "tap": (True,), "sides": (8,)}),
    ),
    ShapeFamily(
        crate,
        {"kind": ("framed", "crossed", "slats", "open"), "width": (8, 10, 12), "height": (6, 8), "depth": (6, 8), "lid": YES_NO},
        ({"kind": ("crossed",), "width": (10,)}, {"height": (8,), "lid": (True,), "depth": (8,)}),
    ),
)  # fmt: skip

"""Families of vehicles: on roads, on water, in the air."""

from __future__ import annotations

import numpy as np

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    Solid,
    box,
    circle,
    extrude_side,
    four,
    join,
    lathe,
    loft,
    pair,
    prism,
    rectangle,
    ring_of,
    tray,
)


def car(kind: str, sides: int, length: float, width: float, cabin: float, lamps: bool) -> Parts:
    """A body with a cabin on four wheels: sedan, van, truck or pick-up; the front looks to +Z."""
    z = length / 2
    wheel = lathe([(1.5, -0.5), (1.5, 0.5)], sides).rotate(90, "z")
    parts = {
        "body": box(width, 2.5, length, y=1.25),
        "wheels": four(wheel.move(width / 2, 1.5, z - 2.75)),
    }
    inner = width - 1
    slopes = {"sedan": (-z + 0.5, z - 3, 1, 1.5), "van": (-z + 0.5, z - 1, 0.25, 1.5), "pick-up": (-1.5, z - 2, 0.25, 1)}
    if kind == "truck":
        parts["cabin"] = box(inner, cabin + 1, 3, y=3.5, z=z - 2)
        parts["load"] = box(width + 0.5, cabin + 2, length - 5, y=3.25, z=-1.75)
    else:
        back, front, rear_slope, front_slope = slopes[kind]
        outline = [(back, 0), (front, 0), (front - front_slope, cabin), (back + rear_slope, cabin)]
        parts["cabin"] = extrude_side(outline, inner).move(y=3.5)
    if lamps:
        parts["lamps"] = pair(box(1, 1, 0.75, width / 2 - 1, 2.25, z))
    return parts


def plane(sides: int, length: float, span: float, sweep_back: float, engines: str) -> Parts:
    """A fuselage with swept wings, a tail and a propeller or two jets; it stands on its belly, nose to +Z."""
    body = lathe([(0.5, -length / 2), (1.25, -length / 4), (1.25, length / 4), (0, length / 2)], sides).rotate(90, "x").move(y=1.25)

    def wing(root: float, tip: float, z: float, reach: float, thick: float) -> Solid:
        """A flat tapered wing to the right, with chords `root` and `tip`."""

        def section(x: float, chord: float, middle: float) -> np.ndarray:
            back, front = middle - chord / 2, middle + chord / 2
            return np.array([(x, thick, back), (x, thick, front), (x, 0, front), (x, 0, back)])

        return loft([section(0.5, root, z), section(reach, tip, z - sweep_back)])

    parts = {
        "body": body,
        "wings": pair(wing(3, 1.5, 1, span, 0.5)).move(y=1),
        "tail": pair(wing(1.5, 1, -length / 2 + 1.25, span * 0.375, 0.5)).move(y=1.25),
        "fin": wing(2, 1, -length / 2 + 1.5, 3, 0.5).rotate(90, "z").move(y=1.5, x=0.25),
    }
    if engines == "propeller":
        parts["propeller"] = box(4, 0.75, 0.5, 0, 0.875, length / 2 - 0.75)
    elif engines == "jets":
        jet = lathe([(0.625, -1), (0.625, 1)], 6).rotate(90, "x")
        parts["jets"] = pair(jet.move(span * 0.5, 0.75, 1.5 - sweep_back / 2))
    return parts


def boat(length: float, width: float, height: float, kind: str, mast: float) -> Parts:
    """A hull with a pointed bow: a mast with a sail, a cabin with a funnel, or open with seats and oars."""

    def outline(y: float, scale: float) -> np.ndarray:
        x, z = width / 2 * scale, length / 2
        return np.array([(0, y, z * scale), (x, y, z * 0.375), (x, y, -z * scale), (-x, y, -z * scale), (-x, y, z * 0.375)])

    if kind == "row":
        hull = loft([outline(0, 0.625), outline(height, 1), outline(height, 0.8125), outline(0.75, 0.5)])
        seats = join(box(width * 0.75, 0.5, 1.25, 0, height * 0.625, z) for z in (-length / 4, length / 12))
        oar = join([box(mast * 0.75, 0.5, 0.5, mast * 0.375), box(2, 0.5, 1.25, mast * 0.75)]).rotate(-20, "z")
        return {"hull": hull, "seats": seats, "oars": pair(oar.move(width / 2 - 1.5, height + 0.25, -length / 12))}
    hull = loft([outline(0, 0.625), outline(height, 1)])
    if kind == "sail":
        sail = extrude_side([(-length * 0.375, 0), (-0.5, 0), (-0.5, mast - 1.5)], 0.5).move(y=height + 1)
        return {"hull": hull, "mast": box(0.75, mast, 0.75, y=height - 0.5), "sail": sail}
    cabin = box(width - 2, mast * 0.375, length * 0.375, y=height - 0.5, z=-length / 8)
    return {"hull": hull, "cabin": cabin, "funnel": prism(circle(6, 1), mast * 0.375, height + mast * 0.375 - 1).move(z=-length / 8)}


def rocket(sides: int, height: float, radius: float, fins: int, nozzle: bool, window: bool) -> Parts:
    """A body with a pointed nose and fins, perhaps with a nozzle and a window."""
    profile = [(radius * 0.75, 0), (radius, 2), (radius, height * 0.625), (radius * 0.625, height * 0.875), (0, height)]
    fin = extrude_side([(radius - 0.75, 1), (radius + 2.5, -1.5), (radius + 2.5, 0.5), (radius - 0.75, 4)], 0.75)
    parts = {"body": lathe(profile, sides), "fins": ring_of(fin, fins, 180)}
    if nozzle:
        parts["nozzle"] = lathe([(radius * 0.75, -1), (radius * 0.375, 0.5)], 6)
    if window:
        parts["window"] = box(1.5, 1.5, 1, 0, height * 0.5 - 1, radius - 0.25)
    return parts


def cart(kind: str, length: float, width: float, wall: float, sides: int, flare: float) -> Parts:
    """An open box on wheels: a cart with two wheels and shafts, a wagon with four and a pole, or a barrow with one and two legs."""
    radius = {"cart": 2.5, "wagon": 2.0, "barrow": 1.75}[kind]
    ground = {"cart": 2.5, "wagon": 2.25, "barrow": 2.25}[kind]
    parts = {"box": tray(rectangle(width, length), wall, 0.75, 0.75, flare).move(y=ground)}
    wheel = lathe([(radius, -0.375), (radius, 0.375)], sides).rotate(90, "z")
    if kind == "barrow":
        parts["wheel"] = lathe([(radius, -0.5), (radius, 0.5)], sides).rotate(90, "z").move(0, radius, length / 2 + 0.75)
        parts["fork"] = pair(box(0.5, 0.75, 3.5, 1, radius - 0.25, length / 2))
        parts["handles"] = pair(box(0.75, 0.75, length * 0.75, width / 2 - 1, ground + 0.25, -length / 2))
        parts["legs"] = pair(box(0.75, ground + 0.25, 0.75, width / 2 - 1, 0, -length / 2 + 1))
        return parts
    places = [0.0] if kind == "cart" else [length / 2 - 2.25, -length / 2 + 2.25]
    parts["wheels"] = join(pair(wheel.move(width / 2 + 0.75, radius, z)) for z in places)
    parts["axles"] = join(box(width + 3, 0.75, 0.75, y=radius - 0.375, z=z) for z in places)
    if kind == "cart":
        parts["shafts"] = pair(box(0.75, 0.75, length * 0.75, width / 2 - 1, ground + 0.125, length * 0.75))
    else:
        parts["pole"] = join(
            [box(0.75, 0.75, 5, 0, ground - 0.25, length / 2 + 2), box(2.5, 0.75, 0.75, 0, ground - 0.125, length / 2 + 4)]
        )
    return parts


VEHICLES = (
    ShapeFamily(
        car,
        {"kind": ("sedan", "van", "truck", "pick-up"), "sides": (6, 8), "length": (12, 14), "width": (6, 7), "cabin": (2, 2.5, 3),
         "lamps": YES_NO},
        ({"kind": ("van",), "length": (14,)}, {"cabin": (2.5,), "lamps": (True,), "width": (7,)}),
    ),
    ShapeFamily(
        plane,
        {"sides": (6, 8), "length": (12, 14, 16), "span": (6, 8), "sweep_back": (0, 1, 2), "engines": ("none", "propeller", "jets")},
        ({"engines": ("propeller",), "sweep_back": (1,)}, {"span": (8,), "length": (14,)}),
    ),
    ShapeFamily(
        boat,
        {"length": (12, 14, 16), "width": (5, 6), "height": (2, 3), "kind": ("sail", "cabin", "row"), "mast": (8, 10)},
        ({"kind": ("cabin",), "length": (14,)}, {"width": (6,), "height": (3,), "mast": (10,)}),
    ),
    ShapeFamily(
        rocket,
        {"sides": (6, 8), "height": (12, 14, 16), "radius": (2, 2.5, 3), "fins": (3, 4), "nozzle": YES_NO, "window": YES_NO},
        ({"fins": (3,), "radius": (2.5,)}, {"height": (16,), "window": (True,), "nozzle": (True,)}),
    ),
    ShapeFamily(
        cart,
        {"kind": ("cart", "wagon", "barrow"), "length": (8, 10), "width": (5, 6), "wall": (2, 3), "sides": (6, 8),
         "flare": (1, 1.125, 1.25)},
        ({"kind": ("wagon",), "length": (10,)}, {"wall": (3,), "flare": (1.125,), "width": (6,)}),
    ),
)  # fmt: skip

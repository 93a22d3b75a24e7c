"""The families of lowpoly's world: parametric objects as an artist would model them, few faces and clean topology.

A family is a table of a few values per parameter (a coarse lattice, which makes the world learnable for a small model) and a function
from one value each to named parts. Parts sink into each other instead of sharing edges, so that every part stays a closed solid with
its own vertices. +Y is up, +Z the front, shapes rest on y = 0; units are free, a typical object is 8 to 24 units long and no feature
is thinner than half a unit. Beside its lattice stand the two boxes of parameters that training never sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator

from engine.data.solids import (
    Solid,
    around,
    ball,
    box,
    circle,
    extrude,
    extrude_side,
    four,
    icosphere,
    join,
    lathe,
    level,
    loft,
    pair,
    prism,
    rectangle,
    roof,
    row,
    sweep,
)
from engine.mesh.bpt_tokens import quantize, sort_keys

Parts = dict[str, Solid]
Box = Mapping[str, tuple[Any, ...]]  # parameter: its values inside the box

# --- shapes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """One object: convex polygons over vertices, and the triangles they are split into where they stand.

    vertices   : float64 [V, 3]
    polygons   : int64 [P, K], counter-clockwise seen from outside, padded with -1
    labels     : int64 [P], the part of each polygon, an index into `part_names`
    parameters : the value of every parameter of the family
    """

    vertices: np.ndarray
    polygons: np.ndarray
    labels: np.ndarray
    part_names: tuple[str, ...]
    family: str
    parameters: Mapping[str, Any]

    @cached_property
    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        return split(self.vertices, self.polygons)

    @property
    def faces(self) -> np.ndarray:
        """Triangles int64 [F, 3]."""
        return self._split[0]

    @property
    def parts(self) -> np.ndarray:
        """The part of each triangle, int64 [F]."""
        return self.labels[self._split[1]]


def split(vertices: np.ndarray, polygons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles int64 [F, 3] of convex polygons int [P, K], and the polygon of each, int64 [F].

    All diagonals start in the corner that comes first in the order of the tokens. The rule reads quantised places and nothing else, so
    a model that sees the corners can know the diagonal, wherever the shape was turned to.
    """
    keys = np.append(sort_keys(quantize(vertices)[0]), np.iinfo(np.int64).max)  # the last one stands for the padding -1
    size = (polygons >= 0).sum(1)
    start = keys[polygons].argmin(1)
    turn = (start[:, None] + np.arange(polygons.shape[1])) % size[:, None]
    turned = np.take_along_axis(polygons, turn, 1)
    owner = np.repeat(np.arange(len(polygons)), size - 2)
    second = np.concatenate([np.arange(1, n - 1) for n in size]) if len(size) else np.zeros(0, np.int64)
    return np.stack([turned[owner, 0], turned[owner, second], turned[owner, second + 1]], 1), owner


@dataclass(frozen=True)
class Family:
    """Called with a generator it draws one value for each parameter and builds the shape; `detail` multiplies the sides of round parts.

    build    : named parts from one value per parameter
    lattice  : the values of each parameter
    held_out : two boxes that training never sees
    """

    build: Callable[..., Parts]
    lattice: Mapping[str, tuple[Any, ...]]
    held_out: tuple[Box, Box]

    @property
    def name(self) -> str:
        """The name of the function that builds it."""
        return self.build.__name__

    def __call__(self, rng: Generator, detail: int = 0) -> Shape:
        return self.make({name: values[rng.integers(len(values))] for name, values in self.lattice.items()}, detail)

    def make(self, parameters: Mapping[str, Any], detail: int = 0) -> Shape:
        """The shape of given parameters."""
        finer = {"sides": parameters["sides"] * (1 + detail)} if "sides" in parameters else {}
        parts = self.build(**{**parameters, **finer})
        whole = join(parts.values())
        # Rounded, so that a last digit of a sine never decides to which cell a vertex belongs.
        vertices = np.round(whole.points - [0, whole.points[:, 1].min(), 0], 4)
        width = max(len(polygon) for polygon in whole.polygons)
        polygons = np.array([polygon + (-1,) * (width - len(polygon)) for polygon in whole.polygons], np.int64)
        labels = np.repeat(np.arange(len(parts)), [len(solid.polygons) for solid in parts.values()])
        return Shape(vertices, polygons, labels, tuple(parts), self.name, {**parameters, "detail": detail})


# --- furniture --------------------------------------------------------------------------------------------------------


def table(top: str, width: float, depth: float, height: float, legs: str, bar: bool) -> Parts:
    """A slab or a round plate on four legs, tapered legs or a pedestal."""
    plate = prism(circle(8, width / 2, 0.5), 1, height - 1) if top == "round" else box(width, 1, depth, y=height - 1)
    reach = (width * 0.25, width * 0.25) if top == "round" else (width / 2 - 1, depth / 2 - 1)
    if legs == "pedestal":
        return {"top": plate, "pole": box(1.5, height - 1, 1.5, y=0.5), "foot": box(reach[0] * 1.5, 1, reach[1] * 1.5, taper=0.75)}
    # Legs stand on their thin end and reach half-way into the plate.
    leg = loft([level(rectangle(1, 1), 0, 0.5 if legs == "tapered" else 1), level(rectangle(1, 1), height - 0.5)])
    parts = {"top": plate, "legs": four(leg.moved(reach[0], 0, reach[1]))}
    if bar:
        parts["bars"] = pair(box(0.5, 0.5, reach[1] * 2, reach[0], height / 4))
    return parts


def chair(back: str, width: float, height: float, rise: float, arms: bool) -> Parts:
    """A seat on four legs; the back is a slab, slats or a ladder between two posts."""
    x = width / 2 - 1
    parts = {"seat": box(width, 1, width, y=height), "legs": four(box(1, height + 0.5, 1, x, 0, x))}
    bottom, top = height + 0.5, height + rise
    if back == "slab":
        parts["back"] = box(width - 0.5, top - bottom, 0.75, 0, bottom, -width / 2 + 0.75)
    else:
        parts["posts"] = pair(box(0.75, top - bottom, 0.75, x, bottom, -x))
        if back == "ladder":
            parts["back"] = join(box(width - 2, 1, 0.5, 0, y, -x) for y in (height + rise / 2, top - 1.5))
        else:
            parts["back"] = join([box(width - 1, 1, 1, 0, top - 0.5, -x), row(box(0.5, top - bottom, 0.5, 0, bottom, -x), 2, width / 4)])
    if arms:
        y = height + rise * 0.375
        parts["arms"] = pair(join([box(0.75, 0.75, width - 2, x + 0.5, y, 0), box(0.5, y - bottom + 0.5, 0.5, x + 0.5, bottom, x - 1)]))
    return parts


def bed(width: float, length: float, head: float, foot: bool, pillows: int) -> Parts:
    """A frame with a mattress, a headboard at the back, pillows and perhaps a footboard."""
    parts = {
        "frame": box(width, 1.5, length, y=1),
        "legs": four(box(1, 1.5, 1, width / 2 - 1, 0, length / 2 - 1)),
        "mattress": box(width - 1, 1.5, length - 1, y=2.25),
        "headboard": box(width + 1, head, 1, y=0.5, z=-length / 2),
        "pillows": row(box(width / pillows - 2, 1, 2.5, y=3.25, z=-length / 2 + 2.5, taper=0.75), pillows, width / pillows - 0.5),
    }
    if foot:
        parts["footboard"] = box(width + 1, 3.5, 1, y=0.5, z=length / 2)
    return parts


def sofa(seats: int, seat: float, depth: float, back: float, arm: float) -> Parts:
    """A base with seat cushions, a back and two arms on short feet."""
    width = seats * seat
    return {
        "base": box(width + 0.5, 2, depth, y=0.5),
        "back": box(width + 1, back, 1.5, y=1, z=-depth / 2),
        "arms": pair(box(1.5, arm, depth + 0.5, width / 2 + 0.5, 0.75)),
        "cushions": row(box(seat - 0.5, 1.5, depth - 1.5, y=2, z=0.5, taper=0.875), seats, seat),
        "feet": four(box(1, 1, 1, width / 2 - 0.5, 0, depth / 2 - 1)),
    }


def bookshelf(width: float, shelves: int, gap: float, books: str, plinth: bool) -> Parts:
    """Two sides with shelves and a back, and a few books."""
    height = shelves * gap + 1
    parts = {
        "sides": pair(box(0.75, height, 4, width / 2)),
        "shelves": join(box(width, 0.5, 3.5, y=0.5 + i * gap) for i in range(shelves + 1)),
        "back": box(width, height - 1, 0.5, y=0.5, z=-1.75),
    }
    if plinth:
        parts["plinth"] = box(width + 1.5, 0.75, 4.5, y=-0.25)
    if books != "none":
        tall, low = gap * 0.75, gap * 0.5
        left = join([box(0.75, tall, 2.5, -width / 2 + 1.5), box(0.75, low, 2.5, -width / 2 + 2.75)])
        right = box(0.75, tall, 2.5, width / 2 - 1.5)
        parts["books"] = join((left if i % 2 == 0 or books == "left" else right).moved(y=0.75 + i * gap) for i in range(shelves))
    return parts


def lamp(kind: str, sides: int, height: float, shade: float, drum: float) -> Parts:
    """A foot, a pole and a shade; the pole of a desk lamp has an elbow."""
    foot = lathe([(3, 0), (3, 0.75), (1, 1.5)], sides)
    if kind == "desk":
        path = [(0, 1), (0, height * 0.5), (height * 0.375, height * 0.75)]
        head = lathe([(shade * 0.75, 0), (shade * 0.375, 2.5)], sides).turned(-30, "z")
        return {"foot": foot, "pole": sweep(path, rectangle(0.75, 0.75)), "shade": head.moved(height * 0.375, height * 0.75 - 1.5)}
    pole = prism(circle(4, 0.5), height - 1, 1)
    return {"foot": foot, "pole": pole, "shade": lathe([(shade, height - 2), (shade * drum, height + 2)], sides)}


# --- buildings --------------------------------------------------------------------------------------------------------


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
        parts["roof"] = extrude([(-width / 2 - 1, 0), (width / 2 + 1, 0), (0, width / 2)], depth + 1.5).moved(y=eaves)
    elif top == "side":
        parts["roof"] = extrude_side([(-depth / 2 - 1, 0), (depth / 2 + 1, 0), (0, depth / 2)], width + 1.5).moved(y=eaves)
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
        parts["battlements"] = around(box(1.5, 1.75, 1.5, 0, height + 2.75, head - 1.125), 4 if sides % 4 == 0 else 6)
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
        side = join([*posts, bar.moved(x=x)])
        parts["rails"] = pair(side) if rail == "both" else side
    return parts


def fence(posts: int, gap: float, height: float, tip: str, rails: int) -> Parts:
    """Posts, pointed or flat, on two or three rails."""
    outline = rectangle(1, 1)
    rings = [level(outline, 0), level(outline, height - 1)]
    rings += [np.array([[0, height, 0]])] if tip == "pointed" else [level(outline, height, 0.5)] if tip == "bevelled" else []
    bars = [box((posts - 1) * gap + 2, 0.5, 0.5, y=height * (i + 1) / (rails + 1.5)) for i in range(rails)]
    return {"posts": row(loft(rings), posts, gap), "rails": join(bars)}


# --- plants and stones ------------------------------------------------------------------------------------------------


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
        parts["crown"] = join([ball(crown * 0.75, sides, trunk), ball(crown * 0.5, sides, trunk - 0.5).moved(crown, tiers, 0)])
    return parts


def mushroom(cap: str, sides: int, stem: float, radius: float, small: bool) -> Parts:
    """A stem under a dome, a cone or a flat cap, perhaps with a smaller one beside it."""
    outer = {
        "dome": [(radius, stem - 0.5), (radius, stem + 0.75), (radius * 0.625, stem + 2.5), (0, stem + 3.25)],
        "cone": [(radius, stem - 0.5), (radius * 0.375, stem + 3), (0, stem + 5)],
        "flat": [(radius * 0.5, stem), (radius, stem + 1), (radius, stem + 2), (0, stem + 2.5)],
    }[cap]
    whole = {"stem": lathe([(1.5, 0), (1, stem * 0.5), (1, stem + 0.5)], sides), "cap": lathe(outer, sides)}
    if small:
        whole["small"] = join(mushroom(cap, 6, stem, radius, False).values()).scaled(0.5, 0.5, 0.5).moved(radius + 1, 0, 1)
    return whole


def cactus(sides: int, height: float, left: float, right: float, pot: bool) -> Parts:
    """A column with up to two bent arms (0 = no arm, else the height of the elbow), perhaps in a pot."""
    ground = 2.5 if pot else 0
    column = lathe([(1.25, 0), (1.5, height * 0.5), (1, height - 1), (0, height)], sides)
    parts = {"column": column.moved(y=ground)}
    outline = circle(4, 0.75)
    for side, elbow in (("left", left), ("right", right)):
        if elbow:
            path = [(0.5, height * elbow), (3, height * elbow), (3, height * elbow + 3)]
            # The path runs to the right and then up.
            arm = sweep(path, outline)
            parts[side] = (arm.mirrored() if side == "left" else arm).moved(y=ground)
    if pot:
        parts["pot"] = lathe([(1.75, 0), (2.5, 3)], sides)
    return parts


def crystal(sides: int, count: int, height: float, lean: float, base: bool) -> Parts:
    """A tall pointed prism with smaller ones leaning away around it."""
    main = lathe([(1.25, 0), (1.75, height - 3), (0, height)], sides)
    small = lathe([(0.75, 0), (1, height * 0.375), (0, height * 0.5)], sides).turned(lean, "x").moved(z=1.25, y=0.25)
    parts = {"main": main, "others": around(small, count, 30)}
    if base:
        parts["base"] = lathe([(3.5, -0.5), (2.5, 1)], 6)
    return parts


def rock(variant: int, flat: float, wide: float) -> Parts:
    """A sphere of 80 triangles with its vertices pushed in or out by steps, cut flat below."""
    sphere = icosphere(1)
    pushes = np.array([0.75, 0.875, 1.0, 1.125])[Generator(PCG64(variant)).integers(4, size=len(sphere.points))]
    points = sphere.points * pushes[:, None] * 6 * np.array([wide, flat, 1])
    return {"rock": Solid(np.maximum(points, [-99, -3.5 * flat, -99]), sphere.polygons)}


# --- vessels ----------------------------------------------------------------------------------------------------------


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
        "lid": extrude_side(outline, width).moved(y=height - 0.25),
        "lock": box(1.5, 1.5, 1, 0, height - 1, half),
    }
    if bands:
        parts["bands"] = pair(extrude_side(grown, 1).moved(width * 0.25, height - 0.5))
    if feet:
        parts["feet"] = four(box(1, 1, 1, width / 2 - 0.75, -0.5, half - 0.75))
    return parts


# --- things that move -------------------------------------------------------------------------------------------------


def rocket(sides: int, height: float, radius: float, fins: int, nozzle: bool, window: bool) -> Parts:
    """A body with a pointed nose and fins, perhaps with a nozzle and a window."""
    profile = [(radius * 0.75, 0), (radius, 2), (radius, height * 0.625), (radius * 0.625, height * 0.875), (0, height)]
    fin = extrude_side([(radius - 0.75, 1), (radius + 2.5, -1.5), (radius + 2.5, 0.5), (radius - 0.75, 4)], 0.75)
    parts = {"body": lathe(profile, sides), "fins": around(fin, fins, 180)}
    if nozzle:
        parts["nozzle"] = lathe([(radius * 0.75, -1), (radius * 0.375, 0.5)], 6)
    if window:
        parts["window"] = box(1.5, 1.5, 1, 0, height * 0.5 - 1, radius - 0.25)
    return parts


def car(kind: str, sides: int, length: float, width: float, cabin: float, lamps: bool) -> Parts:
    """A body with a cabin on four wheels: sedan, van, truck or pick-up; the front looks to +Z."""
    z = length / 2
    wheel = lathe([(1.5, -0.5), (1.5, 0.5)], sides).turned(90, "z")
    parts = {
        "body": box(width, 2.5, length, y=1.25),
        "wheels": four(wheel.moved(width / 2, 1.5, z - 2.75)),
    }
    inner = width - 1
    slopes = {"sedan": (-z + 0.5, z - 3, 1, 1.5), "van": (-z + 0.5, z - 1, 0.25, 1.5), "pick-up": (-1.5, z - 2, 0.25, 1)}
    if kind == "truck":
        parts["cabin"] = box(inner, cabin + 1, 3, y=3.5, z=z - 2)
        parts["load"] = box(width + 0.5, cabin + 2, length - 5, y=3.25, z=-1.75)
    else:
        back, front, rear_slope, front_slope = slopes[kind]
        outline = [(back, 0), (front, 0), (front - front_slope, cabin), (back + rear_slope, cabin)]
        parts["cabin"] = extrude_side(outline, inner).moved(y=3.5)
    if lamps:
        parts["lamps"] = pair(box(1, 1, 0.75, width / 2 - 1, 2.25, z))
    return parts


def plane(sides: int, length: float, span: float, sweep_back: float, engines: str) -> Parts:
    """A fuselage with swept wings, a tail and a propeller or two jets; it stands on its belly, nose to +Z."""
    body = lathe([(0.5, -length / 2), (1.25, -length / 4), (1.25, length / 4), (0, length / 2)], sides).turned(90, "x").moved(y=1.25)

    def wing(root: float, tip: float, z: float, reach: float, thick: float) -> Solid:
        """A flat tapered wing to the right, with chords `root` and `tip`."""

        def section(x: float, chord: float, middle: float) -> np.ndarray:
            back, front = middle - chord / 2, middle + chord / 2
            return np.array([(x, thick, back), (x, thick, front), (x, 0, front), (x, 0, back)])

        return loft([section(0.5, root, z), section(reach, tip, z - sweep_back)])

    parts = {
        "body": body,
        "wings": pair(wing(3, 1.5, 1, span, 0.5)).moved(y=1),
        "tail": pair(wing(1.5, 1, -length / 2 + 1.25, span * 0.375, 0.5)).moved(y=1.25),
        "fin": wing(2, 1, -length / 2 + 1.5, 3, 0.5).turned(90, "z").moved(y=1.5, x=0.25),
    }
    if engines == "propeller":
        parts["propeller"] = box(4, 0.75, 0.5, 0, 0.875, length / 2 - 0.75)
    elif engines == "jets":
        jet = lathe([(0.625, -1), (0.625, 1)], 6).turned(90, "x")
        parts["jets"] = pair(jet.moved(span * 0.5, 0.75, 1.5 - sweep_back / 2))
    return parts


def boat(length: float, width: float, height: float, kind: str, mast: float) -> Parts:
    """A hull with a pointed bow, a mast with a sail or a cabin with a funnel."""

    def outline(y: float, scale: float) -> np.ndarray:
        x, z = width / 2 * scale, length / 2
        return np.array([(0, y, z * scale), (x, y, z * 0.375), (x, y, -z * scale), (-x, y, -z * scale), (-x, y, z * 0.375)])

    hull = loft([outline(0, 0.625), outline(height, 1)])
    if kind == "sail":
        sail = extrude_side([(-length * 0.375, 0), (-0.5, 0), (-0.5, mast - 1.5)], 0.5).moved(y=height + 1)
        return {"hull": hull, "mast": box(0.75, mast, 0.75, y=height - 0.5), "sail": sail}
    cabin = box(width - 2, mast * 0.375, length * 0.375, y=height - 0.5, z=-length / 8)
    return {"hull": hull, "cabin": cabin, "funnel": prism(circle(6, 1), mast * 0.375, height + mast * 0.375 - 1).moved(z=-length / 8)}


# --- tools, figures and parts -----------------------------------------------------------------------------------------


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
    return {name: solid.turned(90, "x") for name, solid in parts.items()} if upright else parts


def tool(kind: str, handle: float, size: float, thickness: float, guard: bool) -> Parts:
    """Upright: a sword, a dagger, an axe, a hammer or a spade; the handle is below."""
    parts = {"handle": prism(circle(6, 0.75), handle)}
    if guard:
        parts["pommel"] = prism(circle(6, 1.25), 1, -0.5)
    if kind in ("sword", "dagger"):
        long = size * (3 if kind == "sword" else 1.5)
        blade = np.array([(1.25, 0), (0, -thickness / 2), (-1.25, 0), (0, thickness / 2)])
        parts["guard"] = box(5, 1, 1.75, y=handle - 0.5)
        parts["blade"] = loft([level(blade, handle), level(blade, handle + long), np.array([[0, handle + long + 2, 0]])])
    elif kind == "axe":
        head = extrude([(0, -0.75), (size * 0.5, -2), (size * 0.5, 2), (0, 0.75)], thickness + 1)
        parts["head"] = head.moved(x=-0.25, y=handle - 2)
        parts["shaft"] = prism(circle(6, 0.625), 3, handle - 1)
    elif kind == "hammer":
        parts["head"] = box(size, 2.5, 2 + thickness, y=handle - 0.5)
    else:
        wide = rectangle(size * 0.625, thickness)
        tip = level(rectangle(size * 0.25, thickness * 0.75), handle + size * 0.75)
        parts["head"] = loft([level(wide, handle - 0.5), level(wide, handle + size * 0.5), tip])
    return parts


def robot(head: str, body: float, arms: str, legs: str, antennas: int) -> Parts:
    """A boxy figure with eyes; arms hang, stretch or point forwards; it walks on legs or treads."""
    ground = 3 if legs == "legs" else 2
    top = ground + body
    parts = {
        "body": box(5, body + 0.25, 3, y=ground),
        "head": box(3, 2.75, 2.5, y=top + 0.5) if head == "box" else prism(circle(6, 2), 2.75, top + 0.5, 0.75),
        "neck": box(1, 1, 1, y=top),
        "eyes": pair(box(0.75, 0.75, 1, 0.75, top + 1.5, 1.25)),
    }
    if legs == "legs":
        parts["legs"] = pair(join([box(1.25, 3, 1.25, 1.25, 0.5), box(1.75, 1, 2.5, 1.25, 0, 0.5)]))
    else:
        parts["treads"] = pair(extrude_side([(-2, 0), (2, 0), (3, 2.5), (-3, 2.5)], 1.5).moved(2))
    limb = {"hang": box(1, 4, 1, 3, top - 4.5), "stretch": box(4, 1, 1, 4.25, top - 1.5), "forwards": box(1, 1, 4, 3, top - 1.5, 1.5)}[arms]
    parts["arms"] = pair(limb)
    if antennas:
        parts["antennas"] = row(box(0.5, 2, 0.5, y=top + 3), antennas, 1.5)
    return parts


def snowman(balls: int, sides: int, radius: float, hat: str, arms: bool) -> Parts:
    """Two or three balls with a nose, perhaps with a hat and arms."""
    parts: Parts = {}
    sizes = [radius, radius * 0.75, radius * 0.5625][:balls]
    y, middles = 0.0, []
    for i, size in enumerate(sizes):
        parts[f"ball {i + 1}"] = ball(size, sides, y, 0.875)
        middles.append(y + size * 0.875)
        y += size * 1.75 - 0.75
    head, y = sizes[-1], y - 0.25
    parts["nose"] = lathe([(0.5, -0.5), (0, 1.5)], 4).turned(90, "x").moved(y=middles[-1], z=head)
    if hat == "top":
        parts["hat"] = lathe([(head, y), (head, y + 0.5), (head * 0.625, y + 0.5), (head * 0.625, y + 2.5)], sides)
    elif hat == "cone":
        parts["hat"] = lathe([(head * 0.75, y), (0, y + 3)], sides)
    if arms:
        trunk = sizes[balls - 2]
        parts["arms"] = pair(box(2.5, 0.5, 0.5, trunk + 1, middles[balls - 2] + trunk * 0.25))
    return parts


def chess_piece(kind: str, sides: int, base: float, height: float, collar: float) -> Parts:
    """A turned piece: pawn, rook, bishop, queen or king."""
    neck, start = base * 0.375, height - 0.375  # heads start inside the collar, below the end of the foot
    foot = [(base, 0), (base, 1), (base * 0.625, 2), (neck, height)]
    parts = {"collar": lathe([(collar, height - 0.5), (collar, height + 0.5)], sides)}
    if kind == "rook":
        parts["body"] = lathe([*foot[:3], (base * 0.5, height), (base * 0.75, height + 1), (base * 0.75, height + 3)], sides)
        parts["battlements"] = around(box(1, 1.25, 1, 0, height + 2.75, base * 0.75 - 0.75), 4)
        return parts
    parts["body"] = lathe(foot, sides)
    if kind == "pawn":
        parts["head"] = ball(base * 0.625, sides, height)
    elif kind == "bishop":
        parts["head"] = lathe([(neck, start), (base * 0.625, height + 1.5), (0, height + 5)], sides)
    else:
        parts["head"] = lathe([(neck, start), (base * 0.75, height + 3), (0, height + 4)], sides)
        if kind == "king":
            parts["cross"] = join([box(0.5, 2.5, 0.5, y=height + 3.25), box(2, 0.5, 0.75, y=height + 4.5)])
    return parts


# --- the families -----------------------------------------------------------------------------------------------------

YES_NO = (False, True)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            table,
            {"top": ("slab", "slab", "round"), "width": (8, 10, 12, 14), "depth": (6, 8), "height": (6, 8, 10),
             "legs": ("straight", "tapered", "pedestal"), "bar": YES_NO},
            ({"top": ("round",), "width": (12,)}, {"top": ("slab",), "legs": ("tapered",), "height": (8,)}),
        ),
        Family(
            chair,
            {"back": ("slab", "slats", "ladder"), "width": (7, 8, 9), "height": (5, 6, 7), "rise": (6, 8, 10), "arms": YES_NO},
            ({"back": ("slats",), "height": (7,)}, {"width": (8,), "rise": (8,)}),
        ),
        Family(
            house,
            {"width": (8, 10, 12), "depth": (6, 8), "storeys": (1, 2), "top": ("gable", "side", "hip", "flat"), "windows": (0, 1, 2),
             "chimney": YES_NO},
            ({"top": ("hip",), "storeys": (2,)}, {"width": (10,), "chimney": (True,), "windows": (0,)}),
        ),
        Family(
            tree,
            {"kind": ("pine", "poplar", "round", "double"), "sides": (6, 8), "trunk": (3, 4, 6), "crown": (3, 4, 5), "tiers": (2, 3)},
            ({"kind": ("pine",), "crown": (5,)}, {"kind": ("round", "double"), "trunk": (4,), "sides": (8,)}),
        ),
        Family(
            tower,
            {"sides": (6, 8), "radius": (3, 4), "height": (8, 12, 16), "top": ("cone", "battlements", "dome"), "flare": YES_NO,
             "door": YES_NO},
            ({"top": ("dome",), "height": (12,)}, {"radius": (4,), "flare": (True,), "sides": (8,), "door": (True,)}),
        ),
        Family(
            bottle,
            {"kind": ("wine", "flask", "jar", "vase"), "sides": (6, 8), "radius": (2, 3, 4), "body": (6, 8, 10), "neck": (2, 3, 4)},
            ({"kind": ("flask",), "body": (8,)}, {"kind": ("wine", "vase"), "radius": (3,), "neck": (3,)}),
        ),
        Family(
            mushroom,
            {"cap": ("dome", "cone", "flat"), "sides": (6, 8), "stem": (4, 6, 8), "radius": (3, 4, 5), "small": YES_NO},
            ({"cap": ("cone",), "stem": (6,)}, {"radius": (5,), "small": (True,), "sides": (6,)}),
        ),
        Family(
            rocket,
            {"sides": (6, 8), "height": (12, 14, 16), "radius": (2, 2.5, 3), "fins": (3, 4), "nozzle": YES_NO, "window": YES_NO},
            ({"fins": (3,), "radius": (2.5,)}, {"height": (16,), "window": (True,), "nozzle": (True,)}),
        ),
        Family(
            lamp,
            {"kind": ("floor", "floor", "desk"), "sides": (6, 8), "height": (8, 12, 16), "shade": (3, 4), "drum": (0.5, 0.75)},
            ({"kind": ("desk",), "height": (12,)}, {"kind": ("floor",), "shade": (4,), "drum": (0.75,)}),
        ),
        Family(
            mug,
            {"sides": (6, 8), "radius": (3, 3.5, 4), "height": (6, 7, 8), "handle": ("square", "round", "drop"), "wall": (0.5, 0.75)},
            ({"handle": ("round",), "height": (7,)}, {"radius": (4,), "sides": (8,), "wall": (0.75,)}),
        ),
        Family(
            gear,
            {"teeth": (6, 7, 8), "radius": (7, 8), "thickness": (2, 3), "bore": (2, 3), "hub": YES_NO, "upright": YES_NO},
            ({"teeth": (7,), "upright": (True,)}, {"thickness": (3,), "hub": (True,), "bore": (3,)}),
        ),
        Family(
            car,
            {"kind": ("sedan", "van", "truck", "pick-up"), "sides": (6, 8), "length": (12, 14), "width": (6, 7), "cabin": (2, 2.5, 3),
             "lamps": YES_NO},
            ({"kind": ("van",), "length": (14,)}, {"cabin": (2.5,), "lamps": (True,), "width": (7,)}),
        ),
        Family(
            tool,
            {"kind": ("sword", "dagger", "axe", "hammer", "spade"), "handle": (6, 8, 10), "size": (5, 6, 8), "thickness": (0.75, 1),
             "guard": YES_NO},
            ({"kind": ("axe",), "handle": (8,)}, {"size": (6,), "thickness": (1,), "guard": (True,)}),
        ),
        Family(
            barrel,
            {"sides": (6, 8), "height": (8, 10, 12), "radius": (3, 4), "bulge": (1.125, 1.25), "bands": (1, 2, 3)},
            ({"bands": (3,), "height": (10,)}, {"sides": (8,), "radius": (4,), "bulge": (1.25,)}),
        ),
        Family(
            chest,
            {"width": (8, 10, 12), "depth": (5, 6), "height": (3, 4, 5), "lid": ("flat", "sloped", "round"), "bands": YES_NO,
             "feet": YES_NO},
            ({"lid": ("sloped",), "width": (12,)}, {"height": (4,), "bands": (True,), "feet": (True,)}),
        ),
        Family(
            stairs,
            {"steps": (3, 4, 5, 6), "rise": (1, 1.5), "run": (1.5, 2), "width": (4, 6, 8), "rail": ("none", "one", "both")},
            ({"steps": (5,), "rail": ("one",)}, {"width": (6,), "rise": (1.5,), "run": (2,)}),
        ),
        Family(
            fence,
            {"posts": (3, 4, 5), "gap": (2, 3), "height": (5, 7), "tip": ("flat", "bevelled", "pointed"), "rails": (2, 3)},
            ({"posts": (4,), "tip": ("bevelled",)}, {"gap": (3,), "height": (7,), "rails": (3,)}),
        ),
        Family(
            bed,
            {"width": (6, 8, 10), "length": (12, 14), "head": (4, 5, 6), "foot": YES_NO, "pillows": (1, 2)},
            ({"pillows": (2,), "width": (8,)}, {"head": (6,), "foot": (True,)}),
        ),
        Family(
            sofa,
            {"seats": (1, 2, 3), "seat": (4, 5), "depth": (5, 6), "back": (5, 6), "arm": (3, 4)},
            ({"seats": (2,), "seat": (5,), "back": (6,)}, {"depth": (6,), "arm": (4,), "back": (5,)}),
        ),
        Family(
            bookshelf,
            {"width": (8, 10), "shelves": (2, 3, 4), "gap": (3, 4), "books": ("none", "left", "both"), "plinth": YES_NO},
            ({"shelves": (3,), "books": ("left",)}, {"width": (10,), "gap": (4,), "plinth": (True,)}),
        ),
        Family(
            crystal,
            {"sides": (5, 6), "count": (2, 3, 4), "height": (8, 10, 12), "lean": (25, 40), "base": YES_NO},
            ({"count": (3,), "lean": (40,)}, {"height": (12,), "base": (True,), "sides": (6,)}),
        ),
        Family(
            cactus,
            {"sides": (6, 8), "height": (8, 10, 12), "left": (0, 0.25, 0.5), "right": (0, 0.375, 0.5), "pot": YES_NO},
            ({"left": (0.5,), "right": (0,)}, {"height": (10,), "pot": (True,), "sides": (8,)}),
        ),
        Family(
            robot,
            {"head": ("box", "prism"), "body": (4, 5, 6), "arms": ("hang", "stretch", "forwards"), "legs": ("legs", "treads"),
             "antennas": (0, 1, 2)},
            ({"arms": ("forwards",), "legs": ("treads",)}, {"antennas": (2,), "head": ("prism",)}),
        ),
        Family(
            snowman,
            {"balls": (2, 3), "sides": (6, 8), "radius": (3, 4), "hat": ("none", "top", "cone"), "arms": YES_NO},
            ({"hat": ("cone",), "balls": (3,)}, {"radius": (4,), "arms": (True,), "hat": ("none",)}),
        ),
        Family(
            plane,
            {"sides": (6, 8), "length": (12, 14, 16), "span": (6, 8), "sweep_back": (0, 1, 2), "engines": ("none", "propeller", "jets")},
            ({"engines": ("propeller",), "sweep_back": (1,)}, {"span": (8,), "length": (14,)}),
        ),
        Family(
            rock,
            {"variant": tuple(range(40)), "flat": (0.625, 0.75, 1), "wide": (1, 1.25)},
            ({"variant": (0, 1, 2, 3)}, {"flat": (1,), "wide": (1.25,)}),
        ),
        Family(
            boat,
            {"length": (12, 14, 16), "width": (5, 6), "height": (2, 3), "kind": ("sail", "cabin"), "mast": (8, 10)},
            ({"kind": ("sail",), "length": (14,)}, {"width": (6,), "height": (3,), "mast": (10,)}),
        ),
        Family(
            chess_piece,
            {"kind": ("pawn", "rook", "bishop", "queen", "king"), "sides": (6, 8), "base": (3, 3.5), "height": (6, 8), "collar": (2, 2.5)},
            ({"kind": ("bishop",), "height": (8,)}, {"base": (3.5,), "collar": (2.5,), "sides": (8,)}),
        ),
    )
}  # fmt: skip

"""Families of furniture."""

from __future__ import annotations

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    Solid,
    box,
    circle,
    four,
    join,
    lathe,
    level,
    loft,
    pair,
    prism,
    rectangle,
    ring_of,
    row,
    sweep,
)


def table(top: str, width: float, depth: float, height: float, legs: str, bar: bool) -> Parts:
    """A slab or a round plate on four legs, tapered legs or a pedestal."""
    plate = prism(circle(8, width / 2, 0.5), 1, height - 1) if top == "round" else box(width, 1, depth, y=height - 1)
    reach = (width * 0.25, width * 0.25) if top == "round" else (width / 2 - 1, depth / 2 - 1)
    if legs == "pedestal":
        return {"top": plate, "pole": box(1.5, height - 1, 1.5, y=0.5), "foot": box(reach[0] * 1.5, 1, reach[1] * 1.5, taper=0.75)}
    # Legs stand on their thin end and reach half-way into the plate.
    leg = loft([level(rectangle(1, 1), 0, 0.5 if legs == "tapered" else 1), level(rectangle(1, 1), height - 0.5)])
    parts = {"top": plate, "legs": four(leg.move(reach[0], 0, reach[1]))}
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
        parts["books"] = join((left if i % 2 == 0 or books == "left" else right).move(y=0.75 + i * gap) for i in range(shelves))
    return parts


def lamp(kind: str, sides: int, height: float, shade: float, drum: float) -> Parts:
    """A foot, a pole and a shade; the pole of a desk lamp has an elbow."""
    foot = lathe([(3, 0), (3, 0.75), (1, 1.5)], sides)
    if kind == "desk":
        path = [(0, 1), (0, height * 0.5), (height * 0.375, height * 0.75)]
        head = lathe([(shade * 0.75, 0), (shade * 0.375, 2.5)], sides).rotate(-30, "z")
        return {"foot": foot, "pole": sweep(path, rectangle(0.75, 0.75)), "shade": head.move(height * 0.375, height * 0.75 - 1.5)}
    pole = prism(circle(4, 0.5), height - 1, 1)
    return {"foot": foot, "pole": pole, "shade": lathe([(shade, height - 2), (shade * drum, height + 2)], sides)}


def desk(width: float, depth: float, height: float, drawers: int, side: str, screen: bool) -> Parts:
    """A top on one or two stacks of drawers; in place of a second stack there is a panel or a pair of legs. Perhaps with a screen."""
    x, z = width / 2 - 2, depth / 2 - 0.5
    tall = (height - 1.5) / drawers
    stack = join([box(3, height - 0.5, depth - 1, x)] + [box(2.5, tall - 0.5, 0.75, x, 0.75 + i * tall, z) for i in range(drawers)])
    parts = {"top": box(width, 1, depth, y=height - 1), "drawers": pair(stack) if side == "drawers" else stack}
    if side == "panel":
        parts["panel"] = box(0.75, height - 0.5, depth - 1, -width / 2 + 1)
    elif side == "legs":
        parts["legs"] = join(box(1, height - 0.5, 1, -width / 2 + 1, 0, s * (depth / 2 - 1)) for s in (-1, 1))
    if screen:
        parts["screen"] = join(
            [box(5, 3.5, 0.5, 0, height + 1, -0.5), box(1, 2, 0.5, 0, height - 0.25, -1), box(2.5, 0.5, 1.5, 0, height - 0.25, -1)]
        )
    return parts


def cabinet(kind: str, width: float, height: float, depth: float, feet: bool) -> Parts:
    """A wardrobe with two doors, a dresser with drawers or a cupboard of drawers below doors, with knobs."""
    body = box(width, height, depth, y=0.5)
    front, knobs = [], []
    z = depth / 2
    low = height if kind == "dresser" else height * 0.375 if kind == "cupboard" else 0
    rows = max(1, round(low / 2.5)) if low else 0
    for i in range(rows):
        y = 1 + (low - 0.5) / rows * i
        front.append(box(width - 1, (low - 0.5) / rows - 0.5, 0.75, y=y, z=z))
        knobs.append(box(1, 0.5, 1, y=y + (low - 0.5) / rows / 2 - 0.5, z=z + 0.5))
    if kind != "dresser":
        door = box(width / 2 - 0.75, height - low - 1, 0.75, width / 4, low + 1, z)
        front.append(pair(door))
        knobs.append(pair(box(0.5, 1.5, 0.75, 0.75, low + (height - low) / 2, z + 0.5)))
    parts = {"body": body, "fronts": join(front), "knobs": join(knobs), "top": box(width + 1, 0.75, depth + 1, y=height + 0.25)}
    if feet:
        parts["feet"] = four(box(1, 1.25, 1, width / 2 - 0.75, -0.5, depth / 2 - 0.75))
    return parts


def bench(width: float, height: float, back: str, legs: str, planks: int) -> Parts:
    """A long seat of planks on two supports, perhaps with a back of bars or a slab."""
    deep = 4.5
    wide = deep / planks
    x = width / 2 - 1.5
    parts = {
        "seat": join(box(width, 0.75, wide - (0.25 if planks > 1 else 0), 0, height, deep / 2 - wide * (i + 0.5)) for i in range(planks))
    }
    if legs == "slabs":
        parts["legs"] = pair(box(1, height + 0.25, deep - 0.5, x))
    else:
        parts["legs"] = four(box(0.75, height + 0.25, 0.75, x, 0, deep / 2 - 0.75))
    if back != "none":
        parts["posts"] = pair(box(0.75, 5, 0.75, x, height + 0.25, -deep / 2 + 0.5))
        rails = [(1.5, 3)] if back == "slab" else [(1.5, 1), (3.5, 1)]
        parts["back"] = join(box(width, tall, 0.5, 0, height + y, -deep / 2 + 1) for y, tall in rails)
    return parts


def _flame(width: float, height: float, y: float, sides: int = 5) -> Solid:
    """A drop of fire, its lowest point at y."""
    return lathe([(0, y), (width, y + height * 0.375), (0, y + height)], sides)


def candle(holder: str, sides: int, radius: float, height: float, flame: float) -> Parts:
    """A candle with a flame, alone, on a plate with a ring, on a stick, or three of them on arms."""
    ground = {"none": 0, "plate": 0.75, "stick": 5.5, "arms": 6.5}[holder]
    one = prism(circle(sides, radius), height, ground - 0.25 if ground else 0, 0.875)
    lights = _flame(0.75, flame, ground + height - 0.5)
    parts = {"candle": one, "flame": lights}
    if holder == "none":
        parts["wax"] = lathe([(radius + 0.75, 0), (radius + 0.25, 0.5)], sides)
    elif holder == "plate":
        parts["plate"] = lathe([(3, 0), (3.75, 1), (3.25, 1), (2.75, 0.5)], sides)
        parts["ring"] = sweep([(3, 0.5), (5, 1.5), (5, 0.25), (3, 0)], rectangle(0.5, 0.75)).move(y=0.25)
    elif holder == "stick":
        parts["stick"] = lathe([(3, 0), (2.5, 0.75), (0.75, 1.5), (0.75, 4.5), (1.75, 5), (1.75, 5.75)], sides)
    else:
        reach = 4.0
        parts["stick"] = lathe([(3, 0), (2.5, 0.75), (0.75, 1.5), (0.75, 5.75), (1.75, 6.75)], sides)
        parts["arms"] = pair(sweep([(0, 3.5), (reach, 3.5), (reach, 6.75)], rectangle(0.75, 0.75)))
        parts["candle"] = join([one, pair(one.move(reach))])
        parts["flame"] = join([lights, pair(lights.move(reach))])
    return parts


def torch(sides: int, length: float, head: str, flame: float, bracket: bool) -> Parts:
    """A staff with a head of cloth, a basket of bars or a bowl, under a flame; a bracket holds it away from a wall at the back."""
    parts = {"staff": lathe([(0.5, 0), (0.875, length)], 6)}
    if head == "cloth":
        parts["head"] = lathe([(1.125, length - 2.5), (1.625, length - 1), (1.25, length + 0.5)], sides)
    elif head == "bowl":
        parts["head"] = lathe([(0.75, length - 1), (2.25, length + 1), (1.75, length + 1), (0.5, length - 0.25)], sides)
    else:
        parts["head"] = lathe([(1.25, length - 0.75), (1.25, length)], sides)
        parts["bars"] = ring_of(box(0.5, 3, 0.5, 0, length - 0.5, 1.25), 4)
    parts["flame"] = _flame(1.5, flame, length - 0.25, sides)
    if bracket:
        parts["bracket"] = join([box(2.5, 4, 0.75, 0, length * 0.375, -3), box(0.75, 0.75, 3, 0, length * 0.375 + 1.5, -1.5)])
    return parts


FURNITURE = (
    ShapeFamily(
        table,
        {"top": ("slab", "slab", "round"), "width": (8, 10, 12, 14), "depth": (6, 8), "height": (6, 8, 10),
         "legs": ("straight", "tapered", "pedestal"), "bar": YES_NO},
        ({"top": ("round",), "width": (12,)}, {"top": ("slab",), "legs": ("tapered",), "height": (8,)}),
    ),
    ShapeFamily(
        chair,
        {"back": ("slab", "slats", "ladder"), "width": (7, 8, 9), "height": (5, 6, 7), "rise": (6, 8, 10), "arms": YES_NO},
        ({"back": ("slats",), "height": (7,)}, {"width": (8,), "rise": (8,)}),
    ),
    ShapeFamily(
        bed,
        {"width": (6, 8, 10), "length": (12, 14), "head": (4, 5, 6), "foot": YES_NO, "pillows": (1, 2)},
        ({"pillows": (2,), "width": (8,)}, {"head": (6,), "foot": (True,)}),
    ),
    ShapeFamily(
        sofa,
        {"seats": (1, 2, 3), "seat": (4, 5), "depth": (5, 6), "back": (5, 6), "arm": (3, 4)},
        ({"seats": (2,), "seat": (5,), "back": (6,)}, {"depth": (6,), "arm": (4,), "back": (5,)}),
    ),
    ShapeFamily(
        bookshelf,
        {"width": (8, 10), "shelves": (2, 3, 4), "gap": (3, 4), "books": ("none", "left", "both"), "plinth": YES_NO},
        ({"shelves": (3,), "books": ("left",)}, {"width": (10,), "gap": (4,), "plinth": (True,)}),
    ),
    ShapeFamily(
        lamp,
        {"kind": ("floor", "floor", "desk"), "sides": (6, 8), "height": (8, 12, 16), "shade": (3, 4), "drum": (0.5, 0.75)},
        ({"kind": ("desk",), "height": (12,)}, {"kind": ("floor",), "shade": (4,), "drum": (0.75,)}),
    ),
    ShapeFamily(
        desk,
        {"width": (12, 14, 16), "depth": (6, 7), "height": (7, 8), "drawers": (2, 3), "side": ("panel", "legs", "drawers"),
         "screen": YES_NO},
        ({"side": ("legs",), "drawers": (3,)}, {"width": (14,), "screen": (True,), "depth": (7,)}),
    ),
    ShapeFamily(
        cabinet,
        {"kind": ("wardrobe", "dresser", "cupboard"), "width": (7, 8, 10), "height": (8, 10, 12), "depth": (4, 5), "feet": YES_NO},
        ({"kind": ("cupboard",), "height": (10,)}, {"width": (8,), "depth": (5,), "feet": (True,)}),
    ),
    ShapeFamily(
        bench,
        {"width": (12, 14, 16), "height": (3, 4), "back": ("none", "slab", "bars"), "legs": ("slabs", "posts"), "planks": (1, 2, 3)},
        ({"back": ("bars",), "planks": (3,)}, {"width": (14,), "legs": ("posts",), "height": (4,)}),
    ),
    ShapeFamily(
        candle,
        {"holder": ("none", "plate", "stick", "arms"), "sides": (6, 8), "radius": (1, 1.5), "height": (4, 6, 8), "flame": (2, 3)},
        ({"holder": ("stick",), "height": (6,)}, {"radius": (1.5,), "flame": (3,), "sides": (8,)}),
    ),
    ShapeFamily(
        torch,
        {"sides": (6, 8), "length": (8, 10, 12), "head": ("cloth", "bowl", "basket"), "flame": (3, 4), "bracket": YES_NO},
        ({"head": ("bowl",), "length": (10,)}, {"flame": (4,), "bracket": (True,), "sides": (8,)}),
    ),
)  # fmt: skip

"""Families of figures: robots, snowmen, chess pieces."""

from __future__ import annotations

import numpy as np

from research.worlds.families.family import YES_NO, Parts, ShapeFamily
from research.worlds.solids import (
    ball,
    box,
    circle,
    extrude_side,
    join,
    lathe,
    level,
    loft,
    pair,
    prism,
    rectangle,
    ring_of,
    row,
)


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
        parts["treads"] = pair(extrude_side([(-2, 0), (2, 0), (3, 2.5), (-3, 2.5)], 1.5).move(2))
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
    parts["nose"] = lathe([(0.5, -0.5), (0, 1.5)], 4).rotate(90, "x").move(y=middles[-1], z=head)
    if hat == "top":
        parts["hat"] = lathe([(head, y), (head, y + 0.5), (head * 0.625, y + 0.5), (head * 0.625, y + 2.5)], sides)
    elif hat == "cone":
        parts["hat"] = lathe([(head * 0.75, y), (0, y + 3)], sides)
    if arms:
        trunk = sizes[balls - 2]
        parts["arms"] = pair(box(2.5, 0.5, 0.5, trunk + 1, middles[balls - 2] + trunk * 0.25))
    return parts


def chess_piece(kind: str, sides: int, base: float, height: float, collar: float) -> Parts:
    """A turned piece: pawn, rook, knight, bishop, queen or king."""
    neck, start = base * 0.375, height - 0.375  # heads start inside the collar, below the end of the foot
    foot = [(base, 0), (base, 1), (base * 0.625, 2), (neck, height)]
    parts = {"collar": lathe([(collar, height - 0.5), (collar, height + 0.5)], sides)}
    if kind == "knight":
        parts["body"] = lathe([*foot[:3], (base * 0.5, height)], sides)
        y, z = height, base * 0.5
        neck_side = [
            (-z - 0.5, y - 0.25),
            (z, y - 0.25),
            (z * 0.5, y + 3),
            (z * 0.25, y + 4.5),
            (-z * 0.75, y + 3.75),
            (-z * 1.25, y + 1.5),
        ]
        parts["neck"] = extrude_side(neck_side, 1.75)
        parts["muzzle"] = extrude_side([(0, y + 2.25), (z + 1.75, y + 1.75), (z + 2, y + 2.75), (z * 0.5, y + 4.25), (0, y + 4.25)], 1.375)
        parts["ears"] = pair(loft([level(rectangle(0.5, 0.75), 0), np.array([[0, 1.25, 0]])]).move(0.5, y + 3.875, 0))
        return parts
    if kind == "rook":
        parts["body"] = lathe([*foot[:3], (base * 0.5, height), (base * 0.75, height + 1), (base * 0.75, height + 3)], sides)
        parts["battlements"] = ring_of(box(1, 1.25, 1, 0, height + 2.75, base * 0.75 - 0.75), 4)
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


FIGURES = (
    ShapeFamily(
        robot,
        {"head": ("box", "prism"), "body": (4, 5, 6), "arms": ("hang", "stretch", "forwards"), "legs": ("legs", "treads"),
         "antennas": (0, 1, 2)},
        ({"arms": ("forwards",), "legs": ("treads",)}, {"antennas": (2,), "head": ("prism",)}),
    ),
    ShapeFamily(
        snowman,
        {"balls": (2, 3), "sides": (6, 8), "radius": (3, 4), "hat": ("none", "top", "cone"), "arms": YES_NO},
        ({"hat": ("cone",), "balls": (3,)}, {"radius": (4,), "arms": (True,), "hat": ("none",)}),
    ),
    ShapeFamily(
        chess_piece,
        {"kind": ("pawn", "rook", "knight", "bishop", "queen", "king"), "sides": (6, 8), "base": (3, 3.5), "height": (6, 8),
         "collar": (2, 2.5)},
        ({"kind": ("bishop",), "height": (8,)}, {"base": (3.5,), "collar": (2.5,), "sides": (8,)}),
    ),
)  # fmt: skip

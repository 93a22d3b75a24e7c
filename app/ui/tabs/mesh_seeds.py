"""The choice of a seed on the Mesh tab: several are decoded together, and the one whose mesh lies nearest is taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from app.requests import validation as asked
from app.ui import knobs as knob_panel
from engine.core import VERIFY, Backbone
from engine.errors import BadKnob
from engine.nearest import TriedSeed, nearest, seeded

TRIED = 8  # seeds
BEST = "Best of seeds {} to {}: seed {} ({}). Press Generate to make it."
OTHER = " The chosen method draws a different mesh; plain decoding and the exact methods draw this one."
NONE = "None of the {} seeds from {} on gives a mesh of this input. Try another seed, or more points with outward normals."


def best_of(found: list[TriedSeed]) -> str:
    """What is said of seeds that were tried, one of which makes a mesh."""
    best, middle = nearest(found), median(math.inf if each.chamfer is None else each.chamfer for each in found)
    others = "most others give no mesh" if math.isinf(middle) else f"{1 - best.chamfer / middle:.0%} closer than a typical one"
    return BEST.format(found[0].seed, found[-1].seed, best.seed, others)


def with_seed(name: object, knobs: object, backbone: Backbone) -> dict[str, Any] | None:
    """The panel of a method's knobs when it makes the mesh that plain decoding makes of a seed; None if it draws another one."""
    _, method = asked.method(name, backbone)
    given = {knob: value for knob, value in asked.knobs(knobs, method.knobs).items() if knob != VERIFY.name}
    try:
        found = seeded(method, given)
    except BadKnob:
        return None
    left = knobs.get("left", {}) if isinstance(knobs, Mapping) else {}
    return knob_panel.encode(str(name), method.knobs, found) | {"left": left}

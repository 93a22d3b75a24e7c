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
BEST = "Seed {} has the nearest mesh of the {} seeds from {} on; the middle one {}. Generate makes it."
OTHER = " The chosen method draws another one; plain decoding and the exact methods make it."
NONE = "None of {} seeds from {} on makes a mesh of this input. Try another seed, or more points with outward normals."


def best_of(found: list[TriedSeed]) -> str:
    """What is said of seeds that were tried, one of which makes a mesh."""
    best, middle = nearest(found), median(math.inf if each.chamfer is None else each.chamfer for each in found)
    others = "has no face" if math.isinf(middle) else f"is {middle / best.chamfer:.1f} times as far away"
    return BEST.format(best.seed, len(found), found[0].seed, others)


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

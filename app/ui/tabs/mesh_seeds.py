"""Choice of a seed on the Mesh tab: several seeds are decoded together, and the mesh nearest to the input wins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Any

from app.requests import validation
from app.ui import knobs as knob_panel
from engine.core import VERIFY, Backbone
from engine.errors import BadKnob
from engine.nearest import TriedSeed, nearest, seed_knobs

TRIED = 8  # seeds
BEST = "Best of seeds {} to {}: seed {} ({}). Press Generate to make it."
OTHER = " The selected method makes a different mesh; plain decoding and the exact methods make this one."
NONE = "None of the {} seeds from {} gives a mesh of this input. Try another seed, or more points with outward normals."


def best_of(tried: list[TriedSeed]) -> str:
    """Message about the tried seeds, of which at least one gave a mesh."""
    best, middle = nearest(tried), median(math.inf if each.chamfer is None else each.chamfer for each in tried)
    others = "most others gave no mesh" if math.isinf(middle) else f"{1 - best.chamfer / middle:.0%} closer than a typical one"
    return BEST.format(tried[0].seed, tried[-1].seed, best.seed, others)


def with_seed(name: object, knobs: object, backbone: Backbone) -> dict[str, Any] | None:
    """Panel value with knobs for the same mesh as plain decoding with the seed; None if the method cannot make it."""
    _, method = validation.method(name, backbone)
    unchecked = {knob: value for knob, value in validation.knobs(knobs, method.knobs).items() if knob != VERIFY.name}
    try:
        values = seed_knobs(method, unchecked)
    except BadKnob:
        return None
    left_behind = knobs.get("left", {}) if isinstance(knobs, Mapping) else {}
    return knob_panel.encode(str(name), method.knobs, values) | {"left": left_behind}

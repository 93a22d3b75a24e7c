"""Builds controls from the engine's Knob declarations: one panel shows sliders and menus for any list of knobs.

A slider moves over `stops`, the list of values it can take, so a logarithmic knob needs no special code in the browser and
always shows its real value. The panel's value holds declarations and values; a move sends it back whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr
import numpy as np

from app.ui.panels import panel
from engine.core import Knob, Knobs, Method

LOG_STOPS = 64
TEMPLATE = '<div class="ft-knobs"></div>'


def build(value: dict[str, Any], elem_id: str) -> gr.HTML:
    """The panel of controls."""
    return panel("knobs", value, TEMPLATE, elem_id=elem_id)


def encode(
    name: str,
    knobs: Iterable[Knob],
    values: Mapping[str, float | str] | None = None,
    words: Mapping[str, Mapping[float, str]] | None = None,
) -> dict[str, Any]:
    """The panel's value for some knobs. Its declarations are a text, because the browser copies a field's value again and again.

    name: of their owner; values: those that differ from the defaults; words: by knob, text that replaces some numbers
    """
    knobs = tuple(knobs)
    own_values, texts = values or {}, words or {}
    return {
        "name": name,
        "declarations": json.dumps([declare(k) | {"words": {f"{n:g}": text for n, text in texts.get(k.name, {}).items()}} for k in knobs]),
        "values": {k.name: own_values.get(k.name, k.default) for k in knobs},
        "left": {},  # by owner, the values that were left behind for another one
    }


def declare(knob: Knob) -> dict[str, Any]:
    """Description of a knob for the browser."""
    return {
        "name": knob.name,
        "label": label(knob),
        "symbol": knob.symbol,
        "help": explanation(knob),
        "default": knob.default,
        "choices": list(knob.choices),
        "said": [f"{knob.words[each]} ({each})" if each in knob.words else each for each in knob.choices],
        "stops": [] if knob.choices else stops(knob),
        "live": knob.live,
        "when": list(knob.when),
    }


def label(knob: Knob) -> str:
    """The name of a knob in words."""
    return knob.label or knob.name.replace("_", " ").capitalize()


def explanation(knob: Knob) -> str:
    """Help text of a knob, with its name on the command line where the page's label is another one."""
    return f"{knob.help} On the command line: {knob.name}." if knob.help and knob.label else knob.help


def stops(knob: Knob) -> list[float]:
    """The values a slider can take, ascending, both ends and the default among them."""
    if knob.scale == "log":
        first = max(knob.low, knob.step)  # log scales have no zero; a knob that allows it gets it as an extra stop
        doublings = first * 2.0 ** np.arange(math.floor(math.log2(knob.high / first)) + 1)  # usual widths of a pass
        values = [knob.low, *np.geomspace(first, knob.high, LOG_STOPS), *doublings]
    else:
        values = np.arange(knob.low, knob.high + knob.step / 2, knob.step)
    on_grid = {knob.low + round((v - knob.low) / knob.step) * knob.step for v in values}
    within = {round(v, 9) for v in on_grid if v <= knob.high + 1e-9}
    return [int(v) if float(v).is_integer() else float(v) for v in sorted(within | {float(knob.default), float(knob.high)})]


def badge(method: Method, values: Mapping[str, float | str]) -> dict[str, Any]:
    """Exactness of these settings, with the method's explanation."""
    knobs = Knobs({k.name: values.get(k.name, k.default) for k in method.knobs})
    return {"exact": method.exact(knobs), "why": method.why(knobs)}

"""Builds sliders and menus from the engine's Knob declarations.

A slider moves over `stops`, the list of its possible values, so the browser needs no special code for logarithmic knobs and always
shows the real value. The panel's value contains declarations and values; moving a knob sends all of it back.
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
    """The panel's value for some knobs. Declarations are one JSON string, because the browser copies the value often.

    name : of the knobs' owner; values : values that differ from the defaults; words : by knob, texts shown in place of some numbers
    """
    knobs = tuple(knobs)
    own_values, texts = values or {}, words or {}
    return {
        "name": name,
        "declarations": json.dumps([declare(k) | {"words": {f"{n:g}": text for n, text in texts.get(k.name, {}).items()}} for k in knobs]),
        "values": {k.name: own_values.get(k.name, k.default) for k in knobs},
        "left": {},  # by owner, its values when another owner was chosen
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
        "choice_labels": [f"{knob.words[each]} ({each})" if each in knob.words else each for each in knob.choices],
        "stops": [] if knob.choices else stops(knob),
        "live": knob.live,
        "when": list(knob.when),
    }


def label(knob: Knob) -> str:
    """Label of a knob."""
    return knob.label or knob.name.replace("_", " ").capitalize()


def moved(knob: Knob, *values: float | str) -> dict[str, str]:
    """A moved knob in words: its symbol or label, and its values before and after."""
    before, after = (knob.words.get(v, v) if isinstance(v, str) else f"{v:g}" for v in values)
    return {"letter": knob.symbol or label(knob), "before": before, "after": after}


def explanation(knob: Knob) -> str:
    """Help text of a knob, with its name in commands and the API if the label differs."""
    return f"{knob.help} Also called {knob.name}." if knob.help and knob.label else knob.help


def stops(knob: Knob) -> list[float]:
    """Values that a slider can take, ascending, including both ends and the default."""
    if knob.scale == "log":
        first = max(knob.low, knob.step)  # a log scale has no zero, so zero is an extra stop
        doublings = first * 2.0 ** np.arange(math.floor(math.log2(knob.high / first)) + 1)  # common widths of a pass
        values = [knob.low, *np.geomspace(first, knob.high, LOG_STOPS), *doublings]
    else:
        values = np.arange(knob.low, knob.high + knob.step / 2, knob.step)
    on_grid = {knob.low + round((v - knob.low) / knob.step) * knob.step for v in values}
    within = {round(v, 9) for v in on_grid if v <= knob.high + 1e-9}
    return [int(v) if float(v).is_integer() else float(v) for v in sorted(within | {float(knob.default), float(knob.high)})]


def badge(method: Method, values: Mapping[str, float | str]) -> dict[str, Any]:
    """Exactness of a method with these knob values, and its explanation."""
    knobs = Knobs({k.name: values.get(k.name, k.default) for k in method.knobs})
    return {"exact": method.exact(knobs), "why": method.why(knobs)}

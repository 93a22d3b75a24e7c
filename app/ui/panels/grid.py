"""Nine pictures or meshes that grow together, in place of both sides of the race; a click races one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from app.ui.panels import panel
from app.ui.panels.canvas import growing_url

TEMPLATE = """
<section class="ft-grid" hidden>
  <div class="ft-grid-cells"></div>
  <p class="ft-grid-hint"></p>
  <p class="ft-grid-axes" hidden>One seed, three values each of <select aria-label="Across"></select> across and <select aria-label="Down">
    </select> down <button type="button" class="ft-instead">Draw</button></p>
</section>
"""
HINT = "Click one to race it against plain decoding."


def build(elem_id: str) -> gr.HTML:
    """Builds the grid, hidden while its value is None. Its "input" requests a grid of two knobs."""
    return panel("grid", None, TEMPLATE, elem_id=elem_id)


def cell(board: Any, label: str, words: str = "", settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Value of one result. board : see `growing_url`; words : about it; settings : of its run, once it has ended"""
    shown = growing_url(board) if board.count else ""
    return {"label": label, "seed": board.run.prompt.seed, "picture": shown, "words": words, "settings": settings}


def value(
    cells: Sequence[Mapping[str, Any]], state: str, best: int | None = None, knobs: Sequence[tuple[str, str]] = (),
    axes: Sequence[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Value of the panel. best : index of the framed one; knobs : (name, label) of those that can be varied; axes : those that are"""
    hint = HINT if state == "done" else ""
    return {"state": state, "cells": list(cells), "best": best, "knobs": list(knobs), "axes": list(axes or []), "hint": hint}

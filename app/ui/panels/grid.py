"""Nine pictures of one prompt that grow together, in place of both sides of the race; a click races one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from app.live.boards.picture import Board
from app.ui.panels import panel
from app.ui.panels.canvas import data_url

TEMPLATE = """
<section class="ft-grid" hidden>
  <div class="ft-grid-cells"></div>
  <p class="ft-grid-hint"></p>
  <p class="ft-grid-axes" hidden>One seed, three values each of <select aria-label="Across"></select> across and <select aria-label="Down">
    </select> down <button type="button" class="ft-instead">Draw</button></p>
</section>
"""
HINT = "Click a picture to race it against plain decoding."


def build(elem_id: str) -> gr.HTML:
    """Builds the grid, hidden while its value is None. Its "input" requests a grid of two knobs."""
    return panel("grid", None, TEMPLATE, elem_id=elem_id)


def cell(board: Board, label: str, words: str = "", settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Value of one picture. words : what the judge sees in it; settings : of its run, once it has ended"""
    shown, run = data_url(board.picture(), lossless=False) if board.count else "", board.run
    picture = {"label": label, "seed": run.prompt.seed, "picture": shown, "words": words, "settings": settings}
    return picture | {"tokens": len(run.tokens), "limit": len(board.verdict)}


def value(
    cells: Sequence[Mapping[str, Any]], state: str, best: int | None = None, knobs: Sequence[tuple[str, str]] = (),
    axes: Sequence[str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Value of the panel. best : index of the framed picture; knobs : (name, label) of those that can be varied; axes : those that are"""
    hint = HINT if state == "done" else ""
    return {"state": state, "cells": list(cells), "best": best, "knobs": list(knobs), "axes": list(axes or []), "hint": hint}

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
</section>
"""
HINT = "Click a picture to race it against plain decoding."


def build(elem_id: str) -> gr.HTML:
    """Builds the grid, hidden while its value is None."""
    return panel("grid", None, TEMPLATE, elem_id=elem_id)


def cell(board: Board, words: str = "") -> dict[str, Any]:
    """Value of one picture. words : what the judge sees in it"""
    shown = data_url(board.picture(), lossless=False) if board.count else ""
    return {"seed": board.run.prompt.seed, "picture": shown, "tokens": len(board.run.tokens), "limit": len(board.verdict), "words": words}


def value(
    cells: Sequence[Mapping[str, Any]], state: str, best: int | None = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Value of the panel. best : index of the framed picture; settings : of a run, which differs from the others only by its seed"""
    return {"state": state, "cells": list(cells), "best": best, "settings": settings, "hint": HINT if settings else ""}

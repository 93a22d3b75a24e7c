"""Distribution at the place under the pointer: the most probable tokens as patches, their probabilities, and the token that was drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.odds import Odds, odds
from app.live.boards.patches import PLAIN, SIDE, Patches
from app.live.boards.picture import Board
from app.ui.panels import PATCHES, panel, to_text
from app.ui.panels.canvas import data_url
from app.ui.panels.race import RaceFrame, RacePanel

TEMPLATE = """
<section class="ft-chart ft-odds" data-state="empty">
  <header><h3>What the model could have drawn here</h3><p class="ft-about-chart"></p><output aria-live="polite"></output></header>
  <figure><canvas></canvas></figure>
</section>
"""
IDLE = {"state": "empty", "about": "After a run, point at the picture to see what else the model could have drawn there."}
ELSEWHERE = {"state": "empty", "about": "Not available here: runs are decoded in another process, which keeps the distributions."}


def build(elem_id: str = "odds") -> gr.HTML:
    """Builds the panel."""
    constants = {"SHEET": json.dumps([PLAIN, SIDE])}
    return panel("odds", dict(IDLE), TEMPLATE, constants, before=PATCHES, elem_id=elem_id)


def encode(board: Board, choices: Odds, patches: Patches, caption: Mapping[str, str]) -> dict[str, Any]:
    """Everything the script draws.

    tokens : int32 [positions * top]; p : float32, their probabilities; own, drawn : committed token and its probability per position
    sheet : patches of the tokens in `known`, "" if the model has no patches
    """
    known = np.unique(np.concatenate([choices.tokens.ravel(), board.token]))
    return {
        "state": "done",
        "about": "The most probable tokens at this place, given the tokens before it. Framed: what the model did draw.",
        "title": board.run.method.title,
        "made": dict(caption),
        "columns": board.columns,
        "top": choices.tokens.shape[1],
        "tokens": to_text(choices.tokens),
        "p": to_text(choices.p),
        "own": to_text(board.token),
        "drawn": to_text(choices.drawn),
        "known": to_text(known.astype(np.int32)),
        "sheet": data_url(patches.sheet(known.tolist()), lossless=False) if patches.is_available else "",
    }


def end_value(frame: RaceFrame) -> dict[str, Any] | None:
    """Value of a finished race; also sets its map of top-1 probabilities. None if the run was stopped or decoded in another process."""
    choices = odds(frame.fast.run) if frame.here else None
    if choices is None:
        return None
    frame.fast.top = choices.p[:, 0]
    return encode(frame.fast, choices, frame.patches, frame.caption)


PANEL = RacePanel("odds", build, IDLE, ELSEWHERE, end_value=end_value)

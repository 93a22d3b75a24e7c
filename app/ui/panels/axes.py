"""Buttons to choose the up axis: six small pictures of the input, and Auto, which lets a network decide."""

from __future__ import annotations

from typing import Any

import gradio as gr
import numpy as np

from app.ui.panels import panel, to_text
from app.ui.panels.clouds import SIDE, dots
from engine.mesh.frame import UP

AUTO = "auto"
DOTS = 400  # points of a picture
TEMPLATE = """
<div class="ft-axes">
  <div class="ft-axes-head"><span class="ft-name">Up axis</span>
    <button type="button" class="ft-help" data-tip="{help}" aria-label="{help}">?</button>
    <button type="button" class="ft-auto" data-up="auto">Auto</button></div>
  <div class="ft-axes-grid" role="group" aria-label="Up axis of the file"></div>
</div>
"""
HELP = "The file's axis that points up. Click the picture that is upright. Auto: a network decides."


def build(elem_id: str) -> gr.HTML:
    """Builds the buttons, without pictures."""
    return panel("axes", empty_value(), TEMPLATE.format(help=HELP), {"SIDE": str(SIDE)}, before=("tiles",), elem_id=elem_id)


def empty_value() -> dict[str, Any]:
    """The panel's value without an input."""
    return {"up": AUTO, "taken": "", "pictures": {name: "" for name in UP}}


def encode(points: np.ndarray, current: str, up: str) -> dict[str, Any]:
    """The panel's value.

    points : [N, 6], positions and normals; current : the axis of the file that is up in them; up : the choice, an axis or AUTO
    """
    back = np.array(UP[current], np.float64)
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), 4 * DOTS)).astype(int)]
    pictures = {}
    for name, rotation in UP.items():
        turn = (np.array(rotation, np.float64) @ back.T).T
        turned = np.concatenate([chosen[:, :3] @ turn, chosen[:, 3:] @ turn], 1)
        pictures[name] = to_text(dots(turned, DOTS))
    return {"up": up, "taken": current, "pictures": pictures}

"""The only output of a run: it passes new values on to the panels that changed.

With one output per panel, Gradio would rebuild even unchanged components, which is slow. Here all panels of a tab share one value, and
the script distributes its parts. Each part has a number, so only changed panels are redrawn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

from app.ui.panels.unseen import unseen


def build(panels: Mapping[str, Component], elem_id: str) -> gr.HTML:
    """Builds the output. panels : the panels to fill, by the names used in `Screen.show`"""
    ids = json.dumps({name: part.elem_id for name, part in panels.items()})
    return unseen("live", elem_id, {}, {"PANELS": ids})


class Screen:
    """Values of a visitor's panels that were set during one event."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}

    def show(self, **values: Any) -> dict[str, Any]:
        """Sets the values of panels; returns the value of the output."""
        now = time.time_ns()
        self.parts |= {name: {"number": now, "value": value} for name, value in values.items()}
        return dict(self.parts)

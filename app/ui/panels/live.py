"""The one output of a run: it brings every panel that changed its new value.

An output of its own for every panel would be slow: for each that stays as it is, Gradio rebuilds the component. A tab's panels are
therefore one value here, and the script hands the parts on. A part has a number, so that a panel is drawn only if it changed.
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
    """The output. panels: by the names that `Screen` is given, the panels that it fills"""
    ids = json.dumps({name: part.elem_id for name, part in panels.items()})
    return unseen("live", elem_id, {}, {"PANELS": ids})


class Screen:
    """State of one visitor's panels, as far as it was set here."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, Any]] = {}

    def show(self, **values: Any) -> dict[str, Any]:
        """The output's value after these panels changed."""
        now = time.time_ns()
        self.parts |= {name: {"number": now, "value": value} for name, value in values.items()}
        return dict(self.parts)

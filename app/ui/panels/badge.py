"""Text below a method: exact or not, and why. The script also sends it to the line of controls."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.ui.panels import panel

TEMPLATE = '<p class="ft-exact"><span class="ft-badge"></span> <span class="ft-because"></span></p>'


def build(value: dict[str, Any], elem_id: str) -> gr.HTML:
    """Builds the text. value : from method_menu.badge"""
    return panel("badge", value, TEMPLATE, elem_id=elem_id)

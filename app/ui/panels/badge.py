"""The words below a method: whether its settings are exact, and why. The script tells them to the line of controls, too."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.ui.panels import panel

TEMPLATE = '<p class="ft-exact"><span class="ft-badge"></span> <span class="ft-because"></span></p>'


def build(value: dict[str, Any], elem_id: str) -> gr.HTML:
    """The words. value: as method_menu.badge makes it"""
    return panel("badge", value, TEMPLATE, elem_id=elem_id)

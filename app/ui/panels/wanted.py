"""Settings that another tab wants to have here: an unseen panel whose value they become."""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel

TEMPLATE = '<i class="ft-wanted" hidden></i>'


def build(elem_id: str) -> gr.HTML:
    """The panel of the Mesh tab."""
    return panel("wanted", None, TEMPLATE, elem_id=elem_id, elem_classes=["ft-panel", "ft-unseen"])

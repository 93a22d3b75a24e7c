"""Settings that another part of the page wants to have here: an unseen panel whose value they become."""

from __future__ import annotations

import json

import gradio as gr

from app.ui.panels import panel

TEMPLATE = '<i class="ft-wanted" hidden></i>'


def build(elem_id: str, opened: str = "") -> gr.HTML:
    """The panel. opened : a selector of something that is on the page once the tab has its own first values, "" = at once"""
    constants = {"OPENED": json.dumps(opened)}
    return panel("wanted", None, TEMPLATE, constants, before=("asking",), elem_id=elem_id, elem_classes=["ft-panel", "ft-unseen"])

"""Brings a finished race to a page that has none: to every panel the value that it had at the end."""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel


def build(elem_id: str) -> gr.HTML:
    """The panel, which is never seen. Its value: the panels' values by their ids, sent once the page is there"""
    return panel("example", {}, '<i class="ft-live-values" hidden></i>', elem_id=elem_id, elem_classes=["ft-panel", "ft-unseen"])

"""The cards of menus whose model is loaded behind the page: an unseen panel that gives them to the menus."""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel

TEMPLATE = '<i class="ft-offered" hidden></i>'


def build(elem_id: str) -> gr.HTML:
    """The panel. Its value is cards, as method_menu.cards makes them, by the ids of the menus"""
    return panel("offered", {}, TEMPLATE, elem_id=elem_id, elem_classes=["ft-panel", "ft-unseen"])

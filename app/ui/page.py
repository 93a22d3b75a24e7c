"""Builds the page: the header and the tabs of TABS."""

from __future__ import annotations

import importlib

import gradio as gr

from app.shared import StudioState
from app.ui import TABS
from app.ui.style import header
from app.ui.tab_context import TabContext


def build(page: gr.Blocks, studio: StudioState) -> None:
    """Builds the header, the tabs and the privacy note inside the page's context."""
    header.build(studio.backbone, studio.mesh)
    with gr.Tabs(elem_id="tabs"):
        for name, module in TABS.items():
            with gr.Tab(name, id=name.lower()) as tab:
                importlib.import_module(module).build(TabContext(page, tab, studio))
    if studio.limits.shared:
        gr.HTML(f'<p class="ft-privacy">{studio.limits.privacy}</p>', elem_id="privacy", apply_default_css=False)

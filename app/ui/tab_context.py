"""Context of a tab."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.shared import StudioState


@dataclass(frozen=True)
class TabContext:
    """One tab of a studio's page."""

    page: gr.Blocks
    tab: gr.Tab
    studio: StudioState

"""Arguments of a tab's `build`."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.shared import StudioState


@dataclass(frozen=True)
class TabContext:
    """A tab, its page, and the studio that they belong to."""

    page: gr.Blocks
    tab: gr.Tab
    studio: StudioState

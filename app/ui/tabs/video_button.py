"""The button of an MP4 where the encoder is not installed: it says what to install."""

from __future__ import annotations

import gradio as gr

from app.runs import video
from app.ui.tabs.racing import DIRECT


def build(label: str, elem_id: str) -> gr.Button:
    """The button; pressed, it has the sentence in place of its label."""
    button = gr.Button(label, size="sm", elem_id=elem_id, scale=0, min_width=120)
    button.click(lambda: gr.Button(video.MISSING, interactive=False), None, button, **DIRECT)
    return button

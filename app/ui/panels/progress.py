"""Progress of a long run: a bar, the current task and the remaining time."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.ui.panels import panel

TEMPLATE = """
<div class="ft-going" data-state="empty">
  <p class="ft-going-text" role="status"></p>
  <div class="ft-going-bar" role="progressbar" aria-label="Progress" aria-valuemin="0"><b></b></div>
  <p class="ft-going-detail"></p>
</div>
"""


def build(idle: dict[str, Any], elem_id: str) -> gr.HTML:
    """Builds the bar. idle : its value before the first run"""
    return panel("progress", idle, TEMPLATE, elem_id=elem_id)


def encode(text: str, done: int, of: int, detail: str = "", state: str = "running") -> dict[str, Any]:
    """The panel's value. state : empty (no bar), running, done or stopped"""
    return {"state": state, "text": text, "done": done, "of": of, "detail": detail}

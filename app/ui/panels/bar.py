"""The line of controls below the prompt or the cloud: picture size, a summary of the method, and what the model can draw.

It works in the browser. The size buttons set a knob of the settings panel; the summary opens the settings.
"""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel

WORDS = """
  <div class="ft-segments" role="group" aria-label="Size of the picture" data-part="sizes" hidden></div>
  <button type="button" class="ft-summary" data-do="words" aria-expanded="false">What it can draw</button>"""
TEMPLATE = """
<div class="ft-controls">{}
  <button type="button" class="ft-summary" data-do="settings" aria-expanded="false" aria-label="Method and settings"></button>
</div>
"""


def build(settings: str, elem_id: str = "bar", words: bool = True) -> gr.HTML:
    """Builds the line. settings : id of the panel with the knob `size`; words : with sizes and vocabulary"""
    return panel("bar", {"settings": settings}, TEMPLATE.format(WORDS if words else ""), elem_id=elem_id)

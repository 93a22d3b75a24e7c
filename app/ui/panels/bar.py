"""The line of controls below the prompt or the cloud: a picture's size, the method in a few words, and what the model can draw.

It works in the browser: the size is a knob of the settings, which the line only shows in another form, and the method opens the settings.
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
    """The line. settings: the id of the panel with the knob `size`; words: there are sizes and words to choose from"""
    return panel("bar", {"settings": settings}, TEMPLATE.format(WORDS if words else ""), elem_id=elem_id)

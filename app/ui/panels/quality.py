"""The table of the finished meshes, which app/ui/tabs/quality_table.py fills; hidden while nothing is finished."""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel
from app.ui.panels.race import RacePanel

TEMPLATE = """
<div class="ft-quality-box" tabindex="0" role="region" aria-label="Quality of the meshes" hidden>
  <table class="ft-quality"><thead></thead><tbody></tbody></table>
  <div class="ft-spent"></div>
</div>
"""


def build(elem_id: str) -> gr.HTML:
    """The panel."""
    return panel("quality", None, TEMPLATE, elem_id=elem_id)


PANEL = RacePanel("quality", build)  # its value needs the input, which the tab has

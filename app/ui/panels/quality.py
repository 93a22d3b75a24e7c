"""Table of the quality of finished meshes, filled by app/ui/tabs/quality_table.py; hidden while empty."""

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
    """Builds the table."""
    return panel("quality", None, TEMPLATE, elem_id=elem_id)


PANEL = RacePanel("quality", build)  # the tab sets its value, which needs the input

"""Header of the page: name, loaded models, and the switch between dark and light."""

from __future__ import annotations

import gradio as gr

from app.live.boards.lazy import Lazy
from app.ui.panels import panel
from engine.core import Backbone

TEMPLATE = """
<div class="ft-header">
  <svg class="ft-mark" viewBox="0 0 32 32" aria-hidden="true">
    <rect x="2" y="2" width="8" height="8" rx="2"/><rect x="12" y="2" width="8" height="8" rx="2"/>
    <rect x="22" y="2" width="8" height="8" rx="2"/><rect x="2" y="12" width="8" height="8" rx="2"/>
    <rect x="12" y="12" width="8" height="8" rx="2"/><rect x="22" y="12" width="8" height="8" rx="2" class="draft"/>
    <rect x="2" y="22" width="8" height="8" rx="2" class="draft"/>
    <rect x="12" y="22" width="8" height="8" rx="2" class="draft"/>
  </svg>
  <h1>Foretoken</h1>
  <span class="ft-loaded"></span>
  <button type="button" class="ft-theme" aria-label="Switch between dark and light"></button>
</div>
<p class="ft-lost" role="alert" hidden>The studio has stopped. Start it again; your runs are kept.</p>
"""


def build(backbone: Backbone, mesh: Lazy) -> gr.HTML:
    """Builds the header."""
    names = " and ".join([backbone.name] + [mesh.name] * mesh.is_present)
    return panel("header", {"loaded": f"{names} on {backbone.device}"}, TEMPLATE, before=("asking", "drop", "tabs"), elem_id="header")

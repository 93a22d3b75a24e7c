"""Menu of methods, as cards in groups; its value is the chosen name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.ui.panels import panel

TEMPLATE = """
<div class="ft-pick">
  <button type="button" class="ft-picked" aria-haspopup="dialog" aria-expanded="false">
    <b></b><span class="ft-badge"></span><small></small></button>
  <div class="ft-cards" role="dialog" aria-label="Methods" hidden></div>
</div>
"""


def build(name: str, cards: Sequence[dict[str, Any]], elem_id: str) -> gr.HTML:
    """Builds the menu. cards : from method_menu.cards"""
    return panel("methods", name, TEMPLATE, {"CARDS": json.dumps(list(cards))}, elem_id=elem_id)

"""The menu of methods as cards in groups. Its value is the name of the chosen one."""

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
    """The menu. cards: as method_menu.cards makes them"""
    return panel("methods", name, TEMPLATE, {"CARDS": json.dumps(list(cards))}, elem_id=elem_id)

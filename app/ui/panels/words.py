"""Drawer of the words that a model knows, as buttons that add them to the prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import gradio as gr

from app.ui.panels import panel

TEMPLATE = """
<section class="ft-words-drawer" aria-label="What it can draw" hidden>
  <header><h3>What it can draw</h3>
    <input type="search" placeholder="Search" aria-label="Search the words"><button type="button" data-do="close">Close</button></header>
  <div class="ft-word-groups"></div>
</section>
"""


def build(groups: Sequence[dict[str, Any]], prompt: str, elem_id: str = "words") -> gr.HTML:
    """Builds the drawer, initially closed. groups : from app.ui.tabs.vocabulary; prompt : id of the prompt field"""
    return panel("words", None, TEMPLATE, {"GROUPS": json.dumps(list(groups), ensure_ascii=False), "PROMPT": json.dumps(prompt)},
                 before=("prompt",), elem_id=elem_id)  # fmt: skip

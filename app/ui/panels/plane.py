"""Chart of speed against fidelity, with its table, for recorded benchmarks and the one measured on the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from app.ui.panels import PLOT, elsewhere, panel

HERE = "here"  # name of the table measured on the page
TEMPLATE = """
<section class="ft-chart ft-plane" data-state="empty">
  <header>
    <h3>Speed and fidelity</h3>
    <label class="ft-which"><span>Table</span><select class="ft-control" aria-label="Table of measurements"></select></label>
    <p class="ft-about-chart"></p>
  </header>{elsewhere}
  <figure><div class="ft-plot"></div></figure>
  <p class="ft-good"></p>
  <div class="ft-point"><output aria-live="polite"></output><button type="button" data-do="load" hidden></button></div>
  <div class="ft-bench-table" tabindex="0" role="region" aria-label="Table of measurements">
    <table><thead></thead><tbody></tbody></table>
  </div>
</section>
"""


def build(tables: Sequence[Mapping[str, Any]], elem_id: str = "plane") -> gr.HTML:
    """Builds the panel; its value is the table measured on the page, None = none yet. tables : recorded, see app/ui/tabs/bench_rows.py"""
    constants = {"TABLES": json.dumps(list(tables)), "HERE": json.dumps(HERE)}
    template = TEMPLATE.replace("{elsewhere}", elsewhere.TEMPLATE)
    return panel("plane", None, template, constants, before=("asking", *PLOT, "elsewhere"), elem_id=elem_id)

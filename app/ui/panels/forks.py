"""Forks of the race on display: buttons and a form to go on from one of its tokens in another way, and the tree of its forks."""

from __future__ import annotations

import json
from collections.abc import Sequence

import gradio as gr

from app.live.boards.patches import PLAIN, SIDE
from app.requests.limits import LARGEST_SEED, LONGEST_PROMPT
from app.ui.panels import MESH_TOKENS, panel
from app.ui.panels.runs import RunsTable
from engine.methods import find

TEMPLATE = """
<section class="ft-forks" hidden>
  <div class="ft-forks-acts">
    <button type="button" data-do="fork" aria-expanded="false">Fork here</button>
    <button type="button" data-do="vary" aria-expanded="false">Vary</button>
    <p class="ft-forks-place"></p>
  </div>
  <form class="ft-fork-form" hidden>
    <canvas data-kind="image" width="128" height="128" role="img" aria-label="The part that is kept"></canvas>
    <div class="ft-fork-fields">
      <label class="ft-fork-wide">Keep <output></output><input class="ft-control" type="range" name="at"></label>
      <fieldset class="ft-fork-wide" data-for="fork"><legend>Next token</legend><div class="ft-fork-tokens"></div></fieldset>
      <label class="ft-fork-wide" data-for="fork" data-kind="image">Prompt<input name="prompt" maxlength="{longest}"></label>
      <label data-for="fork">Method<select name="method"></select></label>
      <label data-for="fork">Temperature<input name="temperature" type="number" min="0" max="2" step="0.05"></label>
      <label>Seed<input name="seed" type="number" min="0" max="{largest}" step="1"></label>
      <button type="submit" class="ft-fork-go"></button>
      <p class="ft-fork-wide ft-fork-hint" role="status"></p>
    </div>
  </form>
  <nav class="ft-fork-tree" aria-label="Forks of this run" hidden></nav>
</section>
"""


def build(kind: RunsTable, methods: Sequence[tuple[str, str]], elem_id: str) -> gr.HTML:
    """Builds the panel, hidden until a finished run is shown. kind : of the runs; methods : (title, name) of the model's methods"""
    fitting = [(title, name) for title, name in methods if find(name)[0].forks]
    constants = {
        "SHEET": json.dumps([PLAIN, SIDE]),
        "SIDES": json.dumps(kind.sides),
        "METHODS": json.dumps(fitting),
        "LARGEST": str(LARGEST_SEED),
        "KIND": json.dumps(kind.name),
        "LENS": json.dumps(kind.elem_id.replace("runs", "lens")),
        **MESH_TOKENS,
    }
    template = TEMPLATE.format(longest=LONGEST_PROMPT, largest=LARGEST_SEED)
    return panel("forks", None, template, constants, before=("patches", "mesh_tokens"), elem_id=elem_id)

"""The line above a race of two to four runs chosen in the table of runs: what the runs have in common, and downloads.

The browser replays the race from its own memory; the server only makes the files, from data that the page sends back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import gradio as gr

from app.ui.panels import panel
from app.ui.panels.canvas import LANES

FILES = {"gif": "GIF of this race", "mp4": "MP4 of this race", "html": "HTML replay of this race"}
TEMPLATE = """
<section class="ft-lanes-head" tabindex="-1" aria-label="Race of the chosen runs">
  <div><h2></h2><p class="ft-lanes-shared"></p></div>
  <div class="ft-lanes-acts">{files}<button type="button" data-do="close">Back to the last race</button></div>
  <p class="ft-lanes-status" role="status"></p>
</section>
"""


def build(elem_id: str, last: str, views: Sequence[str], file: str, kinds: Sequence[str]) -> gr.HTML:
    """Builds the line. last : storage key of the race on display; views : ids of the panels of the lanes, one per lane or one for all;
    file : id of the download button; kinds : the FILES that can be made here"""
    buttons = "".join(f'<button type="button" data-make="{kind}">{FILES[kind]}</button>' for kind in kinds)
    constants = {"NAMES": json.dumps(LANES), "VIEWS": json.dumps(views), "LAST": json.dumps(f"{last}-lanes"), "FILE": json.dumps(file)}
    return panel("lanes", None, TEMPLATE.format(files=buttons), constants, elem_id=elem_id)

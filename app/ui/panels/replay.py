"""Bar that replays a finished race, each side on its own clock. It works in the browser, without a model."""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel

SPEEDS = {"0.1": "0.1×", "0.25": "0.25×", "1": "1×", "2": "2×"}
TEMPLATE = """
<div class="ft-replay" hidden>
  <button type="button" data-do="play" aria-label="Play the race again">Replay</button>
  <button type="button" data-do="back" aria-label="One step back">‹</button>
  <input class="ft-control" type="range" min="0" max="1000" value="1000" aria-label="Time of the race">
  <button type="button" data-do="on" aria-label="One step forward">›</button>
  <select aria-label="Speed of the replay">{speeds}</select>
  <output></output>
</div>
"""


def build(elem_id: str = "replay") -> gr.HTML:
    """Builds the bar, hidden until a run has ended."""
    chosen = {"0.25": " selected"}
    speeds = "".join(f'<option value="{rate}"{chosen.get(rate, "")}>{label}</option>' for rate, label in SPEEDS.items())
    return panel("replay", None, TEMPLATE.format(speeds=speeds), elem_id=elem_id)

"""Which map lies over the pictures, and how strongly. It all happens in the browser: no move of this slider leaves the page."""

from __future__ import annotations

import json

import gradio as gr

from app.ui.panels import panel
from app.ui.panels.canvas import VERDICTS, VIRIDIS

MAPS = {
    "accepted": ("Accepted or rejected", "What became of each token's draft."),
    "probability": ("Acceptance probability", "How probable it was that the draft would be accepted."),
    "depth": ("Draft depth", "How many tokens ahead of the finished part a token was drafted when it was accepted."),
    "entropy": ("Entropy", "How undecided the model was, in nats."),
    "step": ("Step", "Which step of the method committed the token."),
}
TEMPLATE = """
<div class="ft-overlay-bar">
  <label><span>Map</span><select aria-label="Map over the pictures"></select></label>
  <label class="ft-opacity"><span>Opacity</span>
    <input type="range" min="0" max="100" value="35" aria-label="Opacity of the map">
  </label>
  <div class="ft-legend" aria-live="off"></div>
</div>
"""


def build() -> gr.HTML:
    """The bar below the pictures."""
    constants = {
        "MAPS": json.dumps(MAPS),
        "VERDICTS": json.dumps([{"name": name, "colour": colour} for name, colour in VERDICTS.values()]),
        "GRADIENT": json.dumps(f"linear-gradient(90deg, {', '.join(f'rgb{c}' for c in VIRIDIS)})"),
    }
    return panel("overlay", None, TEMPLATE, constants, elem_id="overlay")

"""The bar that chooses the map over the pictures and its opacity. It works in the browser only and sends nothing to the server."""

from __future__ import annotations

import json

import gradio as gr

from app.ui.panels import panel
from app.ui.panels.canvas import VERDICTS_TEXT, VIRIDIS

MAPS = {
    "accepted": ("Accepted or rejected", "Outcome of each token's draft."),
    "probability": ("Acceptance probability", "The probability that the token's draft is accepted."),
    "depth": ("Draft depth", "How many tokens ahead of the finished part the accepted token was drafted."),
    "entropy": ("Uncertainty (entropy)", "How undecided the model was: the entropy of its distribution, in nats."),
    "pass": ("This pass", "The tokens that the newest pass committed; point at a token to see those of its pass."),
    "top": ("Top-1 probability", "How probable the most probable token is at each place. Near 1, a draft is easy to guess."),
    "step": ("Step", "The step of the method that committed the token."),
}
TEMPLATE = """
<div class="ft-overlay-bar">
  <label><span>Map</span><select aria-label="Map over the pictures"></select></label>
  <label class="ft-opacity"><span>Opacity</span>
    <input class="ft-control" type="range" min="0" max="100" value="35" aria-label="Opacity of the map">
  </label>
  <div class="ft-segments" role="group" aria-label="Map and pictures">
    <button type="button" data-do="hold">Hold for map</button>
    <button type="button" data-do="keep" aria-pressed="false">Map on</button>
    <button type="button" data-do="wipe" aria-pressed="false">Compare with a slider</button>
  </div>
  <div class="ft-legend" aria-live="off"></div>
</div>
"""


def build() -> gr.HTML:
    """The bar below the pictures."""
    constants = {
        "MAPS": json.dumps(MAPS),
        "VERDICTS": VERDICTS_TEXT,
        "GRADIENT": json.dumps(f"linear-gradient(90deg, {', '.join(f'rgb{c}' for c in VIRIDIS)})"),
    }
    return panel("overlay", None, TEMPLATE, constants, elem_id="overlay")

"""Bar that chooses the map over the pictures and its opacity. It works entirely in the browser."""

from __future__ import annotations

import json

import gradio as gr

from app.ui.panels import panel
from app.ui.panels.canvas import VERDICTS_TEXT, VIRIDIS

MAPS = {
    "accepted": ("Accepted or rejected", "Whether each token's draft was accepted."),
    "probability": ("Acceptance probability", "Probability that the token's draft is accepted."),
    "depth": ("Draft depth", "How far ahead, in tokens, the accepted token was drafted."),
    "entropy": ("Uncertainty (entropy)", "How undecided the model was: the entropy of its distribution, in nats."),
    "pass": ("This pass", "Tokens committed by the latest pass. Point at a token to see all tokens of its pass."),
    "top": ("Top-1 probability", "Probability of the most probable token at each place. Near 1, the token is easy to guess."),
    "step": ("Step", "The step that committed the token."),
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
    """Builds the bar below the pictures."""
    constants = {
        "MAPS": json.dumps(MAPS),
        "VERDICTS": VERDICTS_TEXT,
        "GRADIENT": json.dumps(f"linear-gradient(90deg, {', '.join(f'rgb{c}' for c in VIRIDIS)})"),
    }
    return panel("overlay", None, TEMPLATE, constants, elem_id="overlay")

"""Trace of a run, token by token: energies and thresholds if the method has them, else acceptance probabilities; also entropies and
moved knobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gradio as gr
import numpy as np

from app.live.stream import Trail
from app.ui.knobs import moved
from app.ui.panels import CHART, panel, to_text
from app.ui.panels.canvas import VERDICTS_TEXT
from app.ui.panels.race import RaceFrame, RacePanel
from engine.core import Method
from engine.diagnostics import to_numbers

IMPOSSIBLE = -30.0  # energy shown for an impossible token
TEMPLATE = """
<section class="ft-chart" data-state="empty">
  <header><h3>Trace</h3><p class="ft-about-chart"></p><output></output></header>
  <div class="ft-charts">
    <figure data-chart="run"><figcaption></figcaption><canvas role="img" aria-label="No trace yet"></canvas></figure>
    <figure data-chart="last" hidden><figcaption></figcaption><canvas role="img" aria-label="No pass yet"></canvas></figure>
  </div>
  <div class="ft-legend"></div>
</section>
"""
IDLE = {
    "state": "empty",
    "about": "Every token of the accelerated run: the probability that its draft is accepted, and how undecided the model was.",
}


def build(elem_id: str = "trace") -> gr.HTML:
    """Builds the panel."""
    return panel("trace", dict(IDLE), TEMPLATE, {"VERDICTS": VERDICTS_TEXT}, before=CHART, elem_id=elem_id)


def encode(trail: Trail, method: Method, state: str, limit: int, caption: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything the script draws, as numbers and base64: arrays with one entry per committed token, in the order of commitment.

    verdict : uint8, 1..4; position, step : int32; chance, entropy, energy, threshold : float32, nan = unknown; the last two, and
    `last` with all drafts of the latest pass, only if the method records energies. limit : tokens of a complete run
    """
    energies = "energy" in trail.trace_names
    series = {name: np.array(values, np.float32) for name, values in trail.series.items()}
    knobs = {knob.name: knob for knob in method.knobs}
    return {
        "state": state,
        "about": about(trail, method),
        "title": method.title,
        "made": dict(caption or {}),
        "limit": limit,
        "verdict": to_text(np.frombuffer(bytes(trail.verdict), np.uint8)),
        "position": to_text(np.array(trail.positions, np.int32)),
        "step": to_text(np.array(trail.step, np.int32)),
        "chance": to_text(series["accept_probability"]),
        "entropy": to_text(series["entropy"]),
        "energy": to_text(finite(series["energy"])) if energies else "",
        "threshold": to_text(finite(series["threshold"])) if energies else "",
        "last": newest(trail) if energies else None,
        "moves": [moved(knobs[move.name], move.before, move.after) | {"token": move.token} for move in trail.moves],
        "deviation": deviation_words(trail.deviation),
    }


def about(trail: Trail, method: Method) -> str:
    """Description of the upper chart."""
    strip = "The strip shows the outcome of each token."
    if "energy" in trail.trace_names:
        return f"Energy of each draft (log p/q) above the threshold: accepted. {strip} Healthy: dots above the line, few crosses."
    if "accept_probability" in trail.trace_names:
        return f"The probability that each draft is accepted. {strip} Healthy: dots at the top, crosses only where the curve below peaks."
    return f"{method.title} checks no guesses, so the trace shows only how undecided the model was (entropy)."


def newest(trail: Trail) -> dict[str, Any] | None:
    """The latest pass: energy and threshold of its drafts, and the number accepted; None without energies."""
    if trail.round is None:
        return None
    drafts = {name: to_text(finite(to_numbers(getattr(trail.round, name)))) for name in ("energy", "threshold")}
    return {**drafts, "accepted": trail.round.accepted, "drafts": len(trail.round.energy)}


def finite(values: np.ndarray) -> np.ndarray:
    """Values as float32, at least IMPOSSIBLE; nan stays."""
    return np.maximum(values, IMPOSSIBLE, dtype=np.float32)


def deviation_words(deviation: float | None) -> str:
    """The measured deviation as text; "" if there is none."""
    if deviation is None or math.isnan(deviation):
        return ""
    return f"deviation from plain decoding {deviation:.3f}"


def live_value(frame: RaceFrame) -> dict[str, Any]:
    """Value during and after a race."""
    return encode(frame.fast.trail, frame.fast.run.method, frame.state, frame.limit, frame.caption)


PANEL = RacePanel("trace", build, IDLE, live_value=live_value)

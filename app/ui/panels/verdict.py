"""Who is ahead and by how much, in one line; and whether the two pictures are the same."""

from __future__ import annotations

from typing import Any

import gradio as gr

from app.stream import Board
from app.ui.panels import panel

TEMPLATE = """
<div class="ft-verdict" data-state="empty">
  <div role="status"><p class="ft-headline"></p><span class="ft-agreement"></span></div>
  <p class="ft-live"></p>
  <p class="ft-detail"></p>
</div>
"""
IDLE = {
    "state": "empty",
    "headline": "Same model, same seed. How much faster?",
    "detail": "Left, plain decoding: one pass of the model for every token. Right: many are drafted and checked in one pass.",
}


def build() -> gr.HTML:
    """The line above the pictures."""
    return panel("verdict", IDLE, TEMPLATE, elem_id="verdict")


def encode(fast: Board, plain: Board | None) -> dict[str, Any]:
    """The line for two boards, or for one if nothing is compared. Slower is said as plainly as faster."""
    if not fast.ended or not (plain is None or plain.ended):
        return {"state": "running", "headline": "", "live": _pace(fast, plain), "detail": "Each side runs on its own clock."}
    if fast.run.stopped:
        return {
            "state": "stopped",
            "headline": "Stopped",
            "detail": f"{_kept(fast, plain)} kept. The download holds the right picture.",
        }
    if plain is None:
        seconds = fast.run.totals["seconds"]
        return {
            "state": "done",
            "headline": f"{seconds:.2f} s",
            "detail": "Switch on 'Compare with plain decoding' to see the speed-up.",
        }
    return {"state": "done", **_speed(fast, plain), **agreement(fast, plain)}


def _pace(fast: Board, plain: Board | None) -> str:
    ours = fast.run.totals["tokens_per_second"]
    theirs = plain.run.totals["tokens_per_second"] if plain else 0.0
    return f"{ours / theirs:.1f}× the tokens per second" if theirs and ours else "Reading the prompt"


def _kept(fast: Board, plain: Board | None) -> str:
    counts = [len(b.run.tokens) for b in (plain, fast) if b]
    return f"{' and '.join(map(str, counts))} tokens are"


def _speed(fast: Board, plain: Board) -> dict[str, Any]:
    """The fair rule: seconds of the plain run over seconds of the accelerated one, both finished."""
    ours, theirs = fast.run.seconds, plain.run.seconds
    times = f"{theirs:.2f} s plain, {ours:.2f} s accelerated"
    passes = f"{plain.run.totals['forwards']:,} passes became {fast.run.totals['forwards']:,}"
    ratio = theirs / ours
    if ratio >= 1.05:
        return {"headline": f"{ratio:.1f}× faster", "detail": f"{times}; {passes}.", "tone": "good"}
    if ratio > 0.95:
        return {"headline": "As fast as plain decoding", "detail": f"{times}; {passes}.", "tone": "even"}
    hint = "On this machine a wide pass costs more than it saves"
    hint += ": try a smaller window." if "window" in fast.run.live.knobs else "."
    return {"headline": f"{1 / ratio:.1f}× slower", "detail": f"{times}; {passes}. {hint}", "tone": "bad"}


def agreement(fast: Board, plain: Board) -> dict[str, Any]:
    """How many tokens are the same; said only where they are promised to be."""
    if fast.run.fixed.get("verify") != "match seed":
        return {}
    same, count = int((fast.token == plain.token).sum()), len(fast.token)
    return {"agreement": f"{same:,} of {count:,} tokens equal", "same": same == count}

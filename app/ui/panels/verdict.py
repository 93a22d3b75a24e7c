"""The line above the results: which side is faster, by how much, and whether the results are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from app.live.stream import Growth, RaceCosts
from app.ui.panels import elsewhere, mesh, panel
from engine.core import PLAIN, Understood
from engine.mesh.fit import Fit
from engine.recognition.picture_judge import ObjectCount
from engine.run import Run, speedup
from engine.tuning.auto import expected_run

TEMPLATE = """
<div class="ft-verdict" data-state="empty">
  <div role="status"><p class="ft-headline"></p><span class="ft-agreement"></span></div>
  <p class="ft-live"></p>
  <div class="ft-fit-line"><p class="ft-fit"></p><button type="button" class="ft-instead" hidden>Show the classical surface</button></div>
  <p class="ft-detail"></p>
  <p class="ft-note"></p>{elsewhere}</div>
"""
IDLE = {
    "state": "empty",
    "headline": "Same model, same seed. How much faster?",
    "detail": "Left: the usual way, one token per pass. Right: many tokens guessed and checked in one pass. Press Generate.",
}


class Words(NamedTuple):
    """Texts that differ between tabs."""

    kept: str = "The download contains the picture on the right."


PICTURE = Words()
READY = "Getting ready"
NOTHING = "The model does not know anything in this prompt, so the picture is only a background."
NOTHING_KNOWN = "Nothing it knows to draw"
SEED = "Another seed may do better."
MOST_NAMED = 2  # words of the prompt in a headline
POOR, ROUGH = "The mesh does not match its input", "A rough match of its input"
INSTEAD = {"fit": "The classical surface is made of your points, without the model.", "offer": mesh.CLASSICAL}
ANOTHER = "The old future was drawn again and differs: its method repeats a run only from the start."
SMALLER = ("window", "depth")  # knobs that widen a pass


def build(idle: Mapping[str, Any] = IDLE, elem_id: str = "verdict") -> gr.HTML:
    """Builds the line. idle : its value before the first run"""
    return panel("verdict", dict(idle), TEMPLATE.replace("{elsewhere}", elsewhere.TEMPLATE), before=("elsewhere",), elem_id=elem_id)


def costs_in_words(boards: Sequence[Growth], costs: RaceCosts) -> str:
    """Breakdown of the time that a race took on the page."""
    clocks = sum(board.run.seconds for board in boards)
    rest = max(0.0, costs.whole - clocks - costs.drawing - costs.sending)
    parts = f"{costs.drawing:.2f} s of drawing, {costs.sending:.2f} s of sending, {rest:.2f} s of bookkeeping"
    return f"Total {costs.whole:.2f} s: {clocks:.2f} s on the clocks, {parts}."


def quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    low, middle, high = np.percentile(seconds, (25, 50, 75))
    return float(low), float(middle), float(high)


def encode(fast: Growth, plain: Growth | None, words: Words = PICTURE, seconds: Sequence[Sequence[float]] | None = None) -> dict[str, Any]:
    """Value of the line for two boards, or for one without a comparison.

    seconds : of all runs of each side, if they were repeated
    """
    if not fast.ended or not (plain is None or plain.ended):
        live = _pace(fast, plain) or READY
        return {"state": "running", "headline": "", "live": live, "detail": "Each side runs on its own clock."}
    if fast.run.stopped:
        return {"state": "stopped", "headline": "Stopped", "detail": f"{_token_counts(fast, plain)} {words.kept}"}
    if fast.run.backbone.warning(fast.run.prompt.text or ""):  # a background alone is no success
        return {"state": "done", "headline": NOTHING_KNOWN, "detail": NOTHING, "tone": "even"}
    if plain is None:
        seconds = fast.run.totals["seconds"]
        return {
            "state": "done",
            "headline": f"{seconds:.2f} s",
            "detail": f"Turn on 'Compare' to see the speed-up. {_background_sentence(fast.run)}".rstrip(),
        }
    repeated = seconds if seconds and len(seconds[0]) > 1 and len(seconds) > 1 else ()
    line = {"state": "done", **_speed(fast, plain, repeated), **agreement(fast, plain), **computed(fast, plain)}
    return line | {"detail": f"{line['detail']} {_background_sentence(fast.run)}".rstrip()}


def with_objects(line: Mapping[str, Any], count: ObjectCount | None, reading: Understood) -> dict[str, Any]:
    """The line of a finished picture. The headline is positive only if the judge sees the requested objects, and the model understood the
    prompt; else it is about the picture. count : None = the judge cannot tell; reading : the model's, of the prompt"""
    if (
        line["state"] != "done"
        or line["headline"] == NOTHING_KNOWN
        or (count and count.matches and not reading.missing and not reading.remarks)
    ):
        return dict(line)
    neutral = {**line, "tone": "even" if line.get("tone") == "good" else line.get("tone", "")}
    advice = ""
    if count and not count.matches:
        detected = f"{count.detected} of {count.requested} object{'s' * (count.requested > 1)} found"
        headline, advice = detected if count.detected < count.requested else f"{count.others} more than requested", f"{SEED} "
    elif reading.missing:
        headline = f"Left out: {', '.join(reading.missing[:MOST_NAMED])}{' …' * (len(reading.missing) > MOST_NAMED)}"
    else:
        return neutral
    detail = f"{advice}{line['headline']}{'' if line['headline'].endswith(' s') else '.'} {line['detail']}"
    return neutral | {"headline": headline, "tone": "even", "detail": detail}


def with_fork(
    line: Mapping[str, Any], boards: Sequence[Growth], tokens: Sequence[int], at: int, headline: str | None = None
) -> dict[str, Any]:
    """The line of a run's new and old future. tokens : of the run, in the order of positions; at : number of shared ones; headline : None =
    the number of tokens that differ"""
    if line["state"] == "running":
        return {**line, "live": f"Two futures after {at:,} shared tokens", "detail": "The shared part costs neither side a pass."}
    if line["state"] != "done":
        return dict(line)
    new, old = (board.run for board in boards)
    differ = sum(ours != theirs for ours, theirs in zip(new.in_order[at:], old.in_order[at:], strict=False))
    again = "The old future is as it was." if old.in_order == list(tokens) else ANOTHER
    costs = f"The new one took {_seconds(new.seconds)} and {new.totals['forwards']:,} passes; the {at:,} shared tokens cost neither a pass."
    headline = headline or f"{differ:,} of {len(tokens) - at:,} tokens became others"
    return {"state": "done", "headline": headline, "detail": f"{again} {costs}", "tone": "even"}


def with_fit(line: Mapping[str, Any], fits: Fit, compared: bool = False) -> dict[str, Any]:
    """Adds the fit of a mesh to the line; the headline is about speed only for a good match. compared : it compares distances already"""
    fitted = {**line, "fit": fits.text, "fits": fits.verdict}
    if fits.verdict == "good" or line["state"] != "done" or (compared and fits.verdict == "fair"):
        return fitted
    detail = f"{line['headline']}. {line['detail']}"
    if fits.verdict == "fair":
        return fitted | {"headline": ROUGH, "tone": "even", "detail": detail}
    return fitted | INSTEAD | {"headline": POOR, "tone": "even", "fit": f"{fits.text} {INSTEAD['fit']}", "detail": detail}


def _background_sentence(run: Run) -> str:
    """Sentence about the background that the seed added to the prompt; "" if none."""
    words = run.backbone.added_words(run.prompt)
    return f"No background in the prompt, so this seed chose “{words}”." if words else ""


def computed(fast: Growth, plain: Growth) -> dict[str, Any]:
    """Computed speed-ups of a finished race at other places; {} unless the left side is plain decoding."""
    if plain.run.method.name != PLAIN:
        return {}
    models = elsewhere.sizes(fast.run.backbone)
    return {"places": elsewhere.places(models), "ratios": elsewhere.ratios(expected_run(fast.run.name, {}, [fast.run]), models)}


def _pace(fast: Growth, plain: Growth | None) -> str:
    ours = _rate(fast)
    if plain is None:
        return f"{ours:,.0f} tokens per second" if ours else ""
    theirs = _rate(plain)
    return f"{ours / theirs:.1f}× the tokens per second" if theirs and ours else ""


def _rate(board: Growth) -> float:
    """Tokens per second so far, without the slower loop over all steps in `totals`."""
    return len(board.run.tokens) / board.run.seconds if board.run.seconds else 0.0


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"


def _token_counts(fast: Growth, plain: Growth | None) -> str:
    right = len(fast.run.tokens)
    return f"Kept: {len(plain.run.tokens):,} tokens on the left, {right:,} on the right." if plain else f"Kept: {right:,} tokens."


def _speed(fast: Growth, plain: Growth, seconds: Sequence[Sequence[float]] = ()) -> dict[str, Any]:
    """Headline and details of the speed-up: seconds of the plain run over seconds of the accelerated run, both finished.

    Results of different lengths are compared by seconds per token. Repeated runs are compared by medians; the sides count as equally
    fast if the quartiles of the speed-up include 1.
    """
    ours, theirs = fast.run.totals, plain.run.totals
    other = "plain decoding" if plain.run.method.name == PLAIN else "the left side"
    times = f"{_seconds(ours['seconds'])} instead of {_seconds(theirs['seconds'])}"
    passes = f"{ours['forwards']:,} passes instead of {theirs['forwards']:,}"
    ratio, each = speedup([plain.run], [fast.run]), ""
    if seconds:
        scale = ours["tokens"] / theirs["tokens"]
        low, ratio, high = quartiles([slow / quick * scale for quick, slow in zip(*seconds, strict=True)])
        mine, others = quartiles(seconds[0])[1], quartiles(seconds[1])[1]
        times = f"Medians of {len(seconds[0])} runs: {_seconds(mine)} instead of {_seconds(others)}, "
        times += f"speed-up quartiles {low:.2f} and {high:.2f}"
        ratio = 1.0 if low <= 1 <= high else ratio
    relaxed = "" if fast.run.exact or not plain.run.exact else ", not the same distribution"
    if ours["tokens"] != theirs["tokens"]:
        each = " per token"
        passes += f", {ours['tokens']:,} tokens instead of {theirs['tokens']:,}"
    if ratio >= 1.05:
        tone = "even" if relaxed else "good"
        return {"headline": f"{ratio:.1f}× faster{each}{relaxed}", "detail": f"{times}, {passes}.", "tone": tone}
    if ratio > 0.95:
        return {"headline": f"As fast as {other}{each}{relaxed}", "detail": f"{times}, {passes}.", "tone": "even"}
    if other == "the left side":
        return {"headline": f"{1 / ratio:.1f}× slower{each}{relaxed}", "detail": f"{times}, {passes}.", "tone": "bad"}
    hint = "Here, checking many guesses costs more than it saves."
    wide = next((name for name in SMALLER if name in fast.run.live.knobs), None)
    hint += f" Try a smaller {wide}." if wide else ""
    return {"headline": f"{1 / ratio:.1f}× slower{each}{relaxed}", "detail": f"{times}, {passes}. {hint}", "tone": "bad"}


def agreement(fast: Growth, plain: Growth) -> dict[str, Any]:
    """Number of equal tokens as text; {} unless the method guarantees equality."""
    seeded = all(b.run.method.name == PLAIN or b.run.fixed.get("verify") == "match seed" for b in (fast, plain))
    if not seeded or not fast.run.exact or not plain.run.exact:
        return {}
    ours, theirs = (dict(zip(b.run.positions, b.run.tokens, strict=True)) for b in (fast, plain))
    same, count = sum(theirs.get(p) == token for p, token in ours.items()), max(len(ours), len(theirs))
    words = "identical, token for token" if same == count else f"{same:,} of {count:,} tokens equal"
    if same < count and (fast.run.made_with["device"] or "").startswith("cuda"):
        words += "; on a GPU sums depend on the number of rows, so the seed is matched up to rounding"
    return {"agreement": words, "same": same == count}

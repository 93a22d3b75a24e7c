"""The stage of the Lab tab: the growing picture, its numbers, and charts of the knobs' effects."""

from __future__ import annotations

import math
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.loop import KnobChange, LoopBoard, Setting
from app.live.boards.picture import Board
from app.ui.knobs import moved
from app.ui.method_menu import title_of
from app.ui.panels import PLOT, canvas, elsewhere, panel, to_text
from app.ui.panels.runs import changed_knobs
from engine.core import Backbone
from engine.machine import machine_facts
from engine.methods import find
from engine.tuning.expected import Expected

LEAST = 4  # passes before a setting appears on the curve
COUNTERS = (
    ("tokens_per_second", "tokens / s", "Tokens committed per second of the clock, with these knobs."),
    ("speedup", "× plain", "Speed relative to plain decoding, which ran once at the start."),
    ("compression", "tokens / pass", "The mean number of tokens that one pass commits."),
    ("deviation", "deviation", "Mean total variation distance from the model's distribution: 0 is exact, 1 is entirely different."),
    ("pictures", "pictures", "Pictures finished in this loop."),
)
CHARTS = {  # name: (title, explanation)
    "course": ("Over time", "Dashed: you moved a knob. Good: high above, low below."),
    "curve": ("Speed against deviation", "One point per setting that you have tried. Move δ, τ, β or Θ to add more."),
    "places": ("Acceptance by place", "Where the bars are low, drafting that far ahead does not pay off; a smaller window does as well."),
}
CHART = """
  <section class="ft-chart" data-chart="{name}">
    <header><h3>{title}</h3><p class="ft-about-chart">{about}</p></header>
    <figure><div class="ft-plot"></div></figure><output class="ft-hearing" aria-live="polite"></output>
  </section>"""
TEMPLATE = """
<section class="ft-lab" data-state="empty">
  <div class="ft-lab-top">
    <div class="ft-lab-picture"><canvas class="ft-lab-canvas" role="img" aria-label="No picture yet"></canvas><p class="ft-empty"></p></div>
    <div class="ft-lab-status">
      <p class="ft-lab-now" role="status"></p>
      <dl class="ft-counters">{counters}</dl>
      <div class="ft-film" role="list" aria-label="Finished pictures"></div>
      <div class="ft-snapshots"></div>
    </div>
  </div>
  <ol class="ft-lab-how">
    <li><b>Start the loop.</b> Pictures or meshes follow one another; each pass counts towards the knobs it ran with.</li>
    <li><b>Keep snapshot A, then move a knob.</b> Watch the speed, the deviation and the acceptance change.</li>
    <li><b>Keep snapshot B and switch between them.</b> The keys A and B restore the snapshots.</li>
  </ol>{elsewhere}
  {charts}
</section>
"""
IDLE = {"state": "empty", "text": "Start the loop, then move a knob."}


def build(elem_id: str) -> gr.HTML:
    """Builds the stage."""
    cells = "".join(f'<div data-key="{key}" title="{help_text}"><dt>{label}</dt><dd>–</dd></div>' for key, label, help_text in COUNTERS)
    charts = "".join(CHART.format(name=name, title=title, about=about) for name, (title, about) in CHARTS.items())
    template = TEMPLATE.format(counters=cells, elsewhere=elsewhere.TEMPLATE, charts=charts)
    return panel("lab", dict(IDLE), template, before=(*PLOT, "elsewhere"), elem_id=elem_id)


def waiting_value(text: str) -> dict[str, Any]:
    """The stage before the first step."""
    return {"state": "running", "text": text}


def made_with(backbone: Backbone, seed: int) -> dict[str, str]:
    """Caption of a figure, without the settings."""
    machine = machine_facts()
    return {
        "model": f"{backbone.name} ({backbone.weights_hash or 'no hash'}, {backbone.precision})",
        "first seed": str(seed),
        "machine": f"{machine['processor']}, {machine['threads']} threads, {backbone.device}, PyTorch {machine['torch']}",
        "commit": str(machine["commit"] or ""),
    }


def encode(
    board: LoopBoard, picture: Board | None, plain: float | None, identity: str, caption: dict[str, str], state: str = "running"
) -> dict[str, Any]:
    """Everything the script draws.

    time, speed, compression, deviation : float32 per sample, nan = unknown
    turned : moved knobs; settings : all, oldest first; curve : numbers of settings that differ in one knob; now : number of the latest
    picture : a data: URL, None = unchanged; plain : tokens per second of plain decoding
    """
    samples = board.samples
    share = [s.deviation / s.measured if s.measured else math.nan for s in samples]
    return {
        "state": state,
        "id": identity,
        "plain": plain,
        "made": caption,
        "clock": board.clock,
        "pictures": board.pictures,
        "picture": canvas.growing_url(picture) if picture else None,
        "prompt": picture.run.prompt.text if picture else None,
        "film": [{"number": board.pictures - i, "picture": small, "text": f"{title_of(name)}, {seconds:.2f} s"}
                 for i, (small, name, seconds) in enumerate(reversed(board.film))],
        "time": to_text(np.array([s.end for s in samples], np.float32)),
        "speed": to_text(np.array([s.tokens / s.seconds if s.seconds else math.nan for s in samples], np.float32)),
        "compression": to_text(np.array([s.tokens / s.passes if s.passes else math.nan for s in samples], np.float32)),
        "deviation": to_text(np.array(share, np.float32)),
        "turned": [in_words(each, board.now) for each in board.changes[-40:]],
        "settings": [setting(each, board) for each in board.settings.values()],
        "places": elsewhere.places(board.models),
        "curve": board.curve(),
        "now": board.now.number if board.now else None,
    }  # fmt: skip


def setting(each: Setting, board: LoopBoard) -> dict[str, Any]:
    """A setting, its measurements, and its computed speed-ups."""
    deviation, passes = each.mean_deviation, max(1, each.passes)
    counts = Expected(each.name, each.knobs, each.tokens / passes, 1 + each.drafts / passes, each.draft_passes / passes)
    return {
        "number": each.number,
        "title": title_of(each.name),
        "name": each.name,
        "knobs": each.knobs,
        "changed": changed_knobs(each.name, each.knobs, {}),
        "exact": each.exact,
        "tokens": each.tokens,
        "passes": each.passes,
        "speed": each.tokens / each.seconds if each.seconds else 0.0,
        "compression": counts.tokens,
        "ratios": elsewhere.ratios(counts, board.models),
        "deviation": None if math.isnan(deviation) else deviation,
        "counts": each.passes >= LEAST,
        "shares": [round(share, 4) for share in each.shares],
        "reached": each.drafted[: len(each.shares)].tolist(),
        "most": np.mean(each.most, 0).round(4).tolist() if len(each.most) >= LEAST else None,
    }


def in_words(turned: KnobChange, now: Setting | None) -> dict[str, Any]:
    """A moved knob, or a change of the method, and its time."""
    knob = next((each for each in find(now.name)[0].knobs if each.name == turned.name), None) if now else None
    if knob:
        return moved(knob, turned.before, turned.after) | {"time": turned.time}
    titles = [title_of(str(each)) if turned.name == "method" else str(each) for each in (turned.before, turned.after)]
    name = "" if turned.name == "method" else turned.name.replace("_", " ")  # of a method that has been left
    return {"letter": name, "before": titles[0], "after": titles[1], "time": turned.time}

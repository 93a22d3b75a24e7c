"""A picture that grows token by token, with a map of data about each token over it."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import gradio as gr
import numpy as np
from PIL import Image

from app.live.boards.picture import Board
from app.live.stream import Trail
from app.runs import race_files
from app.ui.panels import panel, to_text

LANES = ("lane1", "lane2", "lane3", "lane4")  # sides of a race of up to four runs
QUALITY = 82  # of JPEGs while a picture grows; the final picture is lossless
LIGHTLY = 2  # zlib level: a third of the time of the default 6, a fifth more bytes
VIRIDIS = (
    (68, 1, 84), (72, 26, 108), (71, 47, 125), (65, 68, 135), (57, 86, 140), (49, 104, 142), (42, 120, 142), (35, 136, 142),
    (31, 152, 139), (34, 168, 132), (53, 183, 121), (84, 197, 104), (122, 209, 81), (165, 219, 54), (210, 226, 27),
    (253, 231, 37),
)  # fmt: skip
VERDICTS = {
    1: ("not drafted", (153, 153, 153)), 2: ("rejected", (213, 94, 0)), 3: ("accepted", (0, 158, 115)),
    4: ("redrawn next to a rejected one", (204, 121, 167)),
}  # fmt: skip
MISSING = {  # map: (the trace entry it needs, reason shown for a method without it)
    "accepted": ("accepted", "checks no guesses"),
    "probability": ("accept_probability", "checks no guesses"),
    "depth": ("depth", "records no depth"),
    "entropy": ("entropy", "records no entropy"),
    "top": ("top", "records no probabilities"),
}
VERDICTS_TEXT = json.dumps({kind: {"name": name, "colour": colour} for kind, (name, colour) in VERDICTS.items()})  # as JSON for scripts
DEEPEST = 254  # greater depths are clipped
SHALLOW = 4.0  # minimum upper end of the depth scale
COUNTERS = {
    "seconds": ("seconds", "Time of the model and the method, without drawing on the screen."),
    "tokens_per_second": ("tokens / s", "Tokens committed per second of this time."),
    "forwards": ("passes", "Forward passes of the model."),
    "step_compression": ("tokens / pass", "Step compression: the mean number of tokens that one pass commits."),
}

TEMPLATE = """
<section class="ft-card" data-state="empty">
  <header><i class="ft-dot"></i><h3></h3><span class="ft-badge" role="note" tabindex="0" hidden></span></header>
  <div class="ft-frame">
    <canvas class="ft-picture" role="img" aria-label="No picture yet"></canvas>
    <canvas class="ft-veil" aria-hidden="true"></canvas>
    <canvas class="ft-overlay" aria-hidden="true"></canvas>
    <canvas class="ft-mask" aria-hidden="true"></canvas>
    <canvas class="ft-other" aria-hidden="true"></canvas>
    <input class="ft-wipe" type="range" min="0" max="1000" value="500" aria-label="Slider between the two pictures" hidden>
    <i class="ft-cursor" hidden></i>
    <p class="ft-empty"></p>
    <i class="ft-progress"><b></b></i>
  </div>
  <dl class="ft-counters"></dl>
  <p class="ft-readout"></p>
</section>
"""


def build(side: str, title: str, empty: str) -> gr.HTML:
    """Builds one side of the comparison. side : "plain", "fast" or one of LANES, which sets its colour"""
    constants = {
        "VIRIDIS": json.dumps(VIRIDIS),
        "VERDICTS": VERDICTS_TEXT,
        "COUNTERS": json.dumps(COUNTERS),
        "SIDES": json.dumps({"plain": race_files.PLAIN, "fast": race_files.FAST, **dict(zip(LANES, race_files.LANES, strict=True))}),
    }
    return panel("canvas", empty_value(side, title, empty), TEMPLATE, constants, elem_id=f"canvas-{side}")


def empty_value(side: str, title: str, text: str) -> dict[str, Any]:
    """The panel's value without a picture."""
    return {"state": "empty", "side": side, "title": title, "text": text}


def encode(
    board: Board, picture: np.ndarray, scales: dict[str, float], side: str, title: str, badge: dict[str, Any] | None,
    others: Sequence[Board] = (),
) -> dict[str, Any]:  # fmt: skip
    """Everything the script draws, as numbers and base64.

    Maps are uint8 [rows*columns], 0 = no data; verdicts are 1..4, depths are stored plus 1, other values are scaled to 1..255.
    scales : upper end of each map, shared by both sides to make their colours comparable; others : see Board.file
    """
    return {
        "state": state(board),
        "side": side,
        "title": title,
        "badge": badge,
        "picture": board.file(lambda final: data_url(final, lossless=True), others) if board.ended else data_url(picture, lossless=False),
        "rows": board.rows,
        "columns": board.columns,
        "maps": {
            "accepted": to_text(board.verdict),
            "probability": to_text(quantize(board.known["accept_probability"], scales["probability"])),
            "depth": to_text(levels(board.known["depth"])),
            "entropy": to_text(quantize(board.known["entropy"], scales["entropy"])),
            "top": to_text(quantize(board.known["top"], scales["top"])),
            "step": to_text(quantize(np.where(board.step < 0, np.nan, board.step), scales["step"])),
        },
        "steps": to_text(board.step),
        "scales": scales,
        "missing": missing(board.trail, board.run.method.title),
        "energies": {n: to_text(board.known[n]) for n in ("energy", "threshold") if n in board.trail.trace_names},
        "tokens": to_text(board.token),
        "draft": to_text(board.draft_mask().astype(np.uint8)),
        "kinds": sorted(set(board.trail.verdict)),
        "totals": board.run.totals,
        "limit": len(board.verdict),
        "course": course(board) if board.ended else None,
    }


def course(board: Board) -> dict[str, str]:
    """Course of a finished run, one entry per token in the order of commitment: position (int32), and the run's time (float32, seconds)
    and passes (int32) after the token's step."""
    step = np.array(board.trail.step)
    ends = np.cumsum([each.seconds for each in board.run.steps])
    passes = np.cumsum([each.forwards for each in board.run.steps])
    return {
        "position": to_text(np.array(board.trail.positions, np.int32)),
        "end": to_text(ends[step].astype(np.float32)),
        "passes": to_text(passes[step].astype(np.int32)),
    }


def state(board: Board) -> str:
    """The state of a run: running, done or stopped."""
    if board.run.finished:
        return "done"
    return "stopped" if board.run.stopped else "running"


def scales(boards: list[Board]) -> dict[str, float]:
    """Upper ends of the continuous maps, over all sides."""
    entropy, depth = (_maxima(boards, name) for name in ("entropy", "depth"))
    return {
        "probability": 1.0,
        "top": 1.0,
        "depth": max([SHALLOW, *depth]),
        "entropy": math.ceil(max(entropy, default=1.0) * 2 + 1e-6) / 2,  # rounded up to halves to keep the colours from flickering
        "step": float(max([1, *(b.count - 1 for b in boards)])),
    }


def _maxima(boards: list[Board], name: str) -> list[float]:
    """Maximum of a series on each board that has it."""
    return [float(np.nanmax(b.known[name])) for b in boards if b.count and not np.isnan(b.known[name]).all()]


def missing(trail: Trail, title: str) -> dict[str, str]:
    """Maps that a run has no data for, with the reasons."""
    return {name: f"{title} {why}" for name, (entry, why) in MISSING.items() if entry not in trail.trace_names}


def levels(depth: np.ndarray) -> np.ndarray:
    """Depths 0, 1, 2, ... as uint8 1, 2, 3, ...; nan becomes 0."""
    return np.where(np.isnan(depth), 0, 1 + np.clip(np.nan_to_num(depth), 0, DEEPEST)).astype(np.uint8)


def quantize(values: np.ndarray, high: float) -> np.ndarray:
    """Values 0..high as uint8 1..255; nan becomes 0."""
    unknown = np.isnan(values)
    level = 1 + np.clip(np.where(unknown, 0, values) / high, 0, 1) * 254
    return np.where(unknown, 0, level.round()).astype(np.uint8)


def data_url(picture: np.ndarray, lossless: bool) -> str:
    """A picture, uint8 [H, W, 3], or if lossless also [H, W, 4] with opacity, as a data: URL: PNG, else JPEG, which is faster."""
    kind = "PNG" if lossless else "JPEG"
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, **({"compress_level": LIGHTLY} if lossless else {"quality": QUALITY}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def growing_url(board: Any) -> str:
    """The picture of a board that has `growing`, uint8 [H, W, 3 or 4], as a data: URL."""
    picture = board.growing()
    return data_url(picture, lossless=picture.shape[2] == 4)  # JPEG has no opacity

"""A picture that grows token by token, with a map of what happened to each token laid over it."""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import gradio as gr
import numpy as np
from PIL import Image

from app.stream import Board
from app.ui.panels import panel, to_text

QUALITY = 82  # of the JPEG while a picture grows; the last one is lossless
VIRIDIS = (
    (68, 1, 84), (72, 26, 108), (71, 47, 125), (65, 68, 135), (57, 86, 140), (49, 104, 142), (42, 120, 142), (35, 136, 142),
    (31, 152, 139), (34, 168, 132), (53, 183, 121), (84, 197, 104), (122, 209, 81), (165, 219, 54), (210, 226, 27),
    (253, 231, 37),
)  # fmt: skip
VERDICTS = {1: ("not drafted", (153, 153, 153)), 2: ("rejected", (213, 94, 0)), 3: ("accepted", (0, 158, 115))}
COUNTERS = {
    "seconds": ("seconds", "On its own clock: model and method, without drawing on the screen."),
    "tokens_per_second": ("tokens / s", "Tokens committed for each second of its own clock."),
    "forwards": ("passes", "How often the model was asked."),
    "step_compression": ("tokens / pass", "Step compression: how many tokens one pass commits on average."),
}

TEMPLATE = """
<section class="ft-card" data-state="empty">
  <header><i class="ft-dot"></i><h3></h3><span class="ft-badge" tabindex="0" hidden></span></header>
  <div class="ft-frame">
    <canvas class="ft-picture" role="img" aria-label="No picture yet"></canvas>
    <canvas class="ft-veil" aria-hidden="true"></canvas>
    <canvas class="ft-overlay" aria-hidden="true"></canvas>
    <i class="ft-cursor" hidden></i>
    <p class="ft-empty"></p>
    <i class="ft-progress"><b></b></i>
  </div>
  <dl class="ft-counters"></dl>
  <p class="ft-readout"></p>
</section>
"""


def build(side: str, title: str, empty: str) -> gr.HTML:
    """One side of the comparison. side: "plain" or "fast", which gives it its colour."""
    constants = {
        "VIRIDIS": json.dumps(VIRIDIS),
        "VERDICTS": json.dumps({k: {"name": name, "colour": colour} for k, (name, colour) in VERDICTS.items()}),
        "COUNTERS": json.dumps(COUNTERS),
    }
    return panel("canvas", waiting(side, title, empty), TEMPLATE, constants, elem_id=f"canvas-{side}")


def waiting(side: str, title: str, text: str) -> dict[str, Any]:
    """The panel without a picture."""
    return {"state": "empty", "side": side, "title": title, "text": text}


def encode(
    board: Board, picture: np.ndarray, scales: dict[str, float], side: str, title: str, badge: dict[str, Any] | None
) -> dict[str, Any]:
    """Everything the script draws, as numbers and base64.

    Maps are uint8 [rows*columns], 0 = nothing to show; verdicts are 1..3, the others 1..255 from 0 to their scale.
    scales: the value of the upper end of each continuous map, shared by both sides so that their colours compare.
    """
    positions = board.drafted()[1]
    draft = np.zeros(len(board.verdict), np.uint8)
    draft[positions] = 1
    return {
        "state": state(board),
        "side": side,
        "title": title,
        "badge": badge,
        "picture": data_url(picture, lossless=board.ended),
        "rows": board.rows,
        "columns": board.columns,
        "maps": {
            "accepted": to_text(board.verdict),
            "probability": to_text(quantize(board.probability, scales["probability"])),
            "entropy": to_text(quantize(board.entropy, scales["entropy"])),
            "step": to_text(quantize(np.where(board.step < 0, np.nan, board.step), scales["step"])),
        },
        "scales": scales,
        "tokens": to_text(board.token),
        "draft": to_text(draft),
        "totals": board.run.totals,
        "limit": len(board.verdict),
    }


def state(board: Board) -> str:
    """The word for how far a run has come: running, done or stopped."""
    if board.run.finished:
        return "done"
    return "stopped" if board.run.stopped else "running"


def scales(boards: list[Board]) -> dict[str, float]:
    """The upper ends of the continuous maps over all sides."""
    entropy = [float(np.nanmax(b.entropy)) for b in boards if b.count and not np.isnan(b.entropy).all()]
    return {
        "probability": 1.0,
        "entropy": math.ceil(max(entropy, default=1.0) * 2 + 1e-6) / 2,  # in halves, so that the colours do not flicker
        "step": float(max([1, *(b.count - 1 for b in boards)])),
    }


def quantize(values: np.ndarray, high: float) -> np.ndarray:
    """uint8: 0..high becomes 1..255, nan becomes 0."""
    level = 1 + np.clip(np.nan_to_num(values) / high, 0, 1) * 254
    return np.where(np.isnan(values), 0, level.round()).astype(np.uint8)


def data_url(picture: np.ndarray, lossless: bool) -> str:
    """A picture uint8 [H, W, 3] as a data: address; PNG if lossless, else JPEG, which is a tenth of the work."""
    kind = "PNG" if lossless else "JPEG"
    file = io.BytesIO()
    Image.fromarray(picture).save(file, kind, **({} if lossless else {"quality": QUALITY}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"

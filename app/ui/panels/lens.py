"""One token under the lens: what the guess and the model held likely at its place, the coin that decided, and what was left over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.mesh import MeshBoard
from app.live.boards.patches import PLAIN, SIDE
from app.live.stream import ACCEPTED, Growth
from app.ui.panels import MESH_TOKENS, PATCHES, panel, to_text
from app.ui.panels.canvas import VERDICTS, data_url
from app.ui.panels.race import RaceFrame, RacePanel
from app.ui.panels.runs import MESHES, RunsTable
from engine.decoding.policy import MATCH
from engine.diagnostics import DECISIONS, decision_arrays, tree_arrays
from engine.noise import Noise
from engine.noise.kernel import gumbel_at

TEMPLATE = """
<section class="ft-lens" data-state="empty" aria-label="Under the lens">
  <header>
    <h3>Under the lens</h3>
    <button type="button" data-do="play" hidden>Pause</button>
    <button type="button" data-do="close" aria-label="Close the lens">×</button>
  </header>
  <p class="ft-about-chart"></p>
  <div class="ft-lens-body">
    <div class="ft-lens-top">
      <canvas class="ft-lens-crop" aria-hidden="true"></canvas>
      <div><span class="ft-lens-place"></span><strong class="ft-lens-verdict"></strong></div>
    </div>
    <div class="ft-lens-tokens" role="group" aria-label="Tokens of this face"></div>
    <figure><canvas class="ft-lens-bars"></canvas></figure>
    <figure class="ft-lens-pass" hidden><figcaption></figcaption><canvas class="ft-lens-tree" role="img"></canvas></figure>
    <p class="ft-lens-why"></p>
    <details>
      <summary>What if?</summary>
      SLIDERS
      <p class="ft-lens-if"></p>
    </details>
  </div>
</section>
"""
SLIDER = (
    '<label><span>{}</span><input class="ft-control" type="range" data-if="{}" min="{}" max="{}" step="{}" value="{}">'
    "<output></output></label>"
)
SLIDERS = (
    ("Temperature", "temperature", 0.3, 2, 0.05, 1),
    ("Top-p", "top_p", 0.05, 1, 0.05, 1),
    ("Tolerance", "tolerance", 0, 0.5, 0.01, 0),
)
IDLE = {"state": "empty", "about": "Point at a token of the picture to see why it was kept or redrawn."}
IDLE_MESH = IDLE | {"about": "Point at a face to see which tokens wrote it, and why each was kept or redrawn."}
LEAST = 1e-4  # smallest probability that is drawn
LATEST = 3  # steps whose records are sent while a run goes on; the script keeps what it has seen


def build(kind: RunsTable, idle: Mapping[str, str], elem_id: str) -> gr.HTML:
    """Builds the panel. kind : of the runs"""
    template = TEMPLATE.replace("SLIDERS", "".join(SLIDER.format(*each) for each in SLIDERS))
    constants = {"SHEET": json.dumps([PLAIN, SIDE]), "LEAST": str(LEAST), "KIND": json.dumps(kind.name), **MESH_TOKENS}
    constants |= {"KEPT": json.dumps(VERDICTS[ACCEPTED][1])}
    return panel("lens", dict(idle), template, constants, before=(*PATCHES, "mesh_tokens", "icicle"), elem_id=elem_id)


def encode(frame: RaceFrame, latest: int | None = None) -> dict[str, Any]:
    """Everything the script draws, one entry per token, of all steps or of the latest ones.

    position, step, own : int32, the committed token `own`; verdict : uint8, see canvas.py; chance : float32, of acceptance
    draft, coin, mass : of a DecisionTrace; count : uint8, the number of candidates of each token that are drawn
    tokens, p, q : of these candidates, one token after another; dice : see `dice`, "" without match seed
    trees : of the steps from `first` on, see `engine.diagnostics.arrays`; None = there are none
    sheet : patches of the tokens in `known`, "" if the model has no patches
    corners, ids : of a mesh: MeshBoard.corners, and all tokens, int32
    """
    board, patches, trail = frame.fast, frame.patches, frame.fast.trail
    is_mesh = isinstance(board, MeshBoard)
    first = int(bool(board.run.prompt.prefix))  # nothing was decided about a prefix
    steps = board.run.steps[first : board.count][-(latest or board.count) :]
    records, count = decision_arrays(steps), sum(len(step.tokens) for step in steps)
    if not steps:
        return IDLE_MESH if is_mesh else IDLE
    if not records:
        return IDLE | {"about": f"{board.run.method.title} keeps no record of its guesses, so there is nothing to look at here."}
    own = np.array([token for step in steps for token in step.tokens], np.int32)
    trees = tree_arrays(steps)
    tokens, p, q, draft, coin, mass = (records[f"decision_{name}"] for name in DECISIONS)
    drawn = (np.fmax(p, q) >= LEAST) | (tokens == own[:, None]) | (tokens == draft[:, None])
    known = np.unique(np.concatenate([tokens[drawn], own, trees.get("tree_tokens", own)]))
    return {
        "state": frame.state,
        "about": f"Each column is a {'token' if is_mesh else 'patch'} that could stand here; bars show how likely it was.",
        "run": board.run.name,
        "columns": 0 if is_mesh else board.columns,
        "vocabulary": int(known[-1]) + 1,  # a saved run does not know its model's
        "dice": to_text(np.concatenate(dice(board, tokens, drawn))) if board.run.fixed.get("verify") == MATCH else "",
        "position": to_text(np.array(trail.positions[-count:], np.int32)),
        "step": to_text(np.array(trail.step[-count:], np.int32)),
        "verdict": to_text(np.frombuffer(bytes(trail.verdict[-count:]), np.uint8)),
        "chance": to_text(np.array(trail.series["accept_probability"][-count:], np.float32)),
        "own": to_text(own),
        **{name: to_text(values) for name, values in (("draft", draft), ("coin", coin), ("mass", mass))},
        **{name: to_text(values[drawn]) for name, values in (("tokens", tokens), ("p", p), ("q", q))},
        "count": to_text(drawn.sum(1).astype(np.uint8)),
        "trees": {"first": board.count - len(steps), **{name: to_text(values) for name, values in trees.items()}} if trees else None,
        "known": to_text(known.astype(np.int32)),
        "sheet": data_url(patches.sheet(known.tolist()), lossless=False) if patches and patches.is_available else "",
        **({"corners": to_text(board.corners), "ids": to_text(np.array(board.run.tokens, np.int32))} if is_mesh else {}),
    }


def dice(board: Growth, tokens: np.ndarray, drawn: np.ndarray) -> list[np.ndarray]:
    """Noise under match seed of the newest tokens' drawn candidates, float32: the token with the greatest log p + noise is drawn."""
    base = Noise(board.run.prompt.seed, vocabulary=1).base  # does not depend on the vocabulary
    rows = zip(board.trail.positions[-len(tokens) :], tokens, drawn, strict=True)
    return [gumbel_at(base, position, row[shown].astype(np.int64)).astype(np.float32) for position, row, shown in rows]


def live_value(frame: RaceFrame) -> dict[str, Any]:
    """Value during a race, of the latest passes; of all passes once it has ended."""
    return encode(frame, None if frame.fast.ended else LATEST)


def panel_for(kind: RunsTable) -> RacePanel:
    """The lens as a panel below a race."""
    idle = IDLE_MESH if kind is MESHES else IDLE
    return RacePanel("lens", partial(build, kind, idle), idle, live_value=live_value)

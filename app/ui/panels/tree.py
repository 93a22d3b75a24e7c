"""The latest draft tree with its accepted path, and the depth and width of all trees of the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.patches import PLAIN, SIDE, Patches
from app.live.stream import Trail
from app.ui.panels import PATCHES, panel, to_text
from app.ui.panels.canvas import VERDICTS, data_url
from app.ui.panels.race import RaceFrame, RacePanel
from engine.core import Method

TEMPLATE = """
<section class="ft-chart" data-state="empty">
  <header><h3>Draft trees</h3><p class="ft-about-chart"></p><output></output></header>
  <div class="ft-charts">
    <figure data-chart="last"><figcaption></figcaption><canvas role="img" aria-label="No tree yet"></canvas></figure>
    <figure data-chart="shapes"><figcaption></figcaption><canvas role="img" aria-label="No trees yet"></canvas></figure>
  </div>
</section>
"""
IDLE = {"state": "empty", "about": "Methods that draft trees (EAGLE-2, ADT-Tree, LANTERN) show them here."}


def build(elem_id: str = "tree") -> gr.HTML:
    """Builds the panel; it is a single line for a method without trees."""
    constants = {"ACCEPTED": json.dumps(VERDICTS[3][1]), "SHEET": json.dumps([PLAIN, SIDE])}
    return panel("tree", dict(IDLE), TEMPLATE, constants, before=(*PATCHES, "icicle"), elem_id=elem_id)


def encode(
    trail: Trail, method: Method, state: str, patches: Patches | None = None, caption: Mapping[str, str] | None = None,
    words: Callable[[int], str] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Everything the script draws, as numbers and base64.

    tokens, parents : int32 [N] of the latest tree, parent -1 = the prefix; path : accepted nodes; behind : number of tokens before the tree
    p : float32 [N], the model's probabilities; depth, width, accepted : int32, one entry per tree of the run
    patches : draws the tokens of a picture; words : describes a token of a mesh
    """
    if trail.tree is None:
        waiting = "tree" in trail.trace_names  # there is none before the first pass ends
        return IDLE if waiting else {"state": "empty", "about": f"{method.title} drafts no trees. EAGLE-2, ADT-Tree and LANTERN do."}
    tree, shapes = trail.tree, np.array(trail.shapes, np.int32)
    return {
        "state": state,
        "about": "Each box is a drafted token, below its predecessor. Good: a long framed path.",
        "title": method.title,
        "made": dict(caption or {}),
        "p": to_text(np.array(tree.p, np.float32)),
        "sheet": data_url(patches.sheet(tree.tokens), lossless=True) if patches and patches.is_available else "",
        "words": [words(token) for token in tree.tokens] if words else [],
        "tokens": to_text(np.array(tree.tokens, np.int32)),
        "parents": to_text(np.array(tree.parents, np.int32)),
        "path": list(tree.path),
        "behind": trail.behind,
        **{name: to_text(shapes[:, i]) for i, name in enumerate(("depth", "width", "accepted"))},
    }


def live_value(frame: RaceFrame) -> dict[str, Any]:
    """Value during and after a race."""
    return encode(frame.fast.trail, frame.fast.run.method, frame.state, frame.patches, frame.caption, frame.words)


PANEL = RacePanel("tree", build, IDLE, live_value=live_value)

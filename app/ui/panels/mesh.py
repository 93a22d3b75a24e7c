"""Two meshes that grow face by face under one camera, coloured by how each face was generated.

A finished side may have other surfaces to show in place of its faces: the same faces snapped to the points, or one made without a model.

Each value contains the whole state, so a tab that opens late or misses an update needs no earlier values. Updates are still small:
a face takes 18 bytes, a multiple of 3, so adding faces only appends to the base64 text, and Gradio sends only the new end, which is
all that the script decodes. The value of a finished run also has its course, from which the panel replays it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from app.live.boards.mesh import FACE, NATS, NOTHING_DRAFTED, records
from app.ui.panels import panel, to_text
from app.ui.panels.canvas import COUNTERS, VIRIDIS

SCRIPTS = ("mesh_camera", "mesh_drawing", "mesh_replay")  # mesh.js needs them
SIDES = ("plain", "accelerated")
CELLS = 128  # corner q of a face is at (q + 0.5) / CELLS * 2 - 1 in the box [-1, 1]
FINE = 65536  # the same for a corner of another surface, as uint16
DECODED, SNAPPED, CLASSICAL = "decoded", "snapped", "classical"
SURFACES = {  # of a side: its faces, and others; name: (label, explanation)
    DECODED: ("As decoded", "The mesh as the model wrote it."),
    SNAPPED: ("Snapped to points", "The same faces, with their corners moved to your points."),
    CLASSICAL: ("Classical surface", "Made of your points by geometry: no tokens, no model."),
}
FARTHEST = 32767  # 1.0 as an int16

CIVIDIS = (
    (0, 34, 78), (0, 46, 108), (31, 58, 110), (53, 69, 108), (72, 81, 108), (87, 93, 109), (103, 104, 112), (119, 117, 117),
    (136, 130, 121), (152, 144, 121), (170, 157, 118), (188, 171, 112), (207, 186, 102), (226, 202, 88), (245, 218, 65),
    (254, 232, 56),
)  # fmt: skip
INFERNO = (
    (0, 0, 4), (12, 8, 38), (36, 12, 79), (66, 10, 104), (93, 18, 110), (120, 28, 109), (147, 38, 103), (174, 48, 92),
    (199, 62, 76), (221, 81, 58), (237, 105, 37), (248, 133, 15), (252, 165, 10), (250, 198, 45), (242, 230, 97), (252, 255, 164),
)[3:]  # fmt: skip
EARLY_TO_LATE = ((0, 92, 158), (52, 133, 194), (124, 176, 216), (201, 211, 219), (242, 205, 136), (236, 166, 56), (214, 122, 8))
MAPS = {
    "plain": ("Clay", "The shape alone.", ()),
    "accepted": ("Accepted drafts", "Share of the face's tokens that were drafted and accepted.", VIRIDIS),
    "step": ("Step", "The step that completed the face; successive steps differ in brightness.", EARLY_TO_LATE),
    "depth": ("Draft depth", "How far ahead, in tokens, the face's last token was drafted.", CIVIDIS),
    "probability": ("Acceptance probability", "Mean acceptance probability of the drafts of the face's tokens.", VIRIDIS),
    "top": (
        "Certainty (top-1)",
        "How certain the model was: the probability of its most probable token, averaged over the face.",
        INFERNO,
    ),
    "entropy": ("Uncertainty (entropy)", "How undecided the model was: mean entropy over the face's tokens, in nats.", INFERNO),
}
FLOOR = "A sampling floor: the distance between two samples of the input, about that of a perfect mesh."
COUNTER_FORMATS = {"seconds": ".2f", "tokens_per_second": ",.1f", "forwards": ",.0f", "step_compression": ".2f"}
MODES = {"shaded": "Shaded", "wireframe": "Wireframe", "both": "Both", "points": "Points"}
ACTIONS = {  # name: (label, strokes of its icon)
    "reset": ("Reset the view (0)", "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3"),
    "save": ("Save as PNG", "M8 2v8M4.8 7 8 10.2 11.2 7M3 13.5h10"),
    "fullscreen": ("Full screen (f)", "M6 2.5H2.5V6M10 2.5h3.5V6M6 13.5H2.5V10M10 13.5h3.5V10"),
}
SIDE = """
<div data-side="{name}">
  <header><i class="ft-dot"></i><h3></h3><span class="ft-mesh-count"></span>
    <span class="ft-badge" role="note" tabindex="0" hidden></span></header>
  <p class="ft-empty-text"></p>
  <p class="ft-readout"></p>
</div>
"""
NUMBERS = """
<div>
  <div class="ft-surfaces" data-side="{name}" hidden>
    <div class="ft-segments" role="group" aria-label="Surface">{surfaces}</div><span role="status" title="{floor}"></span>
  </div>
  <dl class="ft-counters" data-side="{name}">{cells}</dl>
</div>
"""
TEMPLATE = """
<section class="ft-mesh" data-state="empty">
  <div class="ft-mesh-frame">
    <canvas tabindex="0" role="application" aria-roledescription="3D view" aria-label="No mesh yet"
      aria-description="Arrow keys rotate, with Shift they move, plus and minus zoom, 0 resets the view, f is full screen."></canvas>
    <div class="ft-mesh-sides">{sides}</div>
    <p class="ft-mesh-note" role="status"></p>
    <div class="ft-mesh-actions">{actions}</div>
  </div>
  <div class="ft-mesh-numbers">{counters}</div>
  <div class="ft-overlay-bar ft-mesh-bar">
    <div><span>View</span><div class="ft-segments" role="group" aria-label="View">{modes}</div></div>
    <label><span>Colour by</span><select aria-label="Colour faces by">{maps}</select></label>
    <div><span>Show</span><div class="ft-segments" role="group" aria-label="Show">
      <button type="button" data-show="points">Input points</button><button type="button" data-show="ghost">Drafts</button>
      <button type="button" data-wipe>Compare with a slider</button>
    </div></div>
    <label class="ft-opacity ft-mesh-wipe" hidden><span>Between the two meshes</span>
      <input class="ft-control" type="range" min="0" max="1000" value="500" aria-label="Slider between the two meshes">
    </label>
    <div class="ft-legend" aria-live="off"></div>
  </div>
</section>
"""


def _template(names: Sequence[str]) -> str:
    """HTML of the empty panel: sides over one canvas, counters, and display options."""
    modes = "".join(f'<button type="button" data-mode="{name}">{label}</button>' for name, label in MODES.items())
    maps = "".join(f'<option value="{name}">{label}</option>' for name, (label, _, _) in MAPS.items())
    cells = "".join(f'<div data-key="{key}" title="{text}"><dt>{label}</dt><dd>–</dd></div>' for key, (label, text) in COUNTERS.items())
    actions = "".join(
        f'<button type="button" data-do="{name}" title="{label}" aria-label="{label}">'
        f'<svg viewBox="0 0 16 16" aria-hidden="true"><path d="{path}"/></svg></button>'
        for name, (label, path) in ACTIONS.items()
    )
    sides = "".join(SIDE.format(name=name) for name in names)
    surfaces = "".join(
        f'<button type="button" data-surface="{name}" title="{text}">{label}</button>' for name, (label, text) in SURFACES.items()
    )
    counters = "".join(NUMBERS.format(name=name, surfaces=surfaces, floor=FLOOR, cells=cells) for name in names)
    return TEMPLATE.format(modes=modes, maps=maps, actions=actions, sides=sides, counters=counters)


class Surface(NamedTuple):
    """A surface that a side can show. note : its distance, in words; corners : float [F, 3, 3] in the box [-1, 1], None = the side's faces;
    those of SNAPPED belong to the side's faces one by one"""

    note: str
    corners: np.ndarray | None = None


@dataclass
class Side:
    """Display of one run. Faces never change; new ones are appended.

    faces : FACE [F], see app/live/boards/mesh.py, +y up; ghost : uint8 [G, 3, 3], drafted faces, which may still be rejected
    state : empty, running, done or stopped; badge : {"exact": bool, "why": str}; text : shown in an empty view
    counters : by the names of canvas.COUNTERS; others are ignored; course : of a finished run, see mesh_side.course_of
    surfaces : by the names of SURFACES; shows : the one that is shown first
    """

    faces: np.ndarray = field(default_factory=lambda: np.zeros(0, FACE))
    ghost: np.ndarray = field(default_factory=lambda: np.zeros((0, 3, 3), np.uint8))
    title: str = ""
    state: str = "running"
    badge: Mapping[str, Any] | None = None
    counters: Mapping[str, float] | None = None
    text: str = ""
    course: Mapping[str, str] | None = None
    surfaces: Mapping[str, Surface] = field(default_factory=dict)
    shows: str = DECODED

    @classmethod
    def empty(cls, title: str, text: str = "") -> Side:
        """A side without a mesh."""
        return cls(title=title, state="empty", text=text)


def build(value: Mapping[str, Any] | None, elem_id: str = "mesh", names: Sequence[str] = SIDES) -> gr.HTML:
    """Builds the panel. value : from `encode`, or None = drawn once there is a value; names : of the possible sides"""
    constants = {
        "MAPS": json.dumps({name: {"help": text, "stops": stops} for name, (_, text, stops) in MAPS.items()}),
        "FINE": str(FINE),
        "CELL": str(FINE // CELLS),
        "SURFACES": json.dumps({name: label for name, (label, _) in SURFACES.items()}),
        "UNKNOWN": str(NOTHING_DRAFTED),
        "FARTHEST": str(FARTHEST),
        "RECORD": str(FACE.itemsize),
        "MAP_COUNT": str(len(MAPS) - 1),
        "NATS": str(NATS),
        "SIDES": json.dumps(names),
    }
    return panel("mesh", value, _template(names), constants, SCRIPTS, elem_id=elem_id)


def encode(sides: Mapping[str, Side | None], points: np.ndarray | None = None, names: Sequence[str] = SIDES) -> dict[str, Any]:
    """Everything the script draws, as numbers and base64.

    sides  : by name; if one is missing or None, the others fill the panel
    points : float [N, 3] or [N, 6], the input cloud in [-1, 1] and, if known, its unit normals
    """
    shown = {name: sides[name] for name in names if sides.get(name) is not None}
    assert shown, f"at least one side of {', '.join(names)} is needed"
    states = {side.state for side in shown.values()}
    return {
        "state": next((s for s in ("running", "stopped", "done") if s in states), "empty"),
        "sides": {name: _side(side) for name, side in shown.items()},
        "points": "" if points is None else to_text(_int16(points)),
    }


def _side(side: Side) -> dict[str, Any]:
    totals = side.counters or {}
    assert (side.faces["corners"] < CELLS).all(), f"corners must be in 0..{CELLS - 1}"
    counters = {name: f"{totals[name]:{form}}" for name, form in COUNTER_FORMATS.items() if name in totals}
    return {
        "title": side.title,
        "state": side.state,
        "badge": dict(side.badge) if side.badge else None,
        "counters": counters,
        "text": side.text,
        "faces": to_text(side.faces),
        "ghost": to_text(records(side.ghost)),
        "course": dict(side.course) if side.course else None,
        "surfaces": encode_surfaces(side.surfaces),
        "shows": side.shows,
    }


def encode_surfaces(surfaces: Mapping[str, Surface]) -> dict[str, dict[str, str]]:
    """Surfaces for the script, in the order of SURFACES; corners as base64 of uint16."""
    return {name: {"note": surfaces[name].note, "corners": _fine(surfaces[name].corners)} for name in SURFACES if name in surfaces}


def with_surfaces(value: Mapping[str, Any], surfaces: Mapping[str, Any], side: str = SIDES[-1]) -> dict[str, Any]:
    """A value of `encode` whose side has these encoded surfaces."""
    return {**value, "sides": {**value["sides"], side: {**value["sides"][side], "surfaces": surfaces}}}


def _fine(corners: np.ndarray | None) -> str:
    if corners is None:
        return ""
    return to_text(((np.clip(corners, -1, 1) + 1) / 2 * FINE - 0.5).round().clip(0, FINE - 1).astype("<u2"))


def _int16(points: np.ndarray) -> np.ndarray:
    assert points.ndim == 2 and points.shape[1] in (3, 6), f"points must be [N, 3] or [N, 6], not {points.shape}"
    numbers = np.zeros((len(points), 6))  # zero = unknown normal
    numbers[:, : points.shape[1]] = np.clip(np.nan_to_num(points), -1, 1) * FARTHEST
    return numbers.round().astype("<i2")

"""Table of the runs stored in this browser, with the settings to repeat each; the server stores none of it."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
from PIL import Image

from app.live.boards.picture import Board
from app.live.stream import Growth
from app.requests.sides import start_values
from app.runs import history
from app.ui.knobs import label
from app.ui.method_menu import title_of
from app.ui.panels import panel
from app.ui.panels.canvas import data_url
from app.ui.panels.race import RacePanel
from app.ui.panels.verdict import quartiles
from engine.core import Suits
from engine.mesh.read import Input

THUMBNAIL = 96  # pixels
MOST = 4  # maximum number of runs in a race
TEMPLATE = """
<section class="ft-runs" hidden>
  <header><h3>Runs</h3><button type="button" data-do="race" hidden></button>
    <input type="search" aria-label="Search the runs">
    <button type="button" data-do="csv">Copy as CSV</button><button type="button" data-do="markdown">Copy as Markdown</button>
    <button type="button" data-do="export">Export</button><button type="button" data-do="clear">Delete all</button>
  </header>
  <div class="ft-runs-table" tabindex="0" role="region" aria-label="Table of runs"><table><thead></thead><tbody></tbody></table></div>
  <p class="ft-runs-status" role="status"></p>
</section>
"""


class RunsTable(NamedTuple):
    """Differences between the tables of the tabs.

    name : kind of run; elem_id : of the panel; prompt : title of the prompt column; search : placeholder of the search field
    last : storage key of the race on display
    lanes : id of the panel that races chosen runs; sides : paths to the value of each row's run in the race's panels, the right one first
    columns : (title, row entry) of columns that only this kind has; ready : selector that must match before settings are restored
    """

    name: str
    elem_id: str
    prompt: str
    search: str
    last: str
    lanes: str
    sides: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, str], ...] = ()
    ready: str = ""


PICTURES = RunsTable(
    "image", "runs", "Prompt", "Search prompts and methods", "foretoken-race", "lanes", (("canvas-fast",), ("canvas-plain",)),
    ready="#ready i",
)  # fmt: skip
MESHES = RunsTable(
    "mesh", "mesh-runs", "Input", "Search inputs and methods", "foretoken-race-mesh", "mesh-lanes",
    (("mesh", "sides", "accelerated"), ("mesh", "sides", "plain")),
    (("Faces", "faces"), ("Holes", "holes"), ("Fit", "fit")), "#mesh-ready i",
)  # fmt: skip


class RunRow(NamedTuple):
    """A run for the table. more : row entries that only its kind has"""

    board: Growth
    thumbnail: str
    shape: Input | None = None
    more: Mapping[str, Any] = {}


def build(kind: RunsTable) -> gr.HTML:
    """Builds the table, hidden while empty."""
    return panel(
        "runs",
        None,
        TEMPLATE,
        {"KIND": json.dumps(kind._asdict()), "MOST": str(MOST)},
        before=("asking", "runs_store"),
        elem_id=kind.elem_id,
    )


def panel_for(kind: RunsTable) -> RacePanel:
    """The table as a panel below a race; a new run keeps its value."""
    return RacePanel("runs", lambda elem_id: build(kind), stays=True)


def picture(board: Board) -> RunRow:
    """Row of a picture."""
    return RunRow(board, thumbnail(board.final()))


def encode(kind: RunsTable, entries: Sequence[RunRow], seconds: Sequence[Sequence[float]], suits: Suits) -> dict[str, Any]:
    """A race for the table, one row per side, the right one first. seconds : of all runs of each side"""
    boards = [entry.board for entry in entries]
    times = [float(np.median(each)) / max(1, len(board.run.tokens)) for board, each in zip(boards, seconds, strict=True)]
    rows = [row(entry, each, suits) for entry, each in zip(entries, seconds, strict=True)]
    if len(boards) > 1 and all(board.run.finished for board in boards):
        rows[0]["speedup"] = times[1] / times[0]
        rows[0]["against"] = rows[1]["title"]
    return {"id": secrets.token_hex(8), "kind": kind.name, "when": time.time(), "rows": rows}


def with_surfaces(race: str, surfaces: Mapping[str, Any]) -> dict[str, Any]:
    """Other surfaces of the right mesh of a race in the table, as its view shows them. race : its id"""
    return {"surfaces": surfaces, "race": race}


def row(entry: RunRow, seconds: Sequence[float], suits: Suits) -> dict[str, Any]:
    """Table row of a run, with its settings."""
    board, run, totals = entry.board, entry.board.run, entry.board.run.totals
    settings = history.describe(run, entry.shape)
    low, middle, high = quartiles(seconds)
    return {
        "thumbnail": entry.thumbnail,
        "title": title_of(run.name),
        "changed": changed_knobs(run.name, settings["knobs"], suits),
        "moved": len(settings["moves"]),
        "prompt": settings["prompt"],
        "seed": run.prompt.seed,
        "size": run.prompt.size,
        "seconds": middle,
        "quartiles": [low, high] if len(seconds) > 1 else None,
        "times": len(seconds),
        "passes": totals["forwards"],
        "compression": totals["step_compression"],
        "speedup": None,
        "exact": run.exact,
        "deviation": board.trail.deviation if board.trail.deviation == board.trail.deviation else None,
        "finished": run.finished,
        "settings": settings,
        **entry.more,
    }


def changed_knobs(name: str, knobs: Mapping[str, Any], suits: Suits) -> str:
    """Knobs that differ from the method's initial values, as text."""
    method, start = start_values(name, suits)
    usual = {knob.name: start.get(knob.name, knob.default) for knob in method.knobs}
    declared = {knob.name: knob for knob in method.knobs}
    moved = ((declared[k], v) for k, v in knobs.items() if k in declared and usual.get(k) != v)
    words = (f"{label(knob).lower()} {knob.words.get(v, v) if isinstance(v, str) else format(v, 'g')}" for knob, v in moved)
    return ", ".join(words)


def thumbnail(picture: np.ndarray | Image.Image, side: int = THUMBNAIL) -> str:
    """A picture as a small JPEG in a data: URL. side : maximum width and height in pixels"""
    small = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture.convert("RGB")
    small.thumbnail((side, side))
    return data_url(np.asarray(small), lossless=False)

"""Nine at once: pictures of one prompt with nine seeds, or with three values of two knobs, decoded in joint passes; the judge chooses the
best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.picture import Board
from app.live.one_thread import in_one_thread
from app.live.stream import Throttle, updates
from app.requests import validation
from app.requests.limits import LARGEST_SEED
from app.requests.pictures import sampling_knobs
from app.requests.sides import Side, checked_side
from app.runs import history
from app.ui.knobs import label, stops
from app.ui.panels import grid, notice, runs, verdict
from app.ui.tabs.method_form import checked_by_odds
from app.ui.tabs.race import RaceRequest, RaceTab
from app.ui.tabs.saving import try_save
from engine.core import Backbone, Knob
from engine.errors import BadPrompt
from engine.many import race_together
from engine.methods import find
from engine.recognition.picture_judge import ObjectCount
from engine.run import generate

SIDE = 3  # pictures along a side of the grid
COUNT = SIDE * SIDE
GAP = 8  # pixels between the pictures of the file
RUNNING = {"state": "running", "live": "Nine pictures grow together", "detail": "Their passes are computed as one."}
DETAIL = "Seeds {} to {} together took {:.1f} s, {:.1f} s per picture. {}"
CROSSED = "{} across and {} down, with seed {}, together took {:.1f} s. {}"
TWO_KNOBS = "A grid needs two different knobs of this method. Choose one across and another one down."
FRAMED, UNJUDGED = "Framed: the one that shows your prompt best.", "The judge cannot tell for this prompt or size, so none is framed."


@dataclass(frozen=True)
class Cell:
    """A picture of the grid. label : what it has and the others have not"""

    request: RaceRequest
    side: Side
    label: str = ""


def run(tab: RaceTab, ticket: object, *fields: object) -> Iterator[dict[str, Any]]:
    """Draws nine pictures; yields values of panels. fields : the knobs to vary, None = the seed, then the prompt, seed, method, knobs and
    settings, and Gradio's request"""
    wanted, *own, seed, name, knobs, values, request = fields
    visitor = request.session_hash

    def read(change: Mapping[str, float]) -> Cell:
        panel = checked_by_odds(with_values(knobs, change))[0]
        checked = tab.subject.read(visitor, own, seed, with_values(values, change))
        text = ", ".join(f"{knob.replace('_', ' ')} {each:g}" for knob, each in change.items())
        return Cell(checked, checked_side(name, panel, checked.backbone), text)

    def draw(number: int) -> Iterator[dict[str, Any]]:
        offered = knobs_to_vary(name, tab.subject.backbone)
        axes = checked_axes(wanted, offered)
        cells = of_seeds(read({})) if axes is None else [read(change) for change in changes(axes, values, knobs)]
        yield from draw_all(tab, visitor, number, cells, axes, offered)

    yield from tab.queue.hold(visitor, ticket, draw)


def of_seeds(cell: Cell) -> list[Cell]:
    """The picture with its seed and the next ones."""
    first = min(cell.request.prompt.seed, LARGEST_SEED + 1 - COUNT)
    prompts = [replace(cell.request.prompt, seed=seed) for seed in range(first, first + COUNT)]
    return [replace(cell, request=cell.request._replace(prompt=prompt), label=f"Seed {prompt.seed}") for prompt in prompts]


def changes(axes: tuple[Knob, Knob], *panels: object) -> list[dict[str, float]]:
    """The values of both knobs in each picture, in rows. panels : with the values to start from"""
    across, down = ([(knob.name, each) for each in three_values(knob, value_of(knob, *panels))] for knob in axes)
    return [dict((x, y)) for y in down for x in across]


def knobs_to_vary(name: object, backbone: Backbone) -> list[Knob]:
    """The knobs with numbers that a grid can vary: of sampling, then of a method."""
    _, method = validation.method(name, backbone)
    return [knob for knob in (*sampling_knobs(backbone), *method.knobs) if not knob.choices]


def checked_axes(wanted: object, knobs: Sequence[Knob]) -> tuple[Knob, Knob] | None:
    """The knobs across and down; None for nine seeds. Raises BadPrompt."""
    if wanted is None:
        return None
    names = [wanted.get(side) for side in ("across", "down")] if isinstance(wanted, Mapping) else []
    axes = tuple(next((knob for knob in knobs if knob.name == each), None) for each in names)
    if len(axes) != 2 or None in axes or axes[0] is axes[1]:
        raise BadPrompt(TWO_KNOBS)
    return axes


def with_values(panel: object, change: Mapping[str, float]) -> object:
    """A knob panel's value with other values of the knobs that it has."""
    if not isinstance(panel, Mapping) or not isinstance(panel.get("values"), Mapping):
        return panel
    return {**panel, "values": {key: change.get(key, value) for key, value in panel["values"].items()}}


def value_of(knob: Knob, *panels: object) -> float:
    """The knob's value in one of the panels, else its default."""
    for panel in panels:
        values = panel.get("values") if isinstance(panel, Mapping) else None
        if isinstance(values, Mapping) and isinstance(values.get(knob.name), int | float):
            return float(values[knob.name])
    return float(knob.default)


def three_values(knob: Knob, value: float) -> list[float]:
    """The value with one below and one above, an eighth of the slider away or at its end; at an end, two on its other side."""
    places = stops(knob)
    last, away = len(places) - 1, max(1, len(places) // 8)
    own = min(range(len(places)), key=lambda i: abs(places[i] - value))
    chosen = {0: [0, away, 2 * away], last: [last - 2 * away, last - away, last]}.get(own, [own - away, own, own + away])
    return [places[min(max(each, 0), last)] for each in chosen]


def draw_all(
    tab: RaceTab, visitor: str, number: int, cells: Sequence[Cell], axes: tuple[Knob, Knob] | None, knobs: Sequence[Knob]
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Draws the pictures as they grow, and offers them as one file. number : of the ticket; knobs : that the next grid may vary"""
    boards = [Board(generate(c.request.backbone, find(c.side[0])[0], c.request.prompt, c.side[1], name=c.side[0])) for c in cells]
    tab.sessions.hold(visitor, number, [board.run for board in boards])
    labels, offered = [cell.label for cell in cells], [(knob.name, label(knob)) for knob in knobs]
    named = axes and [knob.name for knob in axes]
    shown = [grid.cell(board, text) for board, text in zip(boards, labels, strict=True)]
    yield tab.subject.below.idle_values() | {"grid": grid.value(shown, "running"), "verdict": RUNNING}
    for changed in updates(boards, Throttle(), lambda runs: in_one_thread(race_together(runs))):
        for i in changed:
            shown[i] = grid.cell(boards[i], labels[i])
        yield {"grid": grid.value(shown, "running")}
    if not all(board.run.finished for board in boards):
        yield {"verdict": {"state": "stopped", "headline": "Stopped", "detail": "The pictures are unfinished."}}
        return
    counts = [tab.subject.count(board) for board in boards]
    best, seconds = best_of(counts), sum(board.run.seconds for board in boards)
    described = [history.describe(board.run) for board in boards]
    shown = [grid.cell(*each) for each in zip(boards, labels, map(words_of, counts), described, strict=True)]
    seeds = [board.run.prompt.seed for board in boards]
    settings = described[best or 0] | ({"seeds": seeds} if axes is None else {"across": named[0], "down": named[1], "values": labels})
    sheet = joined([board.final() for board in boards])
    numbered = {"title": "Nine at once", "seed": f"{seeds[0]}–{seeds[-1]}" if axes is None else str(seeds[0])}
    row = runs.RunRow(boards[best or 0], runs.thumbnail(sheet), more=numbered)
    table = runs.encode(tab.subject.kind, [row], [[seconds]], tab.subject.suits)
    what = CROSSED.format(label(axes[0]), label(axes[1]).lower(), seeds[0], seconds, "{}") if axes else ""
    what = what or DETAIL.format(seeds[0], seeds[-1], seconds, seconds / COUNT, "{}")
    yield {"grid": grid.value(shown, "done", best, offered, named), "verdict": line(counts, what), "runs": table}
    tab.queue.leave(visitor, offer(tab, visitor, boards[best or 0], sheet, settings))


def best_of(counts: Sequence[ObjectCount | None]) -> int | None:
    """Index of the picture that shows most of the requested objects, then least else, then the first; None if none was judged."""
    judged = [(i, count) for i, count in enumerate(counts) if count is not None]
    return max(judged, key=lambda each: (each[1].detected / each[1].requested, -each[1].others))[0] if judged else None


def words_of(count: ObjectCount | None) -> str:
    """The judge's count for a picture, in words."""
    if count is None:
        return ""
    return f"{count.detected} of {count.requested}" + (f", {count.others} more" if count.others else "")


def line(counts: Sequence[ObjectCount | None], what: str) -> dict[str, Any]:
    """The line above the finished pictures. what : was drawn, with a place for what is framed"""
    judged = [count for count in counts if count is not None]
    right = sum(count.matches for count in judged)
    headline = f"{right} of {COUNT} show the whole prompt" if judged else f"{COUNT} pictures"
    return verdict.IDLE | {"state": "done", "headline": headline, "detail": what.format(FRAMED if judged else UNJUDGED), "tone": "even"}


def joined(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """uint8 [H, W, 3]: the pictures in rows, with white gaps."""
    framed = [np.pad(picture, ((0, GAP), (0, GAP), (0, 0)), constant_values=255) for picture in pictures]
    rows = [np.concatenate(framed[start:end], axis=1) for start, end in pairwise(range(0, COUNT + 1, SIDE))]
    return np.concatenate(rows)[:-GAP, :-GAP]


def offer(tab: RaceTab, visitor: str, best: Board, sheet: np.ndarray, settings: dict[str, Any]) -> dict[str, Any]:
    """The file of all pictures with their settings as a download, or the disk's error."""

    def write() -> Path:
        file = tab.path_of(visitor, best.run, "-nine.png")
        history.picture_with_settings(sheet, settings, file)
        return file

    file, lost = try_save("download", write)
    button = gr.DownloadButton(value=str(file), interactive=True) if file else gr.DownloadButton(interactive=False)
    return {"download": button, "messages": notice.error(*lost)}

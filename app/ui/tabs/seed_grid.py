"""Nine at once: pictures of one prompt with nine seeds, decoded in joint passes; the judge chooses the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.picture import Board
from app.live.one_thread import in_one_thread
from app.live.stream import Throttle, updates
from app.requests.limits import LARGEST_SEED
from app.requests.sides import checked_side
from app.runs import history
from app.ui.panels import grid, notice, runs, verdict
from app.ui.tabs.race import RaceRequest, RaceTab
from app.ui.tabs.saving import try_save
from engine.many import race_together
from engine.methods import find
from engine.recognition.picture_judge import ObjectCount
from engine.run import generate

SIDE = 3  # pictures along a side of the grid
COUNT = SIDE * SIDE
GAP = 8  # pixels between the pictures of the file
RUNNING = {"state": "running", "live": "Nine pictures grow together", "detail": "Their passes are computed as one."}
DETAIL = "Seeds {} to {} together took {:.1f} s, {:.1f} s per picture. {}"
FRAMED, UNJUDGED = "Framed: the one that shows your prompt best.", "The judge cannot tell for this prompt or size, so none is framed."


def run(tab: RaceTab, ticket: object, *fields: object) -> Iterator[dict[str, Any]]:
    """Draws nine pictures; yields values of panels. fields : of the prompt, seed, method, knobs and settings, and Gradio's request"""
    *own, seed, name, knobs, values, request = fields
    visitor = request.session_hash

    def draw(number: int) -> Iterator[dict[str, Any]]:
        checked = tab.subject.read(visitor, own, seed, values)
        yield from draw_all(tab, visitor, number, checked, checked_side(name, knobs, checked.backbone))

    yield from tab.queue.hold(visitor, ticket, draw)


def draw_all(tab: RaceTab, visitor: str, number: int, request: RaceRequest, side: tuple[str, Any]) -> Iterator[dict[str, Any]]:
    """Draws the pictures as they grow, and offers them as one file. number : of the ticket"""
    first = min(request.prompt.seed, LARGEST_SEED + 1 - COUNT)
    prompts = [replace(request.prompt, seed=first + i) for i in range(COUNT)]
    boards = [Board(generate(request.backbone, find(side[0])[0], prompt, side[1], name=side[0])) for prompt in prompts]
    tab.sessions.hold(visitor, number, [board.run for board in boards])
    cells = [grid.cell(board) for board in boards]
    yield tab.subject.below.idle_values() | {"grid": grid.value(cells, "running"), "verdict": RUNNING}
    for changed in updates(boards, Throttle(), lambda runs: in_one_thread(race_together(runs))):
        for i in changed:
            cells[i] = grid.cell(boards[i])
        yield {"grid": grid.value(cells, "running")}
    if not all(board.run.finished for board in boards):
        yield {"verdict": {"state": "stopped", "headline": "Stopped", "detail": "The pictures are unfinished."}}
        return
    counts = [tab.subject.count(board) for board in boards]
    best, seconds = best_of(counts), sum(board.run.seconds for board in boards)
    settings = history.describe(boards[best or 0].run) | {"seeds": [prompt.seed for prompt in prompts]}
    cells = [grid.cell(board, words_of(count)) for board, count in zip(boards, counts, strict=True)]
    sheet = joined([board.final() for board in boards])
    row = runs.RunRow(boards[best or 0], runs.thumbnail(sheet), more={"title": "Nine at once", "seed": f"{first}–{first + COUNT - 1}"})
    table = runs.encode(tab.subject.kind, [row], [[seconds]], tab.subject.suits)
    yield {"grid": grid.value(cells, "done", best, settings), "verdict": line(counts, first, seconds), "runs": table}
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


def line(counts: Sequence[ObjectCount | None], first: int, seconds: float) -> dict[str, Any]:
    """The line above the finished pictures."""
    judged = [count for count in counts if count is not None]
    right = sum(count.matches for count in judged)
    headline = f"{right} of {COUNT} show the whole prompt" if judged else f"{COUNT} pictures"
    detail = DETAIL.format(first, first + COUNT - 1, seconds, seconds / COUNT, FRAMED if judged else UNJUDGED)
    return verdict.IDLE | {"state": "done", "headline": headline, "detail": detail, "tone": "even"}


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

"""Draws one picture of an API request, with previews, while the request has the engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from app.live.boards.picture import Board
from app.runs import history
from app.server.images_request import ImagesRequest
from app.server.refusals import CLOSING, OVERLOADED, Refused
from app.shared import StudioState
from engine.core import PLAIN, Prompt
from engine.run import Run, speedup


class Partial(NamedTuple):
    """A preview: its number from 0, a file, and a summary of the run so far."""

    index: int
    file: bytes
    summary: dict[str, Any]


class DrawnPicture(NamedTuple):
    """The finished picture: a file, its side in pixels, and a summary of the run."""

    file: bytes
    side: int
    summary: dict[str, Any]


def draw(studio: StudioState, request: ImagesRequest, prompt: Prompt, caller: str, number: int) -> Iterator[Partial | DrawnPicture | None]:
    """Yield previews and the finished picture, and None after each step. The caller must have the engine.

    caller, number : of the ticket. Raises Refused if the run was stopped.
    """
    sides = [(request.method, request.knobs), *([(PLAIN, {})] if request.compare else [])]
    if request.compare:  # the first pass of each shape also pays for allocations
        for each in sides:
            studio.runner.warm(studio.backbone, prompt, each)
    runs = studio.runner.start(studio.backbone, prompt, sides)
    studio.sessions.hold(caller, number, runs)
    board, sent_previews = Board(runs[0]), 0
    for which, step in studio.runner.race(runs):
        if which == 0:
            board.add(step)
            if sent_previews < previews_due(board, request.partials) <= request.partials:
                yield Partial(sent_previews, request.format.write(board.picture()), {**summary(board.run), **request.notes})
                sent_previews += 1
        yield None
    if not all(run.finished for run in runs):
        raise Refused(CLOSING, status=503, code="stopped", kind=OVERLOADED)
    file = request.format.write(board.picture(), history.describe(board.run))
    yield DrawnPicture(file, board.final().shape[1], {**summary(*runs), **request.notes})


def previews_due(board: Board, partials: int) -> int:
    """Number of previews due, spaced evenly over the tokens; more than `partials` once all are committed."""
    return len(board.run.tokens) * (partials + 1) // len(board.verdict)


def summary(run: Run, plain: Run | None = None) -> dict[str, Any]:
    """Fields of a reply about a run. plain : the same prompt decoded plainly, for the speed-up"""
    totals = run.totals
    return {
        "method": run.name,
        "seed": run.prompt.seed,
        "exact": run.exact,
        "tokens": totals["tokens"],
        "passes": totals["forwards"],
        "draft_passes": totals["draft_forwards"],
        "tokens_per_pass": totals["step_compression"],
        "seconds": run.seconds,
        **({"speedup": speedup([plain], [run]), "plain_seconds": plain.seconds} if plain else {}),
    }

"""Example loop for a new Lab tab, measured once on this machine like the example race."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.live.boards.loop import LoopBoard
from app.live.boards.picture import Board
from app.live.worker import LocalRunner
from app.requests.pictures import EXAMPLES, FAVOURITE
from app.requests.sides import start_values
from app.ui.panels import kinds, lab
from app.ui.panels.runs import thumbnail
from app.ui.tabs import example
from engine.core import PLAIN, Backbone, Prompt

SEED = 7
MOVES: tuple[dict[str, float | str], ...] = (  # the knobs of each picture; the counters show the last
    {"relax": "additive", "added_mass": 0.1}, {"relax": "additive", "added_mass": 0.3}, {"relax": "additive", "added_mass": 0.6},
    {}, {"window": 4}, {"window": 8},
)  # fmt: skip
NOTE = "An example, measured on this machine. Start the loop, then move a knob."


def read(folder: Path | None, backbone: Backbone) -> dict[str, Any]:
    """Value of the stage; {} without a folder for examples, or for a slow model."""
    if folder is None:
        return {}
    inputs = {"prompts": EXAMPLES, "seed": SEED, "method": FAVOURITE, "moves": MOVES}
    return example.read(folder / "lab", backbone, inputs, lambda: run(backbone))


def run(backbone: Backbone) -> dict[str, Any]:
    """Value of the stage after the example loop; {} if it would take too long."""
    size = min(backbone.sizes, default=None)
    plain = Board(LocalRunner().start(backbone, Prompt(EXAMPLES[0], seed=SEED, size=size), [(PLAIN, {})])[0])
    for _ in example.race([plain]):
        pass
    if not plain.run.finished:
        return {}
    board, picture = LoopBoard(), plain
    for number, knobs in enumerate(MOVES):
        picture = draw_picture(backbone, Prompt(EXAMPLES[number % len(EXAMPLES)], seed=SEED + number, size=size), knobs, board)
    facts = lab.made_with(backbone, SEED)
    value = lab.encode(board, picture, plain.run.totals["tokens_per_second"], "example", facts, "stopped")
    return value | {"kind": kinds.PICTURES, "example": NOTE}


def draw_picture(backbone: Backbone, prompt: Prompt, knobs: Mapping[str, float | str], board: LoopBoard) -> Board:
    """Draws a picture of the loop. knobs : replace the method's initial values"""
    start = start_values(FAVOURITE, backbone.suits)[1] | {"verify": "residual"}  # a relaxed rule cannot match the seed
    (run,) = LocalRunner().start(backbone, prompt, [(FAVOURITE, start | knobs)])
    picture = Board(run)
    for step in run:
        picture.add(step)
        board.add(run, step)
    board.finish(run, thumbnail(picture.final()))
    return picture

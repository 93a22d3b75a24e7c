"""Example loop for a new Lab tab: a recorded one, then one of this machine, like the example race."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.live.boards.loop import LoopBoard
from app.live.boards.picture import Board
from app.live.worker import LocalRunner
from app.requests.pictures import EXAMPLES, FAVOURITE
from app.requests.sides import start_values
from app.ui.panels import elsewhere, kinds, lab
from app.ui.panels.runs import thumbnail
from app.ui.tabs import example
from engine.core import PLAIN, Backbone, Prompt

SEED = 7
MOVES: tuple[dict[str, float | str], ...] = (  # the knobs of each picture; the counters show the last
    {"relax": "additive", "added_mass": 0.1}, {"relax": "additive", "added_mass": 0.3}, {"relax": "additive", "added_mass": 0.6},
    {}, {"window": 4}, {"window": 8},
)  # fmt: skip
NAME = "lab"
NOTE = "An example, measured on {}. Start the loop, then move a knob."


INPUTS = {"prompts": EXAMPLES, "seed": SEED, "method": FAVOURITE, "moves": MOVES}


def read(folder: Path, backbone: Backbone) -> dict[str, Any]:
    """Value of the stage: of this machine if it has been made, else as recorded."""
    value, machine = example.shown(folder / NAME, backbone, INPUTS, NAME)
    return value | {"example": NOTE.format(machine)}


def make(folder: Path, backbone: Backbone, interrupted: Callable[[], object]) -> None:
    """Measures the example loop on this machine once."""
    example.make(folder / NAME, backbone, INPUTS, lambda: run(backbone, interrupted))


def run(backbone: Backbone, interrupted: Callable[[], object]) -> dict[str, Any]:
    """Value of the stage after the example loop; {} if it would take too long or was interrupted."""
    size = min(backbone.sizes, default=None)
    plain = Board(LocalRunner().start(backbone, Prompt(EXAMPLES[0], seed=SEED, size=size), [(PLAIN, {})])[0])
    for _ in example.race([plain], interrupted):
        pass
    if not plain.run.finished:
        return {}
    board, picture = LoopBoard(elsewhere.sizes(backbone)), plain
    for number, knobs in enumerate(MOVES):
        if interrupted():
            return {}
        picture = draw_picture(backbone, Prompt(EXAMPLES[number % len(EXAMPLES)], seed=SEED + number, size=size), knobs, board)
    facts = lab.made_with(backbone, SEED)
    value = lab.encode(board, picture, plain.run.totals["tokens_per_second"], "example", facts, "stopped")
    return value | {"kind": kinds.PICTURES}


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

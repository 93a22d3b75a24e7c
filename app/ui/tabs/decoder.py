"""Decodes the sides of a race for a ticket, shows them, and writes larger files in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from app.live.session import Sessions
from app.live.stream import RaceCosts, Shown, Throttle, updates
from app.live.worker import LocalRunner, RemoteRunner
from app.requests.sides import Sides
from app.ui.tabs.saving import try_save
from engine.core import Backbone, Prompt
from engine.errors import BadOutput
from engine.run import Run

LONGEST_WAIT = 20.0  # seconds that a larger file waits for a run to end, because writing would slow it to less than half its speed


class DecodedRace(NamedTuple):
    """A decoded race: boards, the right one first; seconds of all runs of each side; breakdown of the time."""

    boards: list[Any]
    seconds: list[list[float]]
    costs: RaceCosts


class TabRuns:
    """Decodes the runs of a tab."""

    def __init__(self, sessions: Sessions, runner: LocalRunner | RemoteRunner):
        self.sessions, self.runner = sessions, runner
        self._warmed: set[tuple[Any, ...]] = set()

    def start(
        self, visitor: str, number: int, backbone: Backbone, prompt: Prompt, sides: Sides, steps: int = 1, left: Prompt | None = None
    ) -> list[Run]:
        """Starts a run per side, connected to the visitor's sliders and Cancel.

        number : of the ticket; steps : warm-up steps before the first run with these settings; left : see `LocalRunner.start`
        """
        for each, values in sides:
            shape = (backbone.name, each, prompt.size, tuple(sorted(values.items())))
            if shape not in self._warmed:
                self.runner.warm(backbone, prompt, (each, values), steps)
                self._warmed.add(shape)
        runs = self.runner.start(backbone, prompt, sides, left)
        self.sessions.hold(visitor, number, runs)
        return runs

    def race(
        self, visitor: str, number: int, backbone: Backbone, prompt: Prompt, sides: Sides, board_of: Callable[[Run], Shown],
        draw: Callable[[list[Shown], set[int]], dict[str, Any]], times: int = 1, steps: int = 1,
        left: Prompt | None = None,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Races the sides and shows them, then repeats the runs without drawing. Returns a DecodedRace.

        number : of the ticket; draw : values of panels, given the boards and which changed; times : runs per side; steps : for warm-up
        left : see `LocalRunner.start`
        """
        boards = [board_of(run) for run in self.start(visitor, number, backbone, prompt, sides, steps, left)]
        costs = RaceCosts()
        for changed in updates(boards, Throttle(), self.runner.race):
            begun = costs.now()
            update = draw(boards, changed)
            costs.record_drawing(begun)
            yield update
            costs.record_sending()
        seconds = [[board.run.seconds] for board in boards]
        if all(board.run.finished for board in boards):
            for again in range(2, times + 1):
                outcome = {"state": "running", "live": f"Repeat {again} of {times}", "detail": "The same runs again, without drawing."}
                yield {"verdict": outcome}
                if not self.repeat(visitor, number, backbone, prompt, sides, seconds):
                    break
        return DecodedRace(boards, seconds, costs)

    def repeat(self, visitor: str, number: int, backbone: Backbone, prompt: Prompt, sides: Sides, seconds: list[list[float]]) -> bool:
        """Runs each side once more, one after the other, and appends its seconds; False if the visitor stopped it."""
        again = self.runner.start(backbone, prompt, sides)
        self.sessions.hold(visitor, number, again)
        self.runner.finish(again)
        if not all(run.finished for run in again):
            return False
        for each, run in zip(seconds, again, strict=True):
            each.append(run.seconds)
        return True


def write_files(
    sessions: Sessions, tab: str, visitor: str, ticket: int, writers: Mapping[str, Callable[[Path], Path]], path_of: Callable[[str], Path]
) -> tuple[dict[str, Any], list[BadOutput]]:
    """Writes the larger files of a race; returns buttons for those that were written, and the disk's errors. Each file waits up to
    LONGEST_WAIT for the engine to be free. Stops and offers nothing once the page is closed or shows another race.

    tab, ticket : of the race; writers : by name of the button; path_of : path of a file by name
    """
    offers, mistakes = {}, []
    for name, write in writers.items():
        sessions.wait_until_free(LONGEST_WAIT)
        if not sessions.shows(visitor, tab, ticket):
            return {}, []
        file, lost = try_save(name, lambda name=name, write=write: write(path_of(name)))
        offers |= {name: gr.DownloadButton(value=str(file), interactive=True)} if file else {}
        mistakes += lost
    return offers, mistakes

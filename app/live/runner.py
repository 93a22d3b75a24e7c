"""Decodes the runs of a studio; a studio has one runner, and tests give it another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.requests.sides import Side, Sides
from engine import run
from engine.core import Backbone, Prompt, Step
from engine.methods import find
from engine.run import Run, generate


class Runner:
    """Decodes in this process."""

    def start(self, backbone: Backbone, prompt: Prompt, sides: Sides) -> list[Run]:
        """A run for every side."""
        return [generate(backbone, find(name)[0], prompt, knobs, name=name) for name, knobs in sides]

    def race(self, runs: Sequence[Run]) -> Iterator[tuple[int, Step]]:
        """Advances the runs; see engine.run.race."""
        return run.race(runs)

    def warm(self, backbone: Backbone, prompt: Prompt, side: Side, steps: int = 1) -> None:
        """Runs some unmeasured steps: the first pass of each shape also pays for allocations."""
        (trial,) = self.start(backbone, prompt, [side])
        try:
            for _ in range(steps):
                next(trial, None)
        finally:
            trial.close()

"""How the time of a step divides into the model's pass, the drafter's networks, and the rest: sampling, verdicts, bookkeeping."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from engine.core import Backbone, Prompt
from engine.drafters.feature_draft import NetworkGrowth
from engine.drafters.mesh_heads import HostHeads, MeshHeads
from engine.methods import find
from engine.networks.sequence import TransformerSequence
from engine.run import generate
from engine.tuning.bound import clock

MODEL = ((TransformerSequence, "forward"),)
DRAFTERS = ((HostHeads, "__call__"), (MeshHeads, "features"), (MeshHeads, "logits"), (NetworkGrowth, "_pass"))


class Stopwatch:
    """Seconds spent in functions; nested calls count once, in the outermost."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now, self.seconds, self.is_running = now, 0.0, False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with its calls counted."""

        def call(*a: Any, **k: Any) -> Any:
            if self.is_running:
                return function(*a, **k)
            self.is_running, start = True, self.now()
            try:
                return function(*a, **k)
            finally:
                self.is_running = False
                self.seconds += self.now() - start

        return call

    @contextmanager
    def on(self, targets: Sequence[tuple[Any, str]]) -> Iterator[None]:
        """Inside the block, counts the calls of these functions of classes or modules."""
        before = [(owner, name, getattr(owner, name)) for owner, name in targets]
        for owner, name, function in before:
            setattr(owner, name, self.timed(function))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)


def split(backbone: Backbone, name: str, knobs: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Returns shares of a step's time. name : of a method or a preset

    With one thread on a CPU the clock is the thread's own, so that other programs do not count; else it is that of the wall.
    """
    now = clock if backbone.device.type == "cpu" else time.perf_counter
    model, drafter = Stopwatch(now), Stopwatch(now)
    method, preset = find(name)
    with drafter.on(DRAFTERS), model.on(MODEL):
        run = generate(backbone, method, prompt, {**preset, **knobs})
        next(run)
        model.seconds = drafter.seconds = 0.0
        start = now()
        run.finish()
        total = now() - start
    return {
        "method": f"{name}: cost of a step",
        "knobs": run.steps[-1].knobs,
        "model_share": model.seconds / total,
        "drafter_share": drafter.seconds / total,
        "rest_share": 1 - (model.seconds + drafter.seconds) / total,
        "milliseconds_per_step": 1000 * total / (len(run.steps) - 1),
    }

"""How the time of a step divides into the model's pass, sampling, and everything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.core import Backbone, Prompt, Rows
from engine.decoding import initializers, verdict, windows
from engine.drafters.feature_draft import NetworkGrowth
from engine.drafters.mesh_heads import MeshHeads
from engine.kernels.cpu.heads import NativeHeads
from engine.methods import ar, find, xspecmesh
from engine.networks.sequence import TransformerSequence
from engine.noise import Noise
from engine.run import generate
from engine.transformers.host import CallerSequence
from engine.tuning.bound import clock


class _Clock:
    """Counts seconds spent in functions; nested calls count once, in the outermost."""

    def __init__(self, now: Callable[[], float], tick: float) -> None:
        self.now, self.tick, self.seconds, self.calls, self.depth = now, tick, 0.0, 0, 0

    def begin(self) -> None:
        """Counts from zero."""
        self.seconds, self.calls = 0.0, 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*a: Any, **k: Any) -> Any:
            if self.depth:
                return function(*a, **k)  # reading a thread's clock costs about as much as a short function
            self.depth += 1
            start = self.now()
            try:
                return function(*a, **k)
            finally:
                self.depth -= 1
                self.seconds += self.now() - start - self.tick
                self.calls += 1

        return call


def reading(now: Callable[[], float], tries: int = 1000) -> float:
    """The seconds that reading a clock takes, in a row: a thread's own clock takes as long as many a function that it times."""
    start = now()
    for _ in range(tries):
        now()
    return (now() - start) / (tries + 1)


def added(now: Callable[[], float], tries: int = 1000) -> float:
    """The seconds that timing adds to a call, in a row: two readings of the clock, and the function that takes them."""

    def nothing() -> None:
        pass

    timed, start = _Clock(now, 0.0).timed(nothing), now()
    for _ in range(tries):
        nothing()
    middle = now()
    for _ in range(tries):
        timed()
    return max(0.0, (now() - middle) - (middle - start)) / tries


@contextmanager
def _timed(clock: _Clock, targets: list[tuple[Any, str]]) -> Iterator[None]:
    """Inside the block, the clock counts the time in these functions."""
    kept = [(owner, name, getattr(owner, name)) for owner, name in targets]
    for owner, name, function in kept:
        setattr(owner, name, clock.timed(function))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def split(backbone: Backbone, name: str, knobs: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Returns shares of a step's time: the model's pass, the drafter's networks, sampling (warp, noise, draws, acceptance), and everything
    else. name : of a method or a preset

    With one thread on a CPU the clock is the thread's own, so that other programs do not count; else it is that of the wall.
    """
    now = clock if backbone.device.type == "cpu" else time.perf_counter
    tick, cost = reading(now), added(now)
    clocks = model, drafter, sampling = _Clock(now, tick), _Clock(now, tick), _Clock(now, tick)
    targets = [(verdict, n) for n in ("draw", "draw_gumbel", "ratio", "residual", "entropy", "probability_of")]
    targets += [(windows, n) for n in ("draw", "draw_gumbel", "judge")] + [(initializers, n) for n in ("draw", "draw_gumbel")]
    targets += [(verdict, n) for n in ("judge", "fused")] + [(ar, "drawn")]
    targets += [(Noise, "gumbel"), (Noise, "uniform"), (Rows, "law"), (TransformerSequence, "_warp"), (CallerSequence, "_warp")]
    targets += [(xspecmesh, n) for n in ("judge", "screen", "propose")]
    networks = [
        (NativeHeads, "__call__"),
        (MeshHeads, "features"),
        (MeshHeads, "logits"),
        (NetworkGrowth, "_pass"),
        (NetworkGrowth, "_fixed"),
    ]
    method, preset = find(name)
    with _timed(sampling, targets), _timed(drafter, networks), _timed(model, [(TransformerSequence, "forward")]):
        run = generate(backbone, method, prompt, {**preset, **knobs})
        next(run)
        for each in clocks:
            each.begin()
        start = now()
        run.finish()
        total = now() - start - tick - cost * sum(each.calls for each in clocks)
    return {
        "method": f"{name}: cost of a step",
        "knobs": run.steps[-1].knobs,
        "model_share": model.seconds / total,
        "drafter_share": drafter.seconds / total,
        "sampling_share": sampling.seconds / total,
        "bookkeeping_share": 1 - (model.seconds + drafter.seconds + sampling.seconds) / total,
        "overhead_of_a_pass": (total - model.seconds) / model.seconds,
        "milliseconds_per_step": 1000 * total / (len(run.steps) - 1),
    }

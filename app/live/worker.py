"""Runners decode runs: in this process, or on ZeroGPU in a forked worker process.


ZeroGPU calls a function in a forked process with pickled arguments and results, so later changes on the page would not reach it.
Therefore the live knobs and the stop flag of every run are in memory that both processes share, allocated before the fork. The worker
sends the steps back, and a RemoteRun in this process records them as if it had made them. Pictures and meshes are drawn here, from a
copy of the model on the processor.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from weakref import ref

import numpy as np
import torch

from engine import errors, run
from engine.core import Backbone, Prompt, Step
from engine.errors import ForetokenError
from engine.methods import find
from engine.run import Run, generate

SLOTS, SIDES, NUMBERS = 16, 8, 64  # races at a time (one runs, others may be ending), runs per race, numbers per run
STOP = NUMBERS - 1  # index of a run's stop flag

Sides = Sequence[tuple[str, Mapping[str, Any]]]  # (method or preset, knobs) per run


class SharedNumbers:
    """Numbers shared by this process and its forks: float64 [SLOTS, SIDES, NUMBERS]. One process writes and one reads. Each write is
    atomic and knobs are independent, so no lock is needed."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, SLOTS * SIDES * NUMBERS * 8)
        self.numbers = np.frombuffer(self._memory, np.float64).reshape(SLOTS, SIDES, NUMBERS)
        self._taken = 0

    def take(self) -> int:
        """Clear and return a slot for a race; the oldest slot is reused."""
        slot = self._taken % SLOTS
        self._taken += 1
        self.numbers[slot] = 0.0
        return slot


@dataclass(frozen=True)
class Job:
    """A race for the worker. It is pickled, so it names its model. left: see `LocalRunner.start`; warm: unmeasured steps of every side
    before the race"""

    model: str
    prompt: Prompt
    sides: Sides
    slot: int
    left: Prompt | None = None
    warm: int = 1


@dataclass(frozen=True)
class LayoutOnly:
    """Layout of a sequence in another process, for the boards."""

    layout: Any

    def close(self) -> None:
        """Nothing to free."""


ELSEWHERE = object()  # drafter of a run that another process decodes or decoded


class RemoteRun(Run):
    """A run that another process decodes. It records the steps that arrive, and sends moved knobs and stop through shared memory."""

    def __init__(self, backbone: Backbone, name: str, prompt: Prompt, knobs: Mapping[str, Any], job: Job, side: int, shared: SharedNumbers):
        method = find(name)[0]
        numbers = shared.numbers[job.slot, side]
        super().__init__(backbone, method, prompt, knobs, drafter=ELSEWHERE, buffer=numbers, name=name)
        self.job, self._stop = job, numbers[STOP:]
        self._made_with = super().made_with

    def begin(self, layout: Any, made_with: dict[str, str | None]) -> None:
        """Sets the layout for the boards, and the dtype and device of the worker's model."""
        self.sequence = LayoutOnly(layout)
        self._made_with = made_with

    @property
    def made_with(self) -> dict[str, str | None]:
        """The dtype and the device of the worker's model."""
        return self._made_with

    def __next__(self) -> Step:
        raise TypeError("a remote run is advanced by RemoteRunner.race")

    def stop(self) -> None:
        """Ends the run before its next step, in both processes."""
        super().stop()
        self._stop[0] = 1.0


def reads_alike(backbone: Backbone, one: Prompt, other: Prompt) -> bool:
    """True if a model reads two prompts alike, so that runs with a common prefix have the same cache."""
    ours, theirs = (
        (backbone.words_read(each), each.label, each.size, each.about, (each.sampling or backbone.sampling).guidance)
        for each in (one, other)
    )
    same_points = one.points is other.points or (
        one.points is not None and other.points is not None and torch.equal(one.points, other.points)
    )
    return ours == theirs and same_points


class LocalRunner:
    """Decodes in this process. The cache of the newest finished run stays while a visitor's session has the run, so that its forks need not
    read their tokens again."""

    def __init__(self) -> None:
        self._newest: Callable[[], Run | None] = lambda: None

    def start(self, backbone: Backbone, prompt: Prompt, sides: Sides, left: Prompt | None = None) -> list[Run]:
        """A run for every side. left : the prompt of the sides after the first one; None = the same"""
        prompts = prompts_of(prompt, sides, left)
        runs = [generate(backbone, find(name)[0], own, knobs, name=name) for own, (name, knobs) in zip(prompts, sides, strict=True)]
        for each, other in zip(runs, [self._newest(), *[runs[0]] * len(runs)], strict=False):
            if each.prompt.prefix and other and other.backbone is backbone and reads_alike(backbone, other.prompt, each.prompt):
                each.shares = other
        return runs

    def race(self, runs: Sequence[Run]) -> Iterator[tuple[int, Step]]:
        """Advances the runs; see engine.run.race."""
        first = runs[0]
        first.stays = True
        try:
            yield from run.race(runs)
        finally:
            before, self._newest = self._newest(), ref(first)
            if before is not None and before is not first:
                before.close()

    def finish(self, runs: Sequence[Run]) -> None:
        """Finishes the runs, one after another."""
        for each in runs:
            each.finish()

    def warm(self, backbone: Backbone, prompt: Prompt, side: tuple[str, Mapping[str, Any]], steps: int = 1) -> None:
        """Runs some unmeasured steps: the first pass of each shape also pays for allocations."""
        (trial,) = self.start(backbone, replace(prompt, prefix=()), [side])
        try:
            for _ in range(steps):
                next(trial, None)
        finally:
            trial.close()


class RemoteRunner:
    """Decodes in a worker process.

    models : the worker's models by name, loaded before the fork
    gpu    : decorator that runs a generator function in the worker: spaces.GPU
    """

    def __init__(self, models: Mapping[str, Backbone], gpu: Callable[..., Any], seconds: int = 60):
        shared = self.shared = SharedNumbers()

        def work(job: Job) -> Iterator[tuple[str, int, Any]]:
            yield from decode(models[job.model], job, shared)

        self._work = gpu(duration=seconds)(work)

    def start(self, backbone: Backbone, prompt: Prompt, sides: Sides, left: Prompt | None = None) -> list[Run]:
        """A remote run for every side; see `LocalRunner.start`."""
        job = Job(backbone.name, prompt, [(name, dict(knobs)) for name, knobs in sides], self.shared.take(), left)
        prompts = prompts_of(prompt, sides, left)
        return [RemoteRun(backbone, name, prompts[i], knobs, job, i, self.shared) for i, (name, knobs) in enumerate(sides)]

    def race(self, runs: Sequence[Run]) -> Iterator[tuple[int, Step]]:
        """Advances the remote runs by the worker's messages; raises the errors that its runs raised."""
        for kind, side, content in self._work(runs[0].job):
            if kind == "refused":
                raise getattr(errors, content[0], ForetokenError)(content[1])
            remote = runs[side]
            if kind == "begun":
                remote.begin(*content)
            elif kind == "ended":
                remote.finished, remote.seconds = content
            else:
                remote.take(content)
                yield side, content

    def finish(self, runs: Sequence[Run]) -> None:
        """Finishes the runs."""
        for _ in self.race(runs):
            pass

    def warm(self, *_: Any) -> None:
        """Does nothing: the worker is new for nearly every race, so it warms itself."""


def prompts_of(prompt: Prompt, sides: Sides, left: Prompt | None) -> list[Prompt]:
    """The prompt of every side."""
    return [prompt if left is None or number == 0 else left for number in range(len(sides))]


def decode(backbone: Backbone, job: Job, shared: SharedNumbers) -> Iterator[tuple[str, int, Any]]:
    """Runs the race of a job in the worker. Yields ("begun", side, (layout, made with)), ("step", side, step), ("ended", side, (finished,
    seconds)), and for a user error ("refused", 0, (its class, its sentence))."""
    runner = LocalRunner()
    try:
        for side in job.sides:
            runner.warm(backbone, job.prompt, side, job.warm)
        runs = runner.start(backbone, job.prompt, job.sides, job.left)
        for side, each in enumerate(runs):
            each.live.numbers = shared.numbers[job.slot, side]  # the parent writes, and has written the first values
        going = set(range(len(runs)))
        for side, step in run.race(runs):
            if len(runs[side].steps) == 1:
                yield "begun", side, (runs[side].sequence.layout, runs[side].made_with)
            yield "step", side, portable(step)
            for other in sorted(going):
                if shared.numbers[job.slot, other, STOP]:
                    runs[other].stop()
                if runs[other].finished:
                    going.remove(other)
                    yield "ended", other, (True, runs[other].seconds)
        for side in sorted(going):
            yield "ended", side, (runs[side].finished, runs[side].seconds)
    except ForetokenError as e:
        yield "refused", 0, (type(e).__name__, str(e))


def portable(value: Any) -> Any:
    """A step, or a part of one, with arrays for tensors: tensors on the worker's GPU cannot be read in this process."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    if is_dataclass(value):
        return replace(value, **{each.name: portable(getattr(value, each.name)) for each in fields(value) if each.init})
    if isinstance(value, Mapping):
        return {key: portable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return value if all(isinstance(each, int | float | str) for each in value) else type(value)(map(portable, value))
    return value

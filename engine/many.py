"""Several runs of one model at once: `generate_many` joins their passes, so that the weights are read once for all of them.

Each run keeps its own prompt, noise, cache and trace, and its method runs as it is: in a greenlet, which pauses where the method requests a
pass. They advance one after another, in the order of their places. When every run waits for its pass, the passes are computed as one
(`Trunk.run_together`), and the runs continue. When a run has ended, the next prompt gets its place.

A run yields the same tokens as alone, because a row of a joined pass has the same bits as alone; on a GPU up to rounding, because a linear
layer may sum in another order for another number of rows. Passes that a model does not join are computed one by one; the capability
"joined" means that it joins most of them. On a GPU a joined pass is not replayed as a graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from greenlet import GreenletExit, getcurrent, greenlet
from torch import Tensor

from engine.core import Backbone, Method, Prompt, Step
from engine.errors import BadPrompt
from engine.networks.sequence import TransformerSequence
from engine.networks.trunk import PassArguments
from engine.run import Run

USUAL = 16  # simultaneous runs: the largest number measured, and the fastest (docs/batch.md)
Passed = tuple[Tensor, Tensor]  # hidden states and logits of a pass
Watch = Callable[[int, Run], object]


@dataclass(frozen=True)
class EndedRun:
    """A run that has ended.

    index : of its prompt; run : the run; its `seconds` are its share of the time
    error : the exception that ended it early, or None
    """

    index: int
    run: Run
    error: Exception | None = None


def default_at_once(backbone: Backbone) -> int:
    """The number of simultaneous runs that is worth its cost on a model: one where passes are not joined."""
    return USUAL if "joined" in backbone.capabilities else 1


def generate_many(
    backbone: Backbone,
    method: Method,
    prompts: Iterable[Prompt],
    knobs: Mapping[str, float | str] | None = None,
    at_once: int | None = None,
    drafter: Any = None,
    name: str = "",
    watch: Watch | None = None,
) -> Iterator[EndedRun]:
    """Runs all prompts, at most `at_once` together; yields each run when it has ended.

    prompts : read one by one, when a place is free
    at_once : None = the number that is usually fastest
    watch   : called with the index and the run after every step; it may stop the run. An exception from it ends all runs
    The rest is as for `generate`. An error in a run ends only this run. Raises BadPrompt for fewer than one at once, and
    NotSupported or BadKnob with the first prompt.
    """
    at_once = default_at_once(backbone) if at_once is None else at_once
    if at_once < 1:
        raise BadPrompt(f"{at_once} runs at once are too few. Use 1 or more.")

    def begin(prompt: Prompt) -> Run:
        return Run(backbone, method, prompt, knobs or {}, drafter, None, name)

    return _ended_runs(enumerate(prompts), begin, at_once, watch)


def _ended_runs(
    prompts: Iterator[tuple[int, Prompt]], begin: Callable[[Prompt], Run], at_once: int, watch: Watch | None
) -> Iterator[EndedRun]:
    """Yields the runs as they end."""
    places: list[_Place] = []
    try:
        while True:
            while len(places) < at_once and (following := next(prompts, None)) is not None:
                places.append(_Place(following[0], begin(following[1]), watch))
            if not places:
                return
            with torch.inference_mode():  # the mode belongs to the thread, so to all runs: no run may end it for another
                for place in places:
                    place.advance()
                if all(place.request is not None for place in places):
                    compute(places)
                    continue
            ended = [place for place in places if place.request is None]
            places = [place for place in places if place.request is not None]
            yield from [EndedRun(place.index, place.run, place.error) for place in ended]
    finally:
        for place in places:
            place.close()


def race_together(runs: Iterable[Run]) -> Iterator[tuple[int, Step]]:
    """Advances runs that have not begun in joint passes; yields (index of the run, its step), like `engine.run.race`. An error in one ends
    all. Every step must be taken in the same thread, because greenlets cannot change theirs."""
    steps: list[tuple[int, Step]] = []
    places = [_Place(index, run, lambda index, run: steps.append((index, run.steps[-1]))) for index, run in enumerate(runs)]
    try:
        while places:
            for place in places:
                while place.can_advance:
                    with torch.inference_mode():
                        place.resume()
                    if place.error is not None:
                        raise place.error
                    yield from steps  # at once: a run that has ended has no sequence any more
                    steps.clear()
            places = [place for place in places if place.request is not None]
            with torch.inference_mode():
                compute(places)
    finally:
        for place in places:
            place.close()


class _Place:
    """A run in a greenlet.

    request : the pass that it waits for, None if it has ended
    """

    def __init__(self, index: int, run: Run, watch: Watch | None):
        self.index, self.run, self.watch = index, run, watch
        self.request: PassArguments | None = None
        self.error: Exception | None = None
        self._result: Passed | Exception | None = None  # its outcome
        self._spent, self._since = 0.0, 0.0
        self._greenlet, self._hub = greenlet(self._work), getcurrent()
        run.clock, run.began = self._clock, self._join

    def advance(self) -> None:
        """Advances the run until it waits for a pass or has ended; does nothing if it already waits."""
        while self.can_advance:
            self.resume()

    @property
    def can_advance(self) -> bool:
        """True if the run neither waits for a pass nor has ended."""
        return self.request is None and not self._greenlet.dead

    def resume(self) -> None:
        """Advances the run until it waits for a pass or has ended, with a watcher also until its next step."""
        self._since = time.perf_counter()
        self._greenlet.switch()
        self._spent += time.perf_counter() - self._since
        if self.watch is not None and self.can_advance:
            self.watch(self.index, self.run)

    def take(self, result: Passed | Exception, seconds: float) -> None:
        """Gives the run its pass, and its share of the time."""
        self.request, self._result = None, result
        self._spent += seconds

    def close(self) -> None:
        """Ends the run where it is."""
        self._greenlet.throw(GreenletExit)
        self.run.close()

    # --- in its greenlet ---

    def _work(self) -> None:
        try:
            for _ in self.run:
                if self.watch is not None:
                    self._hub.switch()
        except Exception as e:  # it concerns this run alone, and its caller gets it
            self.error = e

    def _join(self, sequence: object) -> None:
        if isinstance(sequence, TransformerSequence):  # any other computes its own passes
            sequence.run_together = self._pass

    def _pass(self, request: PassArguments) -> Passed:
        self.request = request
        self._hub.switch()
        result, self._result = self._result, None
        if isinstance(result, Exception):
            raise result
        return result

    def _clock(self) -> float:
        return self._spent + time.perf_counter() - self._since


def compute(places: list[_Place]) -> None:
    """Computes the passes that all runs wait for, as one where the model can, and gives every run its own."""
    requests, start = [place.request for place in places], time.perf_counter()
    try:
        results = requests[0].trunk.run_together(requests) if len(requests) > 1 else None
    except Exception as e:  # raised in every run
        results = [e] * len(requests)
    if results is None:
        for place in places:
            _compute_alone(place)
        return
    rows = [each.x.shape[0] * each.x.shape[1] for each in requests]
    second = (time.perf_counter() - start) / sum(rows)  # of a row
    for place, own, count in zip(places, results, rows, strict=True):
        place.take(own, second * count)


def _compute_alone(place: _Place) -> None:
    start = time.perf_counter()
    try:
        result: Passed | Exception = place.request.run_alone()
    except Exception as e:  # raised in the run that requested it
        result = e
    place.take(result, time.perf_counter() - start)

"""Several runs of one model at once: `generate_many` joins their passes, so that the weights are read once for all of them.

Each run keeps its own prompt, noise, cache and trace, and its method runs as it is: in a thread of its own, which stops where the method
asks for a pass. One thread moves at a time, and they take turns in a fixed order, so nothing depends on chance. When every run waits for
its pass, the passes are computed as one (`Trunk.together`), and the runs go on. The place of a run that has ended goes to the next prompt.

A run has the tokens that it has alone, because a row of a joined pass has the bits of a row alone. Passes that a model does not join are
computed one by one; the capability "joined" says that it joins most of them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.core import Backbone, Method, Prompt
from engine.errors import BadPrompt
from engine.networks.sequence import TransformerSequence
from engine.networks.trunk import Asked
from engine.run import Run

USUAL = 16  # runs at once: the most that was measured, and the fastest (docs/batch.md)
Passed = tuple[Tensor, Tensor]  # hidden states and logits of a pass
Watch = Callable[[int, Run], object]


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    index : of its prompt; run : with tokens, steps and totals; `run.seconds` is its share of the time
    error : what ended it early, None if nothing did
    """

    index: int
    run: Run
    error: Exception | None = None


def usual(backbone: Backbone) -> int:
    """How many runs at once pay on a model: one where passes are not joined."""
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
) -> Iterator[Ended]:
    """Begins runs of all prompts, of which at most `at_once` advance together; yields each when it has ended.

    prompts : read one by one, when a place is free
    at_once : None = as many as usually pay
    watch   : called with the index and the run after every step; it may stop the run. What it raises ends all runs
    The rest is as for `generate`. What goes wrong in a run ends only this run. Raises BadPrompt for fewer than one at once, and
    NotSupported or BadKnob with the first prompt.
    """
    at_once = usual(backbone) if at_once is None else at_once
    if at_once < 1:
        raise BadPrompt(f"{at_once} runs at once are too few. Give 1 or more.")

    def begin(prompt: Prompt) -> Run:
        return Run(backbone, method, prompt, knobs or {}, drafter, None, name)

    return _ended(enumerate(prompts), begin, at_once, watch)


def _ended(prompts: Iterator[tuple[int, Prompt]], begin: Callable[[Prompt], Run], at_once: int, watch: Watch | None) -> Iterator[Ended]:
    """Yields the runs as they end."""
    circle = _Circle()
    try:
        while True:
            while len(circle.places) < at_once and (following := next(prompts, None)) is not None:
                index, prompt = following
                circle.add(_Place(index, begin(prompt), circle, watch is not None))
            if not circle.places:
                return
            circle.go_round()
            while circle.stepped is not None:
                watch(circle.stepped.index, circle.stepped.run)
                circle.give_back()
            yield from [Ended(place.index, place.run, place.error) for place in circle.leave()]
    finally:
        circle.close()


class _Given(BaseException):
    """Ends a run whose place is given up, from inside of its pass."""


class _Circle:
    """The runs that advance together, and whose turn it is: a run's, or that of the thread that asked for them."""

    def __init__(self) -> None:
        self.places: list[_Place] = []
        self.stepped: _Place | None = None  # the watched run that has made a step
        self.is_closing = False
        self._waiting: deque[_Place] = deque()  # those that have not moved yet in this round
        self._turn = _closed_lock()
        self._is_away = False  # whether a run has the turn

    def add(self, place: _Place) -> None:
        """Takes in a run that has not begun."""
        self.places.append(place)
        self._waiting.append(place)

    def go_round(self) -> None:
        """Gives the turn away until a run has ended and all others wait for a pass, or a watched run has made a step."""
        if not self._waiting:
            compute(self.places)
            self._waiting.extend(self.places)
        self._give(self._waiting.popleft())

    def give_back(self) -> None:
        """Gives the turn back to the run that has made a step."""
        place, self.stepped = self.stepped, None
        self._give(place)

    def leave(self) -> list[_Place]:
        """Takes out the runs that have ended."""
        ended = [place for place in self.places if place.has_ended]
        self.places = [place for place in self.places if not place.has_ended]
        return ended

    def close(self) -> None:
        """Ends all runs where they are, and their threads."""
        self.is_closing = True
        if self._is_away:  # an interrupt came while a run moved
            self._turn.acquire()
        for place in self.places:
            place.end()

    def _give(self, place: _Place) -> None:
        self._is_away = True
        place.turn.release()
        self._turn.acquire()

    # --- called by the thread whose turn it is ---

    def after(self, place: _Place) -> bool:
        """Gives the turn away after a run has moved; returns whether it has to wait for its next one."""
        if self.is_closing or (not self._waiting and any(each.has_ended for each in self.places)):
            self._return()
        elif self._waiting:
            self._waiting.popleft().turn.release()
        else:
            compute(self.places)
            self._waiting.extend(each for each in self.places if each is not place)
            return False
        return True

    def show(self, place: _Place) -> None:
        """Gives the turn to the caller, who looks at a step."""
        self.stepped = place
        self._return()

    def _return(self) -> None:
        """Gives the turn to the caller. An interrupt may come before it takes it, so it is not away from here on."""
        self._is_away = False
        self._turn.release()


class _Place:
    """A run in a thread of its own, which moves only when it has the turn."""

    def __init__(self, index: int, run: Run, circle: _Circle, is_watched: bool):
        self.index, self.run, self.circle, self.is_watched = index, run, circle, is_watched
        self.asked: Asked | None = None  # the pass that it waits for
        self.found: Passed | Exception | None = None  # what became of it
        self.error: Exception | None = None
        self.has_ended = False
        self.turn = _closed_lock()
        self._is_given_up = False
        self._spent, self._since = 0.0, 0.0
        run.clock, run.began = self._clock, self._join
        self._thread = threading.Thread(target=self._work, name=f"run {index}", daemon=True)
        self._thread.start()

    def take(self, found: Passed | Exception, seconds: float) -> None:
        """Gives the run its pass, and its share of the time."""
        self.asked, self.found = None, found
        self._spent += seconds

    def end(self) -> None:
        """Ends the run where it is, and its thread."""
        self._is_given_up = True
        if not self.has_ended:
            self.turn.release()
        self._thread.join()

    # --- in its thread ---

    def _work(self) -> None:
        try:
            self._wait()
            for _ in self.run:
                if self.is_watched:
                    self._rest()
                    self.circle.show(self)
                    self._wait()
        except _Given:
            self.run.close()
            self.has_ended = True
            if not self._is_given_up:  # the turn came from another run just before; else who gave the place up has it already
                self.circle.after(self)
            return
        except Exception as e:  # it belongs to this run alone; who asked for the run gets it
            self.error = e
        self.has_ended = True
        self.circle.after(self)

    def _join(self, sequence: object) -> None:
        if isinstance(sequence, TransformerSequence):  # any other computes its own passes
            sequence.together = self._pass

    def _pass(self, asked: Asked) -> Passed:
        self.asked = asked
        self._rest()
        if self.circle.after(self):
            self._wait()
        else:
            self._since = time.perf_counter()
        found, self.found = self.found, None
        if isinstance(found, Exception):
            raise found
        return found

    def _rest(self) -> None:
        self._spent += time.perf_counter() - self._since

    def _wait(self) -> None:
        self.turn.acquire()
        self._since = time.perf_counter()
        if self.circle.is_closing:
            raise _Given

    def _clock(self) -> float:
        return self._spent + time.perf_counter() - self._since


def _closed_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@torch.inference_mode()
def compute(places: list[_Place]) -> None:
    """Computes the passes that all runs wait for, as one where the model can, and gives every run its own."""
    torch.set_flush_denormal(True)  # a per-thread setting
    asked, start = [place.asked for place in places], time.perf_counter()
    try:
        found = asked[0].trunk.together(asked) if len(asked) > 1 else None
    except Exception as e:  # raised in every run
        found = [e] * len(asked)
    if found is None:
        for place in places:
            _compute_alone(place)
        return
    rows = [each.x.shape[0] * each.x.shape[1] for each in asked]
    second = (time.perf_counter() - start) / sum(rows)  # of a row
    for place, own, count in zip(places, found, rows, strict=True):
        place.take(own, second * count)


def _compute_alone(place: _Place) -> None:
    start = time.perf_counter()
    try:
        found: Passed | Exception = place.asked.alone()
    except Exception as e:  # raised in the run that asked for it
        found = e
    place.take(found, time.perf_counter() - start)

"""Display state of an endless loop of runs: every setting tried, and speed and deviation over time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from engine.core import Step
from engine.diagnostics import accepted_and_examined, most_accepted
from engine.run import Run
from engine.tuning.roofline import ModelSize

PLACES = 16  # places of a draft whose acceptance is counted
SAMPLES = 300  # maximum samples over time; beyond that, pairs are merged
SPAN = 0.25  # initial seconds per sample, on the runs' clocks
SETTINGS = 40  # maximum settings remembered
FILM = 10  # maximum finished pictures shown


@dataclass
class Setting:
    """A method with its knobs, and totals of its steps. drafts, draft_passes : of all steps; deviation : sum over the measured passes;
    accepted, drafted : by place; most : of exact passes with drafts, how many were accepted, and how many any exact rule accepts at most
    """

    number: int
    name: str
    knobs: dict[str, float | str]
    exact: bool = True
    tokens: int = 0
    passes: int = 0
    drafts: int = 0
    draft_passes: int = 0
    seconds: float = 0.0
    deviation: float = 0.0
    measured: int = 0
    ordered: bool = True
    accepted: np.ndarray = field(default_factory=lambda: np.zeros(PLACES, np.int64))
    drafted: np.ndarray = field(default_factory=lambda: np.zeros(PLACES, np.int64))
    most: list[tuple[int, float]] = field(default_factory=list)

    def add(self, step: Step, seconds: float) -> None:
        """Adds a Step made with these knobs."""
        self.tokens += len(step.tokens)
        self.passes += step.forwards
        self.drafts += step.drafted
        self.draft_passes += step.draft_forwards
        self.seconds += seconds
        self.exact = self.exact and step.exact
        deviation = deviation_of(step)
        if not math.isnan(deviation):
            self.deviation += deviation
            self.measured += 1
        if step.drafted and self.ordered:
            counts = accepted_and_examined(step)
            self.ordered = counts is not None
            if counts:
                self.accepted[: counts[0]] += 1
                self.drafted[: counts[1]] += 1
            if step.exact and (most := most_accepted(step)) is not None:
                self.most.append((counts[0], most))

    @property
    def mean_deviation(self) -> float:
        """Mean total variation distance from the model's distribution; 0 for exact settings, nan if not measured."""
        if self.exact:
            return 0.0
        return self.deviation / self.measured if self.measured else math.nan

    @property
    def shares(self) -> list[float]:
        """Acceptance rate by place; [] if drafts have no order."""
        return [float(k / n) for k, n in zip(self.accepted, self.drafted, strict=True) if n] if self.ordered else []


@dataclass
class LoopSample:
    """A time span of the loop: its end on the clock in seconds, its tokens, passes and seconds, and its measured deviations."""

    end: float
    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0
    deviation: float = 0.0
    measured: int = 0

    def merge(self, other: LoopSample) -> None:
        """Adds the following span to this one."""
        self.end = other.end
        self.tokens += other.tokens
        self.passes += other.passes
        self.seconds += other.seconds
        self.deviation += other.deviation
        self.measured += other.measured


class KnobChange(NamedTuple):
    """A moved knob: time on the clock, its name ("method" for a new method), its old and new value."""

    time: float
    name: str
    before: float | str
    after: float | str


class LoopBoard:
    """All runs of one loop, on a clock that sums their own. models : of computed speed-ups, by name; film : (thumbnail, name, seconds) of
    the newest finished runs"""

    def __init__(self, models: Mapping[str, ModelSize] = MappingProxyType({})) -> None:
        self.models = models
        self.clock, self.span = 0.0, SPAN
        self.settings: dict[tuple[Any, ...], Setting] = {}
        self.samples: list[LoopSample] = []
        self.changes: list[KnobChange] = []
        self.film: deque[tuple[str, str, float]] = deque(maxlen=FILM)
        self.pictures = 0
        self.now: Setting | None = None

    def add(self, run: Run, step: Step) -> None:
        """Adds the next Step of the run in progress."""
        self.clock += step.seconds
        self._enter(run.name, step.knobs)
        self.now.add(step, step.seconds)
        deviation = deviation_of(step)
        known = not math.isnan(deviation)
        stretch = LoopSample(self.clock, len(step.tokens), step.forwards, step.seconds, deviation if known else 0.0, int(known))
        if not self.samples or self.samples[-1].seconds >= self.span:
            self.samples.append(stretch)
        else:
            self.samples[-1].merge(stretch)
        if len(self.samples) > SAMPLES:
            self._thin()

    def finish(self, run: Run, thumbnail: str) -> None:
        """Adds a finished run and its thumbnail, a data: URL; "" for a mesh."""
        self.pictures += 1
        if thumbnail:
            self.film.append((thumbnail, run.name, run.seconds))

    def curve(self) -> list[int]:
        """Numbers of the settings that differ from the newest only in the knob moved last, in the order of its values."""
        knob = next((t.name for t in reversed(self.changes) if t.name in (self.now.knobs if self.now else {})), None)
        if knob is None or isinstance(self.now.knobs[knob], str):
            return []
        rest = {**self.now.knobs, knob: None}
        same = [s for s in self.settings.values() if s.name == self.now.name and {**s.knobs, knob: None} == rest]
        return [s.number for s in sorted(same, key=lambda s: s.knobs[knob])] if len(same) > 1 else []

    def _enter(self, name: str, knobs: dict[str, float | str]) -> None:
        """Makes the setting of a Step the newest one."""
        before = self.now
        if before is not None and (before.name, before.knobs) == (name, knobs):
            return
        if before is not None and before.name != name:
            self.changes.append(KnobChange(self.clock, "method", before.name, name))
        elif before is not None:
            moved = [(k, before.knobs[k], v) for k, v in knobs.items() if before.knobs[k] != v]
            self.changes += [KnobChange(self.clock, *each) for each in moved]
        key = (name, *sorted(knobs.items()))
        setting = self.settings.pop(key, None) or Setting(1 + max((s.number for s in self.settings.values()), default=0), name, dict(knobs))
        self.settings[key] = self.now = setting  # the newest is last
        while len(self.settings) > SETTINGS:
            del self.settings[next(iter(self.settings))]

    def _thin(self) -> None:
        """Merges the samples in pairs."""
        self.span *= 2
        for first, second in zip(self.samples[::2], self.samples[1::2], strict=False):
            first.merge(second)
        self.samples = self.samples[::2]


def deviation_of(step: Step) -> float:
    """Total variation distance of a Step; 0 for an exact one, nan if not measured."""
    if step.exact:
        return 0.0
    recorded = step.trace.deviation
    if recorded is None:
        return math.nan
    value = recorded.mean if recorded.latest is None else recorded.latest  # methods that measure whole runs record only the mean
    return float(value)

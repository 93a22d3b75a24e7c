"""Turns Steps into screen updates: only the latest picture is sent, but every Step is recorded.


Gradio has no back-pressure: it sends everything that is yielded, and a slow browser never catches up. So this module throttles the
updates. Pictures are rendered between Steps, outside the clocks of the runs. Steps are recorded in batches when a picture is due,
because a pass over the weights evicts this code from the processor's cache.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median_low
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from engine.core import Step
from engine.diagnostics import per_token
from engine.run import Run, race
from engine.trace import RoundTrace, TreeTrace
from engine.tree import children

UPDATES_PER_SECOND = 12
SHARE = 0.075  # maximum share of the time for drawing and sending
LATEST = 3  # number of updates from which the cost of the next one is estimated
UNKNOWN = array("f", [float("nan")])  # value of a token
PENDING, OWN, CORRECTED, ACCEPTED, REDRAWN = range(5)  # verdict on a position
OF_THE_MODEL = ("entropy", "top")  # trace entries that a token has even without a draft
REPAIRED = np.array([ACCEPTED, CORRECTED, REDRAWN], np.uint8)  # verdicts indexed by a trace's "verdict": STAYED, REFUSED, NEAR of rules.py


Shown = TypeVar("Shown", bound="Growth")


class Throttle:
    """Decides when the screen may be updated: once per period on average, with drawing and sending limited to a share of the time. A
    single expensive update (the last picture of a side) does not delay the next one.

    It is called only between steps, so an update begins up to a step late; the next wait is shorter by as much, at most by half.
    """

    def __init__(self, period: float = 1 / UPDATES_PER_SECOND, clock: Callable[[], float] = time.perf_counter, share: float = SHARE):
        self.period, self.clock, self.share = period, clock, share
        self.cost = 0.0  # estimated seconds per update
        self.started = -float("inf")
        self.late = 0.0  # delay of the newest update in seconds
        self._costs: deque[float] = deque(maxlen=LATEST)

    def ready(self) -> bool:
        """True if an update may begin now."""
        now, wait = self.clock(), max(self.period, self.cost / self.share)
        due = self.started + wait - min(self.late, wait / 2)
        if now < due:
            return False
        self.late = now - due if self.started > -float("inf") else 0.0
        self.started = now
        return True

    def finish(self) -> None:
        """Records that the update was drawn and sent."""
        self._costs.append(self.clock() - self.started)
        self.cost = median_low(self._costs)


class RaceCosts:
    """Time of a race: `drawing` and `sending` in seconds, and `whole`, the time since the start, the runs' clocks included."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._begun = self._last = clock()
        self.drawing = self.sending = self.whole = 0.0

    def record_drawing(self, since: float) -> None:
        """Records a drawing that began at `since`; the time from now until `record_sending` counts as sending."""
        self._last = self._clock()
        self.drawing += self._last - since

    def record_sending(self) -> None:
        """Records that the latest drawing has been sent."""
        now = self._clock()
        self.sending += now - self._last
        self.whole = now - self._begun

    def now(self) -> float:
        """The clock's time."""
        return self._clock()


class Move(NamedTuple):
    """A moved knob: its name, old and new value, the first step with the new value, and the number of tokens committed before it."""

    name: str
    before: float | str
    after: float | str
    step: int
    token: int


class TreeShape(NamedTuple):
    """A verified tree. depth : levels; width : most children of a node; accepted : number of accepted drafts"""

    depth: int
    width: int
    accepted: int


class Trail:
    """Diagnostics of a run, in the order of commitment. It needs only Steps, so it also works for saved runs.


    positions, step : int32 per committed token; verdict : uint8, see `verdicts`
    series : by name of SERIES, float32 per committed token, nan = unknown
    trace_names : names of all entries in the Steps' traces
    tree, round : the newest in any Step's trace; behind : number of tokens before that tree; deviation : the newest mean
    """

    SERIES = ("accept_probability", "entropy", "top", "depth", "energy", "threshold")

    def __init__(self) -> None:
        self.positions, self.step, self.verdict = array("i"), array("i"), bytearray()
        self.series = {name: array("f") for name in self.SERIES}
        self.trace_names: set[str] = set()
        self.moves: list[Move] = []
        self.shapes: list[TreeShape] = []
        self.tree: TreeTrace | None = None
        self.behind = 0
        self.round: RoundTrace | None = None
        self.deviation: float | None = None
        self.count = 0
        self._knobs: dict[str, float | str] = {}

    def add(self, step: Step) -> None:
        """Takes the next Step."""
        old = self._knobs
        self.moves += [Move(n, old[n], v, self.count, len(self.positions)) for n, v in step.knobs.items() if n in old and old[n] != v]
        self._knobs = step.knobs
        self.positions.extend(step.positions)
        self.step.extend([self.count] * len(step.tokens))
        trace = step.trace
        if step.drafted or trace.verdict is not None:
            self.verdict += verdicts(step).tobytes()
        else:  # plain decoding has a step for every token
            self.verdict += bytes([OWN]) * len(step.tokens)
        for name, values in self.series.items():
            if getattr(trace, name) is None:
                values.extend(UNKNOWN * len(step.tokens))
            else:
                values.frombytes(trace_values(step, name).tobytes())
        self.trace_names |= trace.known_fields
        if trace.tree and trace.tree.parents:
            self.tree, self.behind = trace.tree, len(self.positions) - len(step.tokens)
            widest = max(len(nodes) for nodes in children(trace.tree.parents))
            self.shapes.append(TreeShape(trace.tree.levels, trace.tree.width or widest, len(trace.tree.path)))
        if trace.round and len(trace.round.energy):
            self.round = trace.round
        if trace.deviation:
            self.deviation = trace.deviation.mean
        self.count += 1


class Growth:
    """A run in progress: the Steps so far and the open draft. Subclasses decide what is shown.

    count : Steps so far; draft : of the newest Step, shown before it is committed; trail : values for the diagnostics
    """

    def __init__(self, run: Run):
        self.run = run
        self.count = 0
        self.draft: dict[str, Any] | None = None
        self.trail = Trail()

    def add(self, step: Step) -> None:
        """Takes the next Step."""
        self.count += 1
        self.draft = step.draft
        self.trail.add(step)

    @property
    def ended(self) -> bool:
        """True if no further Step will come."""
        return self.run.finished or self.run.stopped

    def shown_draft(self) -> tuple[list[int], list[int]]:
        """Drafted tokens and their positions, shown before they are committed; none once the run has ended."""
        return ([], []) if self.ended else self.next_draft()

    def next_draft(self) -> tuple[list[int], list[int]]:
        """Tokens that the newest Step drafted for the next one, and their positions."""
        if self.draft is None or self.draft.get("scale"):  # a draft at another scale has other tokens: see boards/picture.py
            return [], []
        return _as_list(self.draft["tokens"]), _as_list(self.draft["positions"])


def trace_values(step: Step, name: str) -> np.ndarray:
    """float32 [tokens of the step]: an entry of its trace, nan where it has no value or nothing was drafted."""
    if name not in OF_THE_MODEL and not step.drafted and step.trace.verdict is None:
        return np.full(len(step.tokens), np.nan, np.float32)
    return per_token(step, name)


def verdicts(step: Step) -> np.ndarray:
    """uint8 [tokens of the step]: the verdict on each; a token after the last draft is the model's own."""
    if step.trace.verdict is not None:
        return REPAIRED[per_token(step, "verdict").astype(np.int64)]
    accepted = per_token(step, "accepted") == 1
    kinds = np.where(accepted, ACCEPTED, CORRECTED).astype(np.uint8)
    kinds[step.drafted :] = OWN
    return kinds


def pair(boards: Sequence[Shown]) -> tuple[Shown, Shown | None]:
    """The right board, and the left one or None."""
    return boards[0], boards[1] if len(boards) > 1 else None


def _as_list(values: Any) -> list[int]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def updates(
    boards: Sequence[Growth], throttle: Throttle, race: Callable[[Sequence[Run]], Iterator[tuple[int, Step]]] = race
) -> Iterator[set[int]]:
    """Races the runs of the boards; yields the indices of changed boards as often as the throttle allows, and all of them at the end. At
    each yield the boards have all Steps so far; between yields they lag behind their runs.

    race : advances the runs and yields (index of the run, its step)
    """
    changed: set[int] = set()
    final: set[int] = set()  # boards whose last picture was yielded
    steps = race([board.run for board in boards])
    due = True
    while due:
        moved, waiting, due = _until_due(steps, boards, throttle)
        for which, step in waiting:
            boards[which].add(step)
        ended = {i for i, board in enumerate(boards) if board.ended}
        changed |= moved | (ended - final)
        if due:
            yield changed
            throttle.finish()
            final |= changed & ended
            changed = set()
    yield set(range(len(boards)))


@torch.inference_mode()  # entering and leaving the mode at every step would cost more than a draw
def _until_due(
    steps: Iterator[tuple[int, Step]], boards: Sequence[Growth], throttle: Throttle
) -> tuple[set[int], list[tuple[int, Step]], bool]:
    """Advance until a picture is due or all runs have ended; returns (changed boards, Steps not yet recorded, True if one is due)."""
    moved: set[int] = set()
    waiting: list[tuple[int, Step]] = []
    for which, step in steps:
        moved.add(which)
        if boards[which].count:
            waiting.append((which, step))
        else:
            boards[which].add(step)  # at once, because it needs values that a run drops at its end
        if step.forwards and throttle.ready():  # a prefix alone shows nothing new
            return moved, waiting, True
    return moved, waiting, False

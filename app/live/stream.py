"""Turns Steps into screen updates: only the latest picture is sent, but no number is lost.

Gradio has no back-pressure: it sends everything that is yielded, and a slow browser never catches up. So updates are throttled here,
in one place, while every Step is still written to its board. Pictures are rendered between Steps, outside the clocks of the runs.
Steps are written many at a time, when a picture is due: after a pass over the weights none of this code is in the processor's cache.
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
from engine.diagnostics import Candidate, candidates, per_token
from engine.run import Run, race
from engine.trace import RoundTrace, TreeTrace
from engine.tree import children

UPDATES_PER_SECOND = 12
SHARE = 0.075  # of the time, for drawing and sending
LATEST = 3  # updates by which the cost of the next is estimated
UNKNOWN = array("f", [float("nan")])  # of a token
PENDING, OWN, CORRECTED, ACCEPTED, REDRAWN = range(5)  # what became of a position
OF_THE_MODEL = ("entropy", "top")  # entries of a trace that a token has without a draft, too
REPAIRED = np.array([ACCEPTED, CORRECTED, REDRAWN], np.uint8)  # the same, indexed by a trace's "verdict": STAYED, REFUSED, NEAR of rules.py


Shown = TypeVar("Shown", bound="Growth")


class Throttle:
    """Decides when the screen may be updated: once per period in the mean, and never so often that drawing and sending take more than a
    share of the time. What a single update costs more than the others (the last picture of a side) delays none.

    It is asked between steps only, so an update begins up to a step late; the next one then waits that much less, but at least half.
    """

    def __init__(self, period: float = 1 / UPDATES_PER_SECOND, clock: Callable[[], float] = time.perf_counter, share: float = SHARE):
        self.period, self.clock, self.share = period, clock, share
        self.cost = 0.0  # what an update takes in seconds, by the latest ones
        self.started = -float("inf")
        self.late = 0.0  # by how much the newest update began later than it might have
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
        """Records a drawing that began at `since`; what follows until `record_sending` is sending."""
        self._last = self._clock()
        self.drawing += self._last - since

    def record_sending(self) -> None:
        """Records that what was drawn last is sent."""
        now = self._clock()
        self.sending += now - self._last
        self.whole = now - self._begun

    def now(self) -> float:
        """The clock's time."""
        return self._clock()


class Move(NamedTuple):
    """A moved knob: its name, old and new value, the first step that used the new value, and the number of tokens committed before."""

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
    """Diagnostics of a run, in the order of commitment. It needs only Steps, so it works for a saved run too.

    positions, step : int32, of every committed token; verdict : uint8, see `verdicts`
    series : by name of SERIES, float32 of every committed token, nan = not known
    candidates : of every committed token, the tokens that the draft tree had at its position
    trace_names : names of all entries that occurred in the Steps' traces
    tree, round : the newest of a Step's trace; behind : number of tokens before that tree; deviation : the newest mean
    """

    SERIES = ("accept_probability", "entropy", "top", "depth", "energy", "threshold")

    def __init__(self) -> None:
        self.positions, self.step, self.verdict = array("i"), array("i"), bytearray()
        self.series = {name: array("f") for name in self.SERIES}
        self.candidates: list[list[Candidate]] = []
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
        self.candidates += candidates(step)
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

    count : Steps so far; draft : what the newest Step may show before it is committed; trail : what the diagnostics draw
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
        """Drafted tokens and their positions, to be shown although they are not committed; none once the run has ended."""
        return ([], []) if self.ended else self.next_draft()

    def next_draft(self) -> tuple[list[int], list[int]]:
        """Tokens that the newest Step drafted for the next one, and their positions."""
        if self.draft is None or self.draft.get("scale"):  # a draft at another scale has other tokens: see boards/picture.py
            return [], []
        return _as_list(self.draft["tokens"]), _as_list(self.draft["positions"])


def trace_values(step: Step, name: str) -> np.ndarray:
    """float32 [tokens of the step]: an entry of its trace, nan where it has no value or there was no draft."""
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
    """The right board, and the left one if there is any."""
    return boards[0], boards[1] if len(boards) > 1 else None


def _as_list(values: Any) -> list[int]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def updates(
    boards: Sequence[Growth], throttle: Throttle, race: Callable[[Sequence[Run]], Iterator[tuple[int, Step]]] = race
) -> Iterator[set[int]]:
    """Races the runs of the boards; yields the indices of changed boards as often as the throttle allows, and all of them at the end. The
    boards have all Steps so far whenever it yields; between that they lag behind their runs.

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


@torch.inference_mode()  # to begin and to end the mode at every step would cost more than a draw
def _until_due(
    steps: Iterator[tuple[int, Step]], boards: Sequence[Growth], throttle: Throttle
) -> tuple[set[int], list[tuple[int, Step]], bool]:
    """Runs on until a picture is due or nothing is left: which boards moved, the Steps that wait to be written, and whether one is due."""
    moved: set[int] = set()
    waiting: list[tuple[int, Step]] = []
    for which, step in steps:
        moved.add(which)
        if boards[which].count:
            waiting.append((which, step))
        else:
            boards[which].add(step)  # it asks what a run forgets at its end
        if throttle.ready():
            return moved, waiting, True
    return moved, waiting, False

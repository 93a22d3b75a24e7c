"""Turns Steps into screen updates: only the latest picture is sent, but no number is lost.

Gradio has no back-pressure: it sends everything that is yielded, and a slow browser never catches up. So updates are throttled here,
in one place, while every Step is still written to its board. Pictures are rendered between Steps, outside the clocks of the runs.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine.core import Step
from engine.diagnostics import Candidate, candidates, per_token
from engine.run import Run, race
from engine.trace import RoundTrace, TreeTrace
from engine.tree import children

UPDATES_PER_SECOND = 12
PENDING, OWN, CORRECTED, ACCEPTED, REDRAWN = range(5)  # what became of a position
REPAIRED = np.array([ACCEPTED, CORRECTED, REDRAWN], np.uint8)  # the same, indexed by a trace's "verdict": STAYED, REFUSED, NEAR of rules.py


class Throttle:
    """Decides when the screen may be updated: at most once per period, and never so often that drawing takes half of the time."""

    def __init__(self, period: float = 1 / UPDATES_PER_SECOND, clock: Callable[[], float] = time.perf_counter):
        self.period, self.clock = period, clock
        self.started = self.drawn = -float("inf")

    def ready(self) -> bool:
        """True if an update may begin now."""
        now = self.clock()
        if now < max(self.started + self.period, self.drawn + self.cost):
            return False
        self.started = now
        return True

    def done(self) -> None:
        """Records that the update was drawn and sent."""
        self.drawn = self.clock()

    @property
    def cost(self) -> float:
        """How long the last update took, in seconds."""
        return self.drawn - self.started if self.drawn > self.started else 0.0


class Move(NamedTuple):
    """A moved knob: its name, old and new value, the first step that used the new value, and the number of tokens committed before."""

    name: str
    before: float | str
    after: float | str
    step: int
    token: int


class Shape(NamedTuple):
    """A verified tree. depth : levels; width : most children of a node; accepted : number of accepted drafts"""

    depth: int
    width: int
    accepted: int


class Trail:
    """What the diagnostics draw of a run, in the order of commitment. It needs only Steps, so it works for a saved run too.

    positions, step : int32, of every committed token; verdict : uint8, see `verdicts`
    series : by name of SERIES, float32 of every committed token, nan = not known
    candidates : of every committed token, the tokens that the draft tree had at its position
    said : the names of all entries that occurred in the Steps' traces
    tree, round : the newest of a Step's trace; behind : number of tokens before that tree; deviation : the newest mean
    """

    SERIES = ("accept_probability", "entropy", "depth", "energy", "threshold")

    def __init__(self) -> None:
        self.positions, self.step, self.verdict = array("i"), array("i"), bytearray()
        self.series = {name: array("f") for name in self.SERIES}
        self.candidates: list[list[Candidate]] = []
        self.said: set[str] = set()
        self.moves: list[Move] = []
        self.shapes: list[Shape] = []
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
        self.verdict += verdicts(step).tobytes()
        for name, values in self.series.items():
            values.frombytes(known(step, name).tobytes())
        self.candidates += candidates(step)
        told = step.trace
        self.said |= told.told
        if told.tree and told.tree.parents:
            self.tree, self.behind = told.tree, len(self.positions) - len(step.tokens)
            widest = max(len(nodes) for nodes in children(told.tree.parents))
            self.shapes.append(Shape(told.tree.levels, told.tree.width or widest, len(told.tree.path)))
        if told.round and len(told.round.energy):
            self.round = told.round
        if told.deviation:
            self.deviation = told.deviation.mean
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

    def drafted(self) -> tuple[list[int], list[int]]:
        """Drafted tokens and their positions, to be shown although they are not committed; none once the run has ended."""
        if self.draft is None or self.ended or self.draft.get("scale"):  # a draft at another scale has other tokens: see Board
            return [], []
        return _as_list(self.draft["tokens"]), _as_list(self.draft["positions"])


class Board(Growth):
    """Everything that is shown of one picture: an entry for every position, filled Step by Step.

    verdict : uint8 [positions]; PENDING, OWN (the model's token where no draft was checked), CORRECTED (a draft was rejected),
              ACCEPTED, REDRAWN (next to a rejected one)
    token, step : int32 [positions], -1 = pending
    known : by name of Trail.SERIES, float32 [positions], nan = not known
    small : tokens by position of a draft at a smaller scale; scale : that scale in pixels, 0 = none
    """

    def __init__(self, run: Run):
        super().__init__(run)
        self.rows = self.columns = self.factor = self.scale = 0
        self.small: dict[int, int] = {}
        self._allocate(0)

    def _allocate(self, positions: int) -> None:
        self.verdict = np.full(positions, PENDING, np.uint8)
        self.token = np.full(positions, -1, np.int32)
        self.step = np.full(positions, -1, np.int32)
        self.known = {name: np.full(positions, np.nan, np.float32) for name in Trail.SERIES}

    def add(self, step: Step) -> None:
        """Writes a Step to its positions."""
        if not self.rows:
            layout = self.run.sequence.layout  # a run that has made a step has a sequence
            self.rows, self.columns, self.factor = layout.rows, layout.columns, layout.factor
            self._allocate(self.rows * self.columns)
        at = np.array(step.positions, np.int64)
        self.token[at] = step.tokens
        self.step[at] = self.count
        self.verdict[at] = verdicts(step)
        for name, values in self.known.items():
            values[at] = known(step, name)
        if step.draft and step.draft.get("scale"):
            self.scale = step.draft["scale"]
            self.small |= zip(step.draft["positions"], step.draft["tokens"], strict=True)
        super().add(step)

    def drafted(self) -> tuple[list[int], list[int]]:
        """Drafted tokens and their positions, without positions that are already committed."""
        pairs = zip(*super().drafted(), strict=True)
        shown = [(t, p) for t, p in pairs if p < len(self.verdict) and self.verdict[p] == PENDING]
        return [t for t, _ in shown], [p for _, p in shown]

    def foreseen(self) -> np.ndarray:
        """bool [positions]: True where a draft is shown that may still change."""
        shown = np.zeros(len(self.verdict), bool)
        shown[self.drafted()[1]] = True
        if self.small and not self.ended:
            side = self.scale // self.factor
            known = np.zeros(side * side, bool)
            known[list(self.small)] = True
            finer = self.columns // side
            shown |= known.reshape(side, side).repeat(finer, 0).repeat(finer, 1).ravel()
        return shown & (self.verdict == PENDING)

    def picture(self) -> np.ndarray:
        """uint8 [H, W, 3]: a cheap rendering of the picture so far with its drafts; the final decoding once the run has ended. A draft at
        a smaller scale is shown enlarged until its tokens are committed."""
        tokens, positions = self.drafted()
        run = self.run
        picture = run.backbone.render(run.tokens + tokens, run.positions + positions, self.ended, run.prompt.size)
        if not self.small or self.ended:
            return picture
        coarse = run.backbone.render(list(self.small.values()), list(self.small), False, self.scale)
        enlarged = np.asarray(Image.fromarray(coarse).resize(picture.shape[1::-1], Image.Resampling.BICUBIC))
        through = self.foreseen().reshape(self.rows, self.columns).repeat(self.factor, 0).repeat(self.factor, 1)
        return np.where(through[:, :, None], enlarged, picture)


def known(step: Step, name: str) -> np.ndarray:
    """float32 [tokens of the step]: an entry of its trace, nan where it has no value or there was no draft."""
    if name != "entropy" and not step.drafted and step.trace.verdict is None:
        return np.full(len(step.tokens), np.nan, np.float32)
    return per_token(step, name)


def verdicts(step: Step) -> np.ndarray:
    """uint8 [tokens of the step]: what became of each; a token after the last draft is the model's own."""
    if step.trace.verdict is not None:
        return REPAIRED[per_token(step, "verdict").astype(np.int64)]
    accepted = per_token(step, "accepted") == 1
    kinds = np.where(accepted, ACCEPTED, CORRECTED).astype(np.uint8)
    kinds[step.drafted :] = OWN
    return kinds


def _as_list(values: Any) -> list[int]:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def updates(boards: Sequence[Growth], throttle: Throttle) -> Iterator[set[int]]:
    """Races the runs of the boards; yields the indices of changed boards as often as the throttle allows, and all of them at the end."""
    changed: set[int] = set()
    final: set[int] = set()  # boards whose last picture was yielded
    for which, step in race([board.run for board in boards]):
        boards[which].add(step)
        ended = {i for i, board in enumerate(boards) if board.ended}
        changed |= {which} | (ended - final)
        if throttle.ready():
            yield changed
            throttle.done()
            final |= changed & ended
            changed = set()
    yield set(range(len(boards)))

"""Cost of a pass by its number of rows: milliseconds until its distributions are available."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import torch

from engine.backbones.prompts import probe_prompt
from engine.core import Backbone, Draft
from engine.core import Sequence as Sequenced
from engine.tuning.load_monitor import clock_of

WIDTHS = (1, 2, 4, 8, 16, 32, 48, 64)
PAST = 64  # tokens in the cache while passes are timed
ROUNDS = 7
SECONDS = 3.0  # after which no further round begins


@dataclass(frozen=True)
class CostCurve:
    """Milliseconds of a pass by its number of rows, ascending, at least one."""

    points: tuple[tuple[int, float], ...]

    def at(self, rows: float) -> float:
        """Milliseconds of a pass over this many rows: interpolated between the measured widths, extrapolated from the last two, but never
        less than the last.
        """
        (low, least), *rest = self.points
        if rows <= low or not rest:
            return least
        before = (low, least)
        for after in rest:
            if rows <= after[0] or after is rest[-1]:
                slope = (after[1] - before[1]) / (after[0] - before[0])
                return max(before[1] + slope * (rows - before[0]), after[1] if rows > after[0] else 0.0)
            before = after
        raise AssertionError("there is a last point")

    def row(self) -> dict[str, float]:
        """Milliseconds by rows, for JSON."""
        return {str(rows): milliseconds for rows, milliseconds in self.points}

    @staticmethod
    def of(row: Mapping[str, float]) -> CostCurve:
        """The curve stored in a row of JSON; raises ValueError for anything else."""
        points = tuple(sorted((int(rows), float(milliseconds)) for rows, milliseconds in row.items()))
        if not points or not all(rows > 0 and 0 < milliseconds < float("inf") for rows, milliseconds in points):
            raise ValueError("a curve needs positive numbers")
        return CostCurve(points)


def a_path(sequence: Sequenced, count: int, end: int | None) -> list[int]:
    """Tokens that may follow the committed ones, none of which ends the sequence."""
    path: list[int] = []
    for _ in range(count):
        allowed = sequence.allowed_ids(path)
        ids = [0] if allowed is None else [i for i in allowed.nonzero().flatten()[:2].tolist() if i != end]
        path.append(ids[0])
    return path


@contextmanager
def sequence_for_costs(backbone: Backbone) -> Iterator[Sequenced]:
    """A sequence with PAST tokens, or a quarter of its length."""
    sequence = backbone.start(probe_prompt(backbone))
    try:
        count = min(PAST, max(1, sequence.limit // 4))
        path = a_path(sequence, count, backbone.end)
        sequence.forward(Draft(torch.tensor(path[:-1], dtype=torch.int64)))
        sequence.commit(list(range(count - 1)), path[-1])
        yield sequence
    finally:
        sequence.close()


def one_pass(sequence: Sequenced, draft: Draft) -> None:
    """A pass with its distributions."""
    total = sequence.forward(draft).p.sum()
    if total.device.type == "cuda":
        torch.cuda.synchronize(total.device)
    elif total.device.type == "mps":
        torch.mps.synchronize()


@torch.inference_mode()
def cost_curves(models: Sequence[Backbone], rounds: int = ROUNDS, seconds: float = SECONDS) -> list[CostCurve]:
    """The cost curves of some models on this machine, with the threads that PyTorch has now.

    Every round takes each width of each model once, after an unmeasured one, so that a machine that slows down affects all alike. The least
    counts, because other programs can only add time; for the same reason a pass costs at most what a wider one took. After `seconds` no
    further round begins.
    """
    with ExitStack() as stack:
        passes = [passes_of(stack.enter_context(sequence_for_costs(model)), model.end) for model in models]
        least: list[dict[int, float]] = [dict.fromkeys(each, math.inf) for each in passes]
        deadline = time.perf_counter() + seconds
        for done in range(rounds + 1):
            for own, (model, each) in zip(least, zip(models, passes, strict=True), strict=True):
                clock = clock_of(model.device)
                for width, call in each.items():
                    start = clock()
                    call()
                    own[width] = min(own[width], clock() - start) if done else math.inf
            if done and time.perf_counter() > deadline:
                break
    return [CostCurve(tuple((width, round(1000 * min(s for w, s in own.items() if w >= width), 3)) for width in own)) for own in least]


def passes_of(sequence: Sequenced, end: int | None) -> dict[int, Callable[[], None]]:
    """A pass of each width that fits."""
    most = min(max(WIDTHS), sequence.limit - sequence.length)
    path = torch.tensor(a_path(sequence, most - 1, end), dtype=torch.int64)
    return {width: partial(one_pass, sequence, Draft(path[: width - 1])) for width in WIDTHS if width <= most}

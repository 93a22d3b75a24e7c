"""The cost of a pass by its number of rows: milliseconds until its distributions are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from engine.core import Backbone, Draft, Prompt, Sequence

WIDTHS = (1, 2, 4, 8, 16, 32, 48, 64)
PAST = 64  # tokens in the cache while passes are timed
ROUNDS = 7
FINE = 1e-5  # seconds
SECONDS = 3.0  # after which no further round begins


@dataclass(frozen=True)
class Curve:
    """Milliseconds of a pass by its number of rows, ascending, at least one."""

    points: tuple[tuple[int, float], ...]

    def at(self, rows: float) -> float:
        """Milliseconds of a pass over so many rows: between the measured widths on a line, after the last one on the line through the last
        two, but never less than the last."""
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
    def of(row: Mapping[str, float]) -> Curve:
        """The curve of a row; raises ValueError for anything else."""
        points = tuple(sorted((int(rows), float(milliseconds)) for rows, milliseconds in row.items()))
        if not points or not all(rows > 0 and 0 < milliseconds < float("inf") for rows, milliseconds in points):
            raise ValueError("a curve needs positive numbers")
        return Curve(points)


def probe_prompt(backbone: Backbone) -> Prompt:
    """A prompt that any model of its kind reads: a caption, or points of a sphere with their normals."""
    if "points" not in backbone.capabilities:
        return Prompt("a cat")
    normals = torch.nn.functional.normalize(torch.randn(1024, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    return Prompt(points=torch.cat([0.95 * normals, normals], 1))


def a_path(sequence: Sequence, count: int, end: int | None) -> list[int]:
    """Tokens that may follow the committed ones, none of which ends the sequence."""
    path: list[int] = []
    for _ in range(count):
        allowed = sequence.allowed(path)
        ids = [0] if allowed is None else [i for i in allowed.nonzero().flatten()[:2].tolist() if i != end]
        path.append(ids[0])
    return path


@contextmanager
def begun(backbone: Backbone) -> Iterator[Sequence]:
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


def clock(device: torch.device) -> Callable[[], float]:
    """The clock in seconds for work on a device. With one thread on a CPU it is the thread's processor time, where that is counted finely:
    what other programs take of the core is left out. Else the time of day."""
    alone = device.type == "cpu" and torch.get_num_threads() == 1 and time.get_clock_info("thread_time").resolution < FINE
    return time.thread_time if alone else time.perf_counter


def one_pass(sequence: Sequence, draft: Draft, now: Callable[[], float] = time.perf_counter) -> float:
    """Milliseconds of one pass with its distributions."""
    start = now()
    total = sequence.forward(draft).p.sum()
    if total.device.type == "cuda":
        torch.cuda.synchronize(total.device)
    return 1000 * (now() - start)


@torch.inference_mode()
def cost_curve(backbone: Backbone, widths: tuple[int, ...] = WIDTHS, rounds: int = ROUNDS, seconds: float = SECONDS) -> Curve:
    """The cost curve of a model on this machine, with the threads that PyTorch has now.

    Every round takes each width once, after an unmeasured one. The least of the rounds counts, because other programs can only add time;
    for the same reason a pass costs at most what a wider one took. After `seconds` no further round begins.
    """
    with begun(backbone) as sequence:
        most = min(max(widths), sequence.limit - sequence.length)
        path = torch.tensor(a_path(sequence, most - 1, backbone.end), dtype=torch.int64)
        drafts = {width: Draft(path[: width - 1]) for width in widths if width <= most}
        for draft in drafts.values():
            one_pass(sequence, draft)
        least = dict.fromkeys(drafts, float("inf"))
        now, deadline = clock(sequence.device), time.perf_counter() + seconds
        for done in range(rounds):
            if done and time.perf_counter() > deadline:
                break
            for width, draft in drafts.items():
                least[width] = min(least[width], one_pass(sequence, draft, now))
    return Curve(tuple((width, round(min(found for other, found in least.items() if other >= width), 3)) for width in least))

"""The cost of a pass by its number of rows: milliseconds until its distributions are there."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

from engine.core import Backbone, Draft, Prompt, Sequence
from engine.tuning.load_monitor import Lap, Watch, believed

WIDTHS = (1, 2, 4, 8, 16, 32, 48, 64)
PAST = 64  # tokens in the cache while passes are timed
ROUNDS = 7
LEAST = 2  # quiet passes of each width that make a curve
SECONDS = 3.0  # after which no further round begins


@dataclass(frozen=True)
class Curve:
    """Milliseconds of a pass by its number of rows, ascending, at least one.

    quiet : whether no other program took the processor from the passes that count; others are not stored
    """

    points: tuple[tuple[int, float], ...]
    quiet: bool = field(default=True, compare=False)

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


def one_pass(sequence: Sequence, draft: Draft) -> None:
    """A pass with its distributions."""
    total = sequence.forward(draft).p.sum()
    if total.device.type == "cuda":
        torch.cuda.synchronize(total.device)


@torch.inference_mode()
def cost_curve(
    backbone: Backbone, widths: tuple[int, ...] = WIDTHS, rounds: int = ROUNDS, seconds: float = SECONDS, watch: Watch | None = None
) -> Curve:
    """The cost curve of a model on this machine, with the threads that PyTorch has now.

    Every round takes each width once, after an unmeasured one. The least of the quiet passes counts, because other programs can only add
    time; for the same reason a pass costs at most what a wider one took. There are more rounds until each width has LEAST quiet passes, and
    after `seconds` no further one begins.
    """
    with begun(backbone) as sequence:
        most = min(max(widths), sequence.limit - sequence.length)
        path = torch.tensor(a_path(sequence, most - 1, backbone.end), dtype=torch.int64)
        drafts = {width: Draft(path[: width - 1]) for width in widths if width <= most}
        for draft in drafts.values():
            one_pass(sequence, draft)
        laps: dict[int, list[Lap]] = {width: [] for width in drafts}
        watch, deadline, done = watch or Watch(sequence.device), time.perf_counter() + seconds, 0
        while done == 0 or (time.perf_counter() < deadline and (done < rounds or not is_quiet(laps))):
            for width, draft in drafts.items():
                laps[width].append(watch.lap(partial(one_pass, sequence, draft))[1])
            done += 1
    least = {width: 1000 * min(believed(found, LEAST)[0]) for width, found in laps.items()}
    points = tuple((width, round(min(found for other, found in least.items() if other >= width), 3)) for width in least)
    return Curve(points, is_quiet(laps))


def is_quiet(laps: Mapping[int, list[Lap]]) -> bool:
    """Whether each width has enough quiet passes, or all it has if there are fewer."""
    return all(believed(found, min(LEAST, len(found)))[1] for found in laps.values())

"""The number of PyTorch's threads that is fastest for a model on a CPU, by a probe of about a second."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median

import torch

from engine.core import Backbone, Draft
from engine.tuning.curve import a_path, one_pass, sequence_for_costs

ROWS = (1, 32)  # of the two passes that are timed: plain decoding's, and a window's
SECONDS = 1.0  # after which no further turn begins
HOPELESS = 2.0  # a number of threads that costs this many times the least is not measured again


def candidates(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    doubled = [2**i for i in range(max(1, most).bit_length())]
    return sorted({count for count in doubled if count <= most} | {max(1, most)})


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Context in which PyTorch uses this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.inference_mode()
def thread_costs(backbone: Backbone, counts: list[int], seconds: float = SECONDS) -> dict[int, float]:
    """Milliseconds of a pass by number of threads, by the wall clock: the geometric mean of the median passes over ROWS, measured
    alternately. Both kinds of pass count alike, so that plain decoding is not slowed down to make a window look better. A median, because
    threads that wait for a core are part of what is measured."""
    with sequence_for_costs(backbone) as sequence:
        most = sequence.limit - sequence.length
        drafts = [Draft(torch.tensor(a_path(sequence, min(rows, most) - 1, backbone.end), dtype=torch.int64)) for rows in ROWS]
        samples: dict[int, list[list[float]]] = {count: [[] for _ in drafts] for count in counts}
        deadline, going = time.perf_counter() + seconds, list(samples)
        while True:
            for count in going:
                with threads(count):
                    one_pass(sequence, drafts[0])  # starts PyTorch's threads
                    for draft, times in zip(drafts, samples[count], strict=True):
                        start = time.perf_counter()
                        one_pass(sequence, draft)
                        times.append(1000 * (time.perf_counter() - start))
            costs = {count: typical_time(lists) for count, lists in samples.items()}
            if time.perf_counter() > deadline:
                return costs
            going = [count for count in going if costs[count] < HOPELESS * min(costs.values())]


def typical_time(lists: list[list[float]]) -> float:
    """The geometric mean over the passes of the median of their times."""
    return round(math.prod(median(times) for times in lists) ** (1 / len(lists)), 3)


def fastest(costs: Mapping[int, float], most: int) -> int:
    """The number of threads with the least cost, at most `most`; of equal ones the smaller, 1 if there is none."""
    usable = [count for count in sorted(costs) if count <= most]
    return min(usable, key=lambda count: costs[count], default=1)

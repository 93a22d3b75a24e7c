"""Clocks that other programs do not affect, where available, and the processor time that other programs used during a measurement."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch

Made = TypeVar("Made")
FINE = 1e-5  # seconds: the resolution that a clock of the thread must have
SPARE = 0.25  # of a core that other programs may use of those that our threads need
MACHINE = Path("/proc/stat")
BUSY = "Other programs kept the processor busy while this was measured. 'python launch.py doctor --again' measures it again."


def clock_of(device: torch.device) -> Callable[[], float]:
    """The clock for passes on a device: with one thread on a CPU that of the thread, which other programs do not move; else the wall
    clock.
    """
    own = device.type == "cpu" and torch.get_num_threads() == 1 and time.get_clock_info("thread_time").resolution < FINE
    return time.thread_time if own else time.perf_counter


def used_elsewhere() -> float | None:
    """Seconds of all cores that other programs have used so far; None where the system does not count them."""
    try:
        user, nice, system, _, _, *more = map(int, MACHINE.read_text(encoding="utf-8").split("\n", 1)[0].split()[1:])
    except (OSError, ValueError):  # no Linux, or another form of the file
        return None
    return (user + nice + system + sum(more[:3])) / os.sysconf("SC_CLK_TCK") - time.process_time()


def watch_load(threads: int, measure: Callable[[], Made]) -> tuple[Made, bool]:
    """Result of a measurement with this many threads, and True if other programs left a core to each thread or the system does not say."""
    before, start = used_elsewhere(), time.perf_counter()
    result = measure()
    after, seconds = used_elsewhere(), time.perf_counter() - start
    if before is None or after is None:
        return result, True
    return result, (after - before) / seconds <= (os.cpu_count() or 1) - threads + SPARE

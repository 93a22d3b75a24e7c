"""Times calls, and says of each whether other programs took the processor meanwhile, so that such a time is not believed.

A thread that waits for a core spends time on the wall clock and none of its own. With several threads a waiting one holds up the others,
which may wait by spinning, and no clock of ours counts that; but Linux counts how long each thread has waited for a core. A call is *quiet*
if all waiting together is at most a tenth of its time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

Made = TypeVar("Made")
MOST = 0.1  # of a call's time that may be waiting
FINE = 1e-5  # seconds: the resolution that a clock of the thread must have
TASKS = Path("/proc/self/task")
MACHINE = Path("/proc/stat")
BUSY = "Other programs kept the processor busy, so what was measured is used now and not stored."


@dataclass(frozen=True)
class Lap:
    """seconds : of a call; quiet : whether no other program lengthened it noticeably"""

    seconds: float
    quiet: bool


def waited() -> float | None:
    """Seconds that the threads of this process have waited for a core, all together; None where the system does not count them."""
    try:
        return sum(int((task / "schedstat").read_text().split()[1]) for task in TASKS.iterdir()) * 1e-9
    except (OSError, ValueError, IndexError):  # no Linux, a kernel without these numbers, or a thread that has just ended
        return None


def taken() -> float | None:
    """Seconds of all cores that other programs have used so far; None where the system does not count them."""
    try:
        user, nice, system, _, _, *more = map(int, MACHINE.read_text(encoding="utf-8").split("\n", 1)[0].split()[1:])
    except (OSError, ValueError):  # no Linux, or another form of the file
        return None
    return (user + nice + system + sum(more[:3])) / os.sysconf("SC_CLK_TCK") - time.process_time()


class Watch:
    """Times calls for a device with the threads that PyTorch has now.

    With one thread on a CPU the seconds are the thread's own, where they are counted finely; else those of the wall clock. On a GPU every
    lap counts as quiet: the host waits there.
    """

    def __init__(
        self,
        device: torch.device,
        wall: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] = time.thread_time,
        waiting: Callable[[], float | None] = waited,
        alone: bool | None = None,
    ):
        """alone : whether to count the thread's own seconds (None: with one thread)
        wall, own : seconds on the wall and of this thread; waiting : seconds that all threads have waited for a core, or None"""
        self.wall, self.own, self.waiting = wall, own, waiting
        fine = time.get_clock_info("thread_time").resolution < FINE
        self.watches = device.type == "cpu" and fine
        self.alone = self.watches and (torch.get_num_threads() == 1 if alone is None else alone)

    def lap(self, call: Callable[[], Made]) -> tuple[Made, Lap]:
        """What a call returns, and its time."""
        before = self.waiting() if self.watches and not self.alone else None
        wall, own = self.wall(), self.own()
        made = call()
        wall, own = self.wall() - wall, self.own() - own
        after = None if before is None else self.waiting()
        lost = wall - own if after is None else after - before
        return made, Lap(own if self.alone else wall, not self.watches or lost <= MOST * wall)


def believed(laps: list[Lap], least: int) -> tuple[list[float], bool]:
    """The seconds that may be believed, and whether they are quiet: those of the quiet laps, if there are at least `least` of them; else of
    all laps."""
    quiet = [lap.seconds for lap in laps if lap.quiet]
    return (quiet, True) if len(quiet) >= least else ([lap.seconds for lap in laps], False)

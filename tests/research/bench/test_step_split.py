"""The clocks that divide a step."""

from __future__ import annotations

from itertools import count

import pytest

from research.bench.step_split import _Clock, reading


def test_a_nested_call_counts_once_and_the_clock_itself_does_not() -> None:
    seconds = count()
    clock = _Clock(lambda: next(seconds), tick=1)
    inner = clock.timed(lambda: [next(seconds) for _ in range(5)])
    outer = clock.timed(lambda: (next(seconds), inner()))
    outer()
    assert clock.calls == 1 and clock.seconds == 6  # what passed between two reads, which lie one second apart by themselves
    inner()
    assert clock.calls == 2 and clock.seconds == 11
    clock.begin()
    assert clock.calls == 0 and clock.seconds == 0


def test_the_time_of_a_reading_is_that_of_one() -> None:
    halves = count()
    assert reading(lambda: next(halves) / 2, tries=9) == pytest.approx(0.5)

"""The stop-watches that divide a step."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

from research.bench.step_split import Stopwatch


def test_a_nested_call_counts_once_and_functions_come_back() -> None:
    seconds = count()
    clock = Stopwatch(lambda: next(seconds))
    inner = clock.timed(lambda: [next(seconds) for _ in range(5)])
    owner = SimpleNamespace(act=lambda: (next(seconds), inner()))
    before = owner.act
    with clock.on([(owner, "act")]):
        owner.act()
    assert clock.seconds == 7 and owner.act is before  # six readings between the two of the outer call
    inner()
    assert clock.seconds == 13

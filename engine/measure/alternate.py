"""The stop-watch: plain, fast, fast, plain. Every speed-up that this project prints or draws was timed here.

Each kind of run is made once without being measured: allocations, tables of noise, first touch of the weights. Then the kinds alternate, in
their order and in reverse, so that a machine that grows slower or faster does so for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import TypeVar

from engine.run import Timed

T = TypeVar("T", bound=Timed)


@dataclass(frozen=True)
class Timing:
    """What the work of somebody else's code took."""

    seconds: float
    tokens: Sized


def timed(make: Callable[[], Sized]) -> Timing:
    """Calls a function that makes tokens, and says how long it took; for code that keeps no clock of its own."""
    start = time.perf_counter()
    tokens = make()
    return Timing(time.perf_counter() - start, tokens)


def alternate(
    kinds: Mapping[str, Callable[[int], T]], inputs: int = 1, repeats: int = 1, begin: Callable[[int], None] | None = None
) -> dict[str, list[list[T]]]:
    """Finished runs by kind and input, 2 x `repeats` each.

    kinds : by name, what makes the finished run of input i; begin : called before the runs of input i, for a line of progress
    """
    found: dict[str, list[list[T]]] = {name: [[] for _ in range(inputs)] for name in kinds}
    for make in kinds.values():
        make(0)
    for i in range(inputs):
        if begin:
            begin(i)
        for name in [*kinds, *reversed(kinds)] * repeats:
            found[name][i].append(kinds[name](i))
    return found

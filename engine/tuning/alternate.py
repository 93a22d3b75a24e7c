"""Times several kinds of runs alternately: plain, fast, fast, plain. Every speed-up that this project prints or draws is measured here.

Each kind first runs once unmeasured, to allocate memory, fill noise tables and touch the weights. Then the kinds run in order and in
reverse order, so that a machine that speeds up or slows down affects all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from engine.run import Timed

T = TypeVar("T", bound=Timed)


class Turn(NamedTuple):
    """One run of a measurement. counted : False for the unmeasured run of each kind"""

    kind: str
    input: int
    counted: bool = True


def turns(kinds: Iterable[str], inputs: int = 1, repeats: int = 1) -> list[Turn]:
    """Returns all runs of a measurement, in their order. repeats : 0 = each once without a warm-up, for numbers other than times"""
    names = [*kinds]
    if repeats == 0:
        return [Turn(name, i) for i in range(inputs) for name in names]
    first = [Turn(name, 0, counted=False) for name in names]
    return first + [Turn(name, i) for i in range(inputs) for name in [*names, *reversed(names)] * repeats]


def alternate(
    kinds: Mapping[str, Callable[[int], T]], inputs: int = 1, repeats: int = 1, begin: Callable[[int], None] | None = None
) -> dict[str, list[list[T]]]:
    """Returns finished runs by kind and input, 2 x `repeats` each, or 1.

    kinds : by name, a function that returns the finished run of input i
    begin : called with i before the runs of input i, to print progress
    """
    results: dict[str, list[list[T]]] = {name: [[] for _ in range(inputs)] for name in kinds}
    begun = set()
    for name, i, counted in turns(kinds, inputs, repeats):
        if counted and begin and i not in begun:
            begun.add(i)
            begin(i)
        done = kinds[name](i)
        if counted:
            results[name][i].append(done)
    return results

"""The timing loop: the order of runs, and how runs of different lengths are compared."""

from __future__ import annotations

import pytest

from engine.run import speedup
from engine.tuning.alternate import alternate
from research.bench.gpu import Timing, time_function


@pytest.mark.parametrize("repeats", [1, 2])
def test_kinds_alternate_after_one_unmeasured_run_each(repeats: int) -> None:
    order: list[str] = []

    def maker(name: str):
        def make(i: int) -> Timing:
            order.append(f"{name}{i}")
            return Timing(len(order), [i])

        return make

    timings = alternate({"plain": maker("p"), "fast": maker("f")}, 2, repeats, lambda i: order.append(f"input {i}"))
    inputs = [[f"input {i}", *[f"p{i}", f"f{i}", f"f{i}", f"p{i}"] * repeats] for i in range(2)]
    assert order == ["p0", "f0", *inputs[0], *inputs[1]]
    assert [[len(of) for of in timings[name]] for name in timings] == [[2 * repeats] * 2] * 2
    assert all(run.tokens == [i] for of in timings.values() for i, runs in enumerate(of) for run in runs)


def test_without_repeats_each_kind_runs_once() -> None:
    order: list[str] = []
    kinds = {name: lambda i, name=name: order.append(f"{name}{i}") or Timing(1.0, [i]) for name in "pf"}
    assert [[len(of) for of in each] for each in alternate(kinds, 2, 0).values()] == [[1, 1], [1, 1]]
    assert order == ["p0", "f0", "p1", "f1"]


def test_runs_of_different_lengths_are_compared_by_seconds_a_token() -> None:
    plain, fast = [Timing(4.0, range(100)), Timing(6.0, range(100))], [Timing(2.0, range(20)), Timing(2.0, range(20))]
    assert speedup(plain, fast) == pytest.approx(0.5)  # it was done sooner, but each token took longer
    assert speedup(plain, [Timing(1.0, range(100))]) == pytest.approx(5)


def test_code_without_a_clock_is_timed() -> None:
    timing = time_function(lambda: [1, 2, 3])
    assert timing.tokens == [1, 2, 3] and timing.seconds > 0

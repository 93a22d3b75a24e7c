"""What other programs take of the processor is noticed, and such a measurement is neither believed nor stored."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.tuning import auto, prepare, store, threads
from engine.tuning import load_monitor as watch
from engine.tuning.curve import WIDTHS, Curve, cost_curve
from engine.tuning.load_monitor import BUSY, Lap, Watch, believed, waited
from engine.tuning.store import Costs, Measured
from tests.engine.backbones import tiny

CPU = torch.device("cpu")


def ticking(step: float) -> Any:
    """A clock that is `step` seconds later whenever it is read."""
    ticks = count()
    return lambda: step * next(ticks)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch has one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# --- laps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("own", "quiet"), [(1.0, True), (0.92, True), (0.8, False), (0.02, False)])
def test_a_lone_thread_is_timed_by_its_own_clock_which_waiting_does_not_move(own: float, quiet: bool, one_thread: None) -> None:
    made, lap = Watch(CPU, wall=ticking(1.0), own=ticking(own)).lap(lambda: "made")
    assert made == "made" and lap == Lap(own, quiet)


@pytest.mark.parametrize(("waiting", "quiet"), [(0.0, True), (0.05, True), (0.5, False), (3.0, False)])
def test_several_threads_are_timed_by_the_wall_and_may_hardly_wait_for_a_core(waiting: float, quiet: bool) -> None:
    """The first thread's own clock says nothing: it spins while another one waits."""
    watch = Watch(CPU, wall=ticking(1.0), own=ticking(1.0), waiting=ticking(waiting), alone=False)
    assert watch.lap(lambda: None)[1] == Lap(1.0, quiet)


def test_where_waiting_is_not_counted_the_clocks_are_compared() -> None:
    for own, quiet in ((1.0, True), (0.5, False)):
        watch = Watch(CPU, wall=ticking(1.0), own=ticking(own), waiting=lambda: None, alone=False)
        assert watch.lap(lambda: None)[1] == Lap(1.0, quiet)


def test_a_host_may_wait_for_its_gpu() -> None:
    assert Watch(torch.device("cuda"), wall=ticking(1.0), own=ticking(0.0)).lap(lambda: None)[1] == Lap(1.0, True)


def test_waiting_only_grows() -> None:
    first = waited()
    if first is None:
        pytest.skip("this system does not count how long threads wait for a core")
    assert 0 <= first <= waited()


def test_quiet_laps_are_believed_if_there_are_enough() -> None:
    laps = [Lap(5.0, True), Lap(1.0, False), Lap(4.0, True)]
    assert believed(laps, 2) == ([5.0, 4.0], True) and believed(laps, 3) == ([5.0, 1.0, 4.0], False)


# --- what is measured with them ---------------------------------------------------------------------------------------


class Scripted(Watch):
    """Laps of a script: (seconds, quiet), the last one for ever."""

    def __init__(self, *laps: tuple[float, bool]):
        self.laps = list(laps)

    def lap(self, call: Any) -> tuple[Any, Lap]:
        """What the call returns, and the next lap."""
        return call(), Lap(*(self.laps.pop(0) if len(self.laps) > 1 else self.laps[0]))


def test_a_curve_of_quiet_passes_forgets_the_others() -> None:
    hogged = [(0.4, False)] * len(WIDTHS)
    found = cost_curve(tiny.pictogram(), rounds=3, watch=Scripted(*hogged, (0.005, True)))
    assert found.quiet and {cost for _, cost in found.points} == {5.0}


def test_a_curve_without_quiet_passes_is_the_least_and_says_so() -> None:
    found = cost_curve(tiny.pictogram(), rounds=2, seconds=0.5, watch=Scripted((0.4, False), (0.2, False)))
    assert not found.quiet and found.points[0][1] == 200.0


def test_rounds_go_on_until_there_are_enough_quiet_passes() -> None:
    late = [(0.4, False)] * (3 * len(WIDTHS))
    assert cost_curve(tiny.pictogram(), rounds=1, seconds=30, watch=Scripted(*late, (0.1, True))).points[0][1] == 100.0


def test_what_a_method_does_beside_its_passes_is_taken_from_quiet_steps() -> None:
    flat = Curve(((1, 4.0),))
    script = [(0.006, True)] * 3 + [(0.4, False), (0.007, True), (0.008, True), (0.4, False), (0.009, True), (0.381, False)]
    assert auto.beside(tiny.pictogram(), "ar", {}, flat, Scripted(*script)) == (4.0, True)  # the median of 3, 4 and 5
    assert auto.beside(tiny.pictogram(), "ar", {}, flat, Scripted((0.381, False), (0.010, False))) == (6.0, False)
    assert auto.beside(tiny.pictogram(), "ar", {}, flat, Scripted((0.003, True))) == (-1.0, True)  # its passes store no distributions


def test_threads_are_not_chosen_for_good_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, quiet = threads.thread_costs(tiny.pictogram(), [1, 2], 0.0, Scripted((0.4, False)))
    assert not quiet and set(found) == {1, 2}
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    monkeypatch.setattr(prepare, "thread_costs", lambda *given: ({1: 9.0, 2: 3.0}, False))
    said: list[str] = []
    measured = Measured(store.about(known()))
    assert prepare.thread_count(known(), measured, 2, said.append) == 2 and said[-1] == BUSY
    assert measured.threads == store.read(known()).threads == {}


def test_a_number_of_threads_that_was_disturbed_spoils_the_measurement() -> None:
    """Beside a program that has a core, passes with one thread are quiet, and there are more of them."""

    class Beside:
        def lap(self, call: Callable[[], object]) -> tuple[object, Lap]:
            return call(), Lap(0.4, torch.get_num_threads() == 1)

    assert not threads.thread_costs(tiny.pictogram(), [1, 2], 0.0, Beside(), lambda: None)[1]
    assert threads.thread_costs(tiny.pictogram(), [1], 0.0, Beside(), lambda: None)[1]


def test_other_programs_must_leave_a_core_to_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 2)
    assert threads.has_room(2, 10.0, 10.2, 1.0) and threads.has_room(1, 10.0, 11.0, 1.0) and threads.has_room(2, None, None, 1.0)
    assert not threads.has_room(2, 10.0, 11.0, 1.0) and not threads.has_room(1, 10.0, 12.0, 1.0)
    busy = iter([0.0, 1e6])
    assert not threads.thread_costs(tiny.pictogram(), [1, 2], 0.0, Scripted((0.4, True)), lambda: next(busy))[1]
    assert threads.thread_costs(tiny.pictogram(), [1, 2], 0.0, Scripted((0.4, True)), lambda: 0.0)[1]


def test_what_other_programs_take_is_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if watch.MACHINE.exists():
        assert watch.taken() > -1.0  # of a count in hundredths
    monkeypatch.setattr(watch, "MACHINE", tmp_path / "stat")
    assert watch.taken() is None
    (tmp_path / "stat").write_text("cpu  9000000 0 1000000 77 5 0 0 0 0 0\ncpu0 1 2\n")
    assert watch.taken() == pytest.approx(1e7 / os.sysconf("SC_CLK_TCK") - time.process_time(), abs=1.0)


def known() -> SimpleNamespace:
    """What a measurement is stored by."""
    return SimpleNamespace(name="pictogram", weights_hash="abc", device=CPU, dtype="float32", card={})


def test_a_disturbed_measurement_is_used_and_not_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    loud, quiet, said = Curve(((1, 400.0),), quiet=False), Curve(((1, 4.0),)), []
    monkeypatch.setattr(prepare, "cost_curve", lambda backbone: loud)
    assert prepare.costs_here(known(), store.read(known()), said.append).curve is loud
    assert said[-1] == BUSY and store.read(known()).costs == {}
    monkeypatch.setattr(prepare, "cost_curve", lambda backbone: quiet)
    assert prepare.costs_here(known(), store.read(known()), said.append).curve == quiet
    assert len(said) == 3 and len(store.read(known()).costs) == 1
    key = (1, "float32")
    store.write(Measured(store.about(known()), {}, {key: Costs(quiet, {"ar": 0.5, "sjdpp": 381.0}, {"sjdpp"})}))
    assert store.read(known()).costs[key].beside == {"ar": 0.5}


def test_the_least_of_two_curves_is_quiet_if_both_are() -> None:
    one, other = Curve(((1, 4.0),)), Curve(((1, 3.0),), quiet=False)
    assert prepare.least([one, other]).points == ((1, 3.0),) and not prepare.least([one, other]).quiet and prepare.least([one]).quiet

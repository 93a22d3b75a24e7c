"""Measurements of a machine, their storage, and the threads and dtype that follow."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine import backbones
from engine.tuning import load_monitor, prepare, store, threads
from engine.tuning.curve import WIDTHS, CostCurve, cost_curves, sequence_for_costs
from engine.tuning.load_monitor import BUSY, clock_of, used_elsewhere, watch_load
from engine.tuning.store import ModelMeasurements, StepCosts
from tests.engine.backbones import tiny

LINE = CostCurve(tuple((width, 1.0 + width) for width in WIDTHS))

CHOOSE_DTYPE = prepare.choose_dtype  # before a fixture replaces it


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A separate home folder, and a machine on which everything is measured."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    monkeypatch.setattr(load_monitor, "used_elsewhere", lambda: None)  # nothing else runs on this machine
    monkeypatch.setattr(prepare, "choose_dtype", CHOOSE_DTYPE)
    return tmp_path


def model(**changes: Any) -> SimpleNamespace:
    """Key of a stored measurement."""
    own = {"name": "pictogram", "weights_hash": "abc", "device": torch.device("cpu"), "dtype": "float32", "card": {}, "weight_form": "full"}
    return SimpleNamespace(**own | {"capabilities": frozenset({"bfloat16"})} | changes)


# --- passes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", [tiny.pictogram, tiny.lowpoly])
def test_a_curve_has_every_width_and_never_falls(backbone: Any) -> None:
    for curve in cost_curves([backbone(), backbone()], rounds=2):
        assert [width for width, _ in curve.points] in ([*WIDTHS], [*WIDTHS[:-1]])
        costs = [cost for _, cost in curve.points]
        assert costs == sorted(costs) and costs[0] > 0


@torch.inference_mode()
def test_passes_are_timed_over_tokens_that_may_follow() -> None:
    """A mesh has a grammar: drafts that it forbids would make a different pass."""
    backbone = tiny.lowpoly()
    with sequence_for_costs(backbone) as sequence:
        assert sequence.length > 1 and not sequence.done and backbone.end not in sequence.tokens


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("most", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_the_counts_that_are_tried(most: int, counts: list[int]) -> None:
    assert threads.candidates(most) == counts


def test_the_fastest_count_is_taken_within_the_limit() -> None:
    costs = {1: 9.0, 2: 5.0, 4: 4.0, 8: 4.0}
    assert [threads.fastest(costs, most) for most in (16, 3, 1)] == [4, 2, 1]
    assert threads.fastest({}, 8) == 1


def test_a_probe_gives_back_the_threads_that_there_were() -> None:
    before = torch.get_num_threads()
    costs = threads.thread_costs(tiny.pictogram(), [1, 2], seconds=0.0)
    assert set(costs) == {1, 2} and all(cost > 0 for cost in costs.values()) and torch.get_num_threads() == before


def test_threads_are_measured_once_for_each_model_and_set(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, taken = [], []
    monkeypatch.setattr(prepare, "all_threads", lambda: 4)
    monkeypatch.setattr(prepare, "thread_costs", lambda backbone, counts: measured.append(counts) or {1: 3.0, 2: 1.0, 3: 2.5, 4: 2.0})
    monkeypatch.setattr(prepare.torch, "set_num_threads", taken.append)
    prepare.use_threads(model(), say=lambda text: None)
    prepare.use_threads(model(), say=pytest.fail)
    prepare.use_threads(model(), cores=1, say=pytest.fail)  # next to a server, with nothing to choose
    prepare.use_threads(model(weights_hash="other"), say=lambda text: None)
    assert measured == [[1, 2, 4], [1, 2, 4]] and taken == [2, 2, 1, 2]


# --- dtype ------------------------------------------------------------------------------------------------------------


def scale_line(wide: float, narrow: float) -> CostCurve:
    """LINE with the cost of one-row passes times `narrow` and of all others times `wide`."""
    return CostCurve(tuple((width, cost * (narrow if width == 1 else wide)) for width, cost in LINE.points))


@pytest.mark.parametrize(
    ("wide", "narrow", "taken"),
    [(0.5, 0.9, "bfloat16"), (0.5, 1.04, "bfloat16"), (0.5, 1.3, "float32"), (0.97, 0.9, "float32"), (2.0, 2.0, "float32")],
)
def test_bfloat16_is_taken_where_it_is_faster_and_the_baseline_is_not_slower(
    wide: float, narrow: float, taken: str, free: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    curves = {"float32": LINE, "bfloat16": scale_line(wide, narrow)}
    monkeypatch.setattr(prepare, "cost_curves", lambda models: [curves[each.dtype] for each in models])

    def other() -> SimpleNamespace:
        loaded.append("bfloat16")
        return model(dtype="bfloat16")

    for _ in range(2):
        assert prepare.choose_dtype(model(), other, store.read(model()), lambda text: None) == taken
    assert loaded == ["bfloat16"]  # measured once, then read


def test_a_measured_dtype_is_loaded_and_a_named_one_is_not_measured(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes: list[str] = []

    def load(name: str, path: str | None, device: str, dtype: str, weights: str = "auto") -> SimpleNamespace:
        dtypes.append(dtype)
        return model(dtype="float32" if dtype == "auto" else dtype)

    monkeypatch.setattr(backbones, "load", load)
    monkeypatch.setattr(prepare, "use_threads", lambda *arguments: None)
    monkeypatch.setattr(prepare, "choose_dtype", lambda *arguments: "bfloat16")
    assert prepare.prepare("pictogram").dtype == "bfloat16" and dtypes == ["auto", "bfloat16"]
    monkeypatch.setattr(prepare, "choose_dtype", lambda *arguments: pytest.fail("it was measured"))
    assert prepare.prepare("pictogram", dtype="float32").dtype == "float32"


# --- the file ---------------------------------------------------------------------------------------------------------


def test_what_is_stored_comes_back_for_the_same_machine_model_and_weights(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = ModelMeasurements(
        store.conditions(model()), {1: 2.0, 2: 1.5}, {(2, "float32"): StepCosts(LINE, {"ar": 0.5})}, [{"method": "ar"}]
    )
    store.write(measured)
    assert store.read(model()) == measured
    assert (
        store.read(model(weights_hash="other")).threads
        == {}
        == store.read(model(name="lowpoly")).threads
        == store.read(model(weight_form="int8")).threads
    )
    known = store.native
    monkeypatch.setattr(
        store, "native", lambda: None if known() is not None else SimpleNamespace(has_units=False)
    )  # compiled functions come or go
    assert store.read(model()).threads == {}
    monkeypatch.setattr(store, "native", known)
    monkeypatch.setattr(store.torch, "__version__", "9.9")
    assert store.read(model()).threads == {}
    monkeypatch.undo()
    monkeypatch.setenv("FORETOKEN_HOME", str(free))
    store.forget(model())
    assert store.read(model()).threads == {}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"form": 1}', "\0", '{"form": 1, "about": {}, "threads": 3}'])
def test_a_damaged_file_counts_as_absent(text: str, free: Path) -> None:
    path = store.path_of(store.conditions(model()))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert store.read(model()) == ModelMeasurements(store.conditions(model()))


def test_costs_that_are_no_numbers_are_damage(free: Path) -> None:
    store.write(ModelMeasurements(store.conditions(model()), {}, {(1, "float32"): StepCosts(LINE)}))
    path = store.path_of(store.conditions(model()))
    row = json.loads(path.read_text())
    row["costs"][0]["pass"]["1"] = -1
    path.write_text(json.dumps(row))
    assert store.read(model()).costs == {}


def test_a_disk_that_refuses_is_said_and_the_measurement_is_used(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (free / "measured").write_text("a file where a folder should be")
    messages: list[str] = []
    monkeypatch.setattr(prepare, "cost_curves", lambda models: [LINE])
    assert prepare.costs_here(model(), ModelMeasurements(store.conditions(model())), messages.append).curve == LINE
    assert len(messages) == 2 and "Cannot write" in messages[1]


# --- other programs ---------------------------------------------------------------------------------------------------


def test_one_thread_is_timed_by_its_own_clock_and_a_gpu_by_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert clock_of(torch.device("cpu")) is time.thread_time and clock_of(torch.device("cuda")) is time.perf_counter
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert clock_of(torch.device("cpu")) is time.perf_counter


@pytest.mark.parametrize(("count", "others", "quiet"), [(2, 0.2, True), (1, 1.0, True), (2, None, True), (2, 1.0, False), (1, 2.0, False)])
def test_other_programs_must_leave_a_core_to_each_thread(
    count: int, others: float | None, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, wall = iter([10.0, 10.0 + (others or 0)]), iter([5.0, 6.0])
    monkeypatch.setattr(load_monitor.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(load_monitor, "used_elsewhere", lambda: None if others is None else next(used))
    monkeypatch.setattr(load_monitor.time, "perf_counter", lambda: next(wall))
    assert watch_load(count, lambda: "made") == ("made", quiet)


def test_what_other_programs_take_is_read_from_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if load_monitor.MACHINE.exists():
        assert used_elsewhere() > -1.0  # of a count in hundredths
    monkeypatch.setattr(load_monitor, "MACHINE", tmp_path / "stat")
    assert used_elsewhere() is None
    (tmp_path / "stat").write_text("cpu  9000000 0 1000000 77 5 0 0 0 0 0\ncpu0 1 2\n")
    assert used_elsewhere() == pytest.approx(1e7 / os.sysconf("SC_CLK_TCK") - time.process_time(), abs=1.0)


def test_a_disturbed_measurement_is_stored_and_marked(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(prepare, "watch_load", lambda count, measure: (measure(), False))
    monkeypatch.setattr(prepare, "cost_curves", lambda models: [LINE])
    monkeypatch.setattr(prepare, "thread_costs", lambda backbone, counts: {1: 9.0, 2: 3.0})
    assert prepare.costs_here(model(), store.read(model()), messages.append).curve is LINE and messages[-1] == BUSY
    assert prepare.thread_count(model(), store.read(model()), 2, messages.append) == 2 and messages[-1] == BUSY
    known, said = store.read(model()), len(messages)
    assert known.disturbed and len(known.costs) == 1 and set(known.threads) == {1, 2}
    prepare.costs_here(model(), known, messages.append)
    assert prepare.thread_count(model(), known, 2, messages.append) == 2 and len(messages) == said  # nothing is measured again


def test_without_measuring_only_what_is_stored_is_used(free: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "thread_costs", lambda *arguments: pytest.fail("it was measured"))
    monkeypatch.setattr(prepare, "cost_curves", lambda *arguments: pytest.fail("it was measured"))
    monkeypatch.setattr(prepare, "all_threads", lambda: 2)
    own = model()
    with threads.threads(1):
        assert prepare.tune(own, pytest.fail, measures=False) is own and torch.get_num_threads() == 2
        known = store.read(own)
        known.threads = {1: 1.0, 2: 9.0}
        known.costs = {(1, own.dtype): StepCosts(LINE), (1, prepare.EITHER): StepCosts(CostCurve(((1, 0.1), (64, 0.2))))}
        store.write(known)
        assert prepare.tune(own, lambda dtype: dtype, measures=False) == prepare.EITHER and torch.get_num_threads() == 1

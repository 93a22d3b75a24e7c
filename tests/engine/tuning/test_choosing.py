"""The choice of auto: the best row of given tables, over the costs of given machines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine.core import Prompt
from engine.errors import BadKnob, MissingWeights, NotSupported
from engine.methods import METHODS, find, title
from engine.networks.weights import MODELS
from engine.run import generate
from engine.tuning import auto, load_monitor, prepare, store
from engine.tuning.curve import WIDTHS, CostCurve
from engine.tuning.expected import Expected, best, of_card, of_rows
from engine.tuning.store import ModelMeasurements, StepCosts
from tests.engine.backbones import tiny

CHEAP = CostCurve(tuple((width, 4.0 + 0.02 * width) for width in WIDTHS))  # a GPU's: a window costs as much as a token
DEAR = CostCurve(tuple((width, 2.0 + 0.5 * width) for width in WIDTHS))
WINDOWS = [Expected("ar", {}, 1.0, 1.0), *(Expected("sjdpp", {"window": w}, t, w) for w, t in ((4, 3.0), (8, 4.6), (16, 7.4), (64, 9.8)))]


def test_a_machine_of_cheap_windows_takes_a_wide_one_and_a_dear_one_does_not() -> None:
    assert best(WINDOWS, StepCosts(CHEAP)).full_name == "auto:sjdpp,window=64"
    assert best(WINDOWS, StepCosts(DEAR)).full_name == "auto:sjdpp,window=8"


@pytest.mark.parametrize("curve", [CHEAP, DEAR])
def test_no_row_is_faster_than_the_one_that_is_taken(curve: CostCurve) -> None:
    costs = StepCosts(curve, {"ar": 0.1, "sjdpp,window=8": 1.5})
    assert best(WINDOWS, costs).speed(costs) == pytest.approx(1000 * max(each.tokens / each.milliseconds(costs) for each in WINDOWS))


def test_where_windows_do_not_pay_it_takes_plain_decoding() -> None:
    steep = CostCurve(tuple((width, 5.0 * width) for width in WIDTHS))
    assert best(WINDOWS, StepCosts(steep)).full_name == "auto:ar"


def test_what_a_method_does_beside_its_pass_counts_once_for_each_pass_of_its_drafter() -> None:
    tree, window = Expected("eagle", {"nodes": 8}, 4.0, 9.0, 5.0), Expected("sjdpp", {"window": 8}, 3.5, 8.0)
    free, costs = StepCosts(CHEAP), StepCosts(CHEAP, {tree.key: 2.0, window.key: 2.0})
    assert best([tree, window], free) is tree and best([tree, window], costs) is window
    assert tree.milliseconds(costs) == pytest.approx(CHEAP.at(9) + 10.0) and window.milliseconds(costs) == pytest.approx(CHEAP.at(8) + 2.0)


@pytest.mark.parametrize(("rows", "cost"), [(1, 2.5), (0.5, 2.5), (3, 3.5), (64, 34.0), (80, 42.0)])
def test_a_curve_is_read_between_and_beyond_its_points(rows: float, cost: float) -> None:
    assert DEAR.at(rows) == pytest.approx(cost)
    assert CostCurve(((4, 7.0),)).at(rows) == 7.0


def test_a_falling_end_of_a_curve_is_not_followed_down() -> None:
    assert CostCurve(((1, 9.0), (2, 4.0))).at(40) == 4.0


# --- names ------------------------------------------------------------------------------------------------------------


def test_what_it_took_is_a_name_that_finds_the_method_and_its_knobs() -> None:
    method, knobs = find("auto:xspecmesh_exact,heads=multilayer,depth=3")
    assert method is METHODS["xspecmesh"]
    assert knobs == {"accept": "residual", "drafts": "most probable", "heads": "multilayer", "depth": 3}
    assert title("auto:sjdpp,window=16") == "auto: SJD++, window 16"
    assert title("auto:xspecmesh_exact,heads=multilayer,depth=3") == "auto: XSpecMesh, multilayer, depth 3"
    assert title("auto:ar") == f"auto: {METHODS['ar'].title}"


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("auto:sjdp", NotSupported, "Did you mean 'sjdpp'"),
        ("auto:auto:sjdpp", NotSupported, "is not a method"),
        ("auto:sjdpp,window=9999", BadKnob, "out of range"),
        ("auto:sjdpp,windows=9", BadKnob, "no knob"),
        ("auto", NotSupported, "There is no method 'auto'"),
    ],
)
def test_a_name_that_it_cannot_have_taken_is_refused(name: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        find(name)


# --- resolving --------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The tiny pictogram as if it had weights on disk, in a separate home folder."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    monkeypatch.setattr(load_monitor, "used_elsewhere", lambda: None)  # nothing else runs on this machine
    plain = tiny.pictogram()
    names = ("name", "capabilities", "sampling", "suits", "device", "dtype", "vocabulary", "end", "sizes", "start", "drafter", "render")
    return SimpleNamespace(**{name: getattr(plain, name) for name in names}, card={}, weights_hash="abc", weight_form="full")


def store_costs(model: SimpleNamespace, curve: CostCurve, rows: list[Expected]) -> None:
    """Stores costs and rows as if doctor had measured them."""
    costs = StepCosts(curve, {each.key: 0.0 for each in rows})
    store.write(
        ModelMeasurements(
            store.conditions(model), costs={(torch.get_num_threads(), model.dtype): costs}, tokens=[each.row() for each in rows]
        )
    )


@pytest.mark.parametrize(("curve", "name"), [(CHEAP, "auto:sjdpp,window=64"), (DEAR, "auto:sjdpp,window=8")])
def test_it_is_resolved_by_what_is_stored_and_measures_nothing_more(
    model: SimpleNamespace, curve: CostCurve, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_costs(model, curve, WINDOWS)
    monkeypatch.setattr(auto, "extra_milliseconds", lambda *arguments: pytest.fail("it was measured"))
    monkeypatch.setattr(prepare, "cost_curves", lambda *arguments: pytest.fail("it was measured"))
    assert auto.resolve(model, pytest.fail) == name


def test_a_row_of_a_method_that_the_model_lacks_a_need_of_is_not_taken(model: SimpleNamespace) -> None:
    store_costs(model, CHEAP, [*WINDOWS, Expected("xspecmesh_exact", {}, 50.0, 5.0)])
    assert auto.resolve(model) == "auto:sjdpp,window=64"


def test_without_recorded_tokens_it_takes_what_suits_the_model_and_says_so(model: SimpleNamespace) -> None:
    messages: list[str] = []
    assert auto.resolve(model, messages.append) == "auto:sjdpp" == auto.resolve_stored(model)
    assert len(messages) == 1 and "doctor --model" in messages[0]


def test_the_rows_of_the_card_come_first_if_they_are_of_these_weights(model: SimpleNamespace) -> None:
    row = Expected("sjdpp", {"window": 12}, 5.0, 12.0)
    store_costs(model, CHEAP, [*WINDOWS, row])
    model.card = {"expected": {"weights": "abc", "rows": [row.row()]}}
    assert of_card(model) == [row] and auto.resolve(model) == "auto:sjdpp,window=12"
    model.weights_hash = "other weights"
    assert of_card(model) == []
    model.card = {"expected": {"weights": "other weights", "rows": [{"method": "sjdpp"}]}}
    with pytest.raises(MissingWeights, match="damaged"):
        of_card(model)


def test_what_it_measures_is_measured_once(model: SimpleNamespace) -> None:
    store_costs(model, CHEAP, WINDOWS)
    measured = store.read(model)
    measured.costs = {}
    store.write(measured)
    messages: list[str] = []
    assert auto.resolve_stored(model) is None
    names = [auto.resolve(model, messages.append) for _ in range(2)]
    assert names[0] == names[1] == auto.resolve_stored(model) and len(messages) == 1
    stored = store.read(model).costs[torch.get_num_threads(), model.dtype]
    assert "ar" in stored.extra and names[0].removeprefix("auto:") in stored.extra and stored.curve.points[0][0] == 1


# milliseconds beside passes of CHEAP
TRUTH = {"ar": -3.6, "sjdpp,window=4": 2.0, "sjdpp,window=8": 2.5, "sjdpp,window=16": 3.0, "sjdpp,window=64": 60.0}


def test_the_choice_is_among_steps_that_were_timed(model: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """By passes alone a window of 64 is the fastest; with its step costs neither it nor any window beats plain decoding's short steps."""
    timed: list[str] = []

    def step_cost(backbone: SimpleNamespace, name: str, knobs: dict[str, int], curve: CostCurve) -> float:
        timed.append(Expected(name, knobs, 1.0, 1.0).key)
        return truth[timed[-1]]

    monkeypatch.setattr(auto, "extra_milliseconds", step_cost)
    for truth, fastest in ((TRUTH, "ar"), (TRUTH | {"ar": 0.0}, "sjdpp,window=16"), (dict.fromkeys(TRUTH, 0.0), "sjdpp,window=64")):
        timed.clear()
        costs = StepCosts(CHEAP)
        assert auto.find_out(model, WINDOWS, costs) and best(WINDOWS, costs).key == fastest and fastest in timed
        assert best(WINDOWS, StepCosts(CHEAP, truth)).key == fastest
        assert not auto.find_out(model, WINDOWS, costs)
    assert set(timed) == {"ar", "sjdpp,window=64"}  # the others cannot be faster
    with pytest.MonkeyPatch.context() as patch:  # a method that is measured once for all its knobs passes the best window over
        patch.setattr(Expected, "key", property(lambda row: row.name))
        assert best(WINDOWS, StepCosts(CHEAP, {"ar": 0.0, "sjdpp": 60.0})).full_name == "auto:ar"


@pytest.mark.parametrize(("first", "later", "cost"), [(2.0, 1.5, 1.5), (2.0, 2.5, 2.0)])
def test_rows_that_are_about_as_fast_are_timed_in_turns(
    model: SimpleNamespace, first: float, later: float, cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []

    def step_cost(backbone: SimpleNamespace, name: str, knobs: dict[str, int], curve: CostCurve) -> float:
        timed.append(name)
        return {"ar": 0.0, "sjdpp": first if timed.count("sjdpp") == 1 else later, "zipar": 50.0}[name]

    monkeypatch.setattr(auto, "extra_milliseconds", step_cost)
    rows, costs = [Expected("ar", {}, 1.0, 1.0), Expected("sjdpp", {}, 1.5, 4.0), Expected("zipar", {}, 1.6, 4.0)], StepCosts(CHEAP)
    assert auto.find_out(model, rows, costs) and costs.extra["sjdpp"] == cost
    assert timed[-4:] == ["ar", "sjdpp"] * 2 and timed.count("zipar") == 1


@pytest.mark.parametrize(("extra", "taken"), [(0.1, "auto:eagle,nodes=4"), (1.5, "auto:eagle,nodes=4"), (1.7, "auto:ar"), (9.0, "auto:ar")])
def test_a_method_whose_drafter_costs_more_than_it_saves_is_described_and_not_taken(
    model: SimpleNamespace, extra: float, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.capabilities = model.capabilities | METHODS["eagle"].needs
    tree = Expected("eagle", {"nodes": 4}, 3.0, 5.0, 5.0)  # as fast as plain decoding where a pass of its drafter takes 1.6 ms
    store_costs(model, CHEAP, [WINDOWS[0], tree])
    measured = store.read(model)
    measured.costs = {key: StepCosts(CHEAP) for key in measured.costs}
    store.write(measured)
    assert auto.steps_here(model) == {}
    monkeypatch.setattr(auto, "extra_milliseconds", lambda backbone, name, *rest: extra if name == "eagle" else 0.0)
    assert auto.resolve(model) == taken
    step, whole = auto.steps_here(model)["eagle"], CHEAP.at(5) + 5 * extra
    assert (step.outside, step.milliseconds) == (pytest.approx(5 * extra), pytest.approx(whole))
    assert step.speedup == pytest.approx(3 * CHEAP.at(1) / whole) and (step.speedup < 1) == (taken == "auto:ar")


def test_what_a_method_does_beside_its_passes_is_the_median_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock of the machine; negative where its passes store no distributions."""
    for milliseconds, extra in ((7, 3.0), (3, -1.0)):
        now = iter([0.0] * 6 + [part for i in range(99) for part in (i, i + milliseconds / 1000)])  # the first three steps do not count
        monkeypatch.setattr(auto, "clock_of", lambda device, now=now: lambda: next(now))
        assert auto.extra_milliseconds(tiny.pictogram(), "ar", {}, CostCurve(((1, 4.0),))) == extra


def test_knobs_that_were_not_timed_count_as_the_least_beside_a_pass() -> None:
    rows = [Expected("sjdpp", {"window": 8}, 4.0, 8.0), Expected("eagle", {}, 4.0, 8.0, 5.0)]
    costs = StepCosts(CHEAP, {"ar": -0.5, "sjdpp,window=64": 3.0})
    assert [each.milliseconds(costs) for each in rows] == [pytest.approx(CHEAP.at(8) - 0.5)] * 2
    assert rows[0].milliseconds(StepCosts(CHEAP, {"sjdpp,window=8": 2.0})) == pytest.approx(CHEAP.at(8) + 2.0)
    assert rows[0].milliseconds(StepCosts(CHEAP, {"ar": -9.0})) > 0  # no step takes less than nothing


def test_recorded_tokens_are_those_of_runs() -> None:
    backbone = tiny.pictogram()
    prompts = [Prompt("red apple", seed=seed) for seed in range(2)]
    runs = [generate(backbone, METHODS["sjdpp"], prompt, {"window": 6}).finish() for prompt in prompts]
    (record,) = auto.record(backbone, prompts, [("sjdpp", {"window": 6})])
    passes = sum(run.totals["forwards"] for run in runs)
    assert record.tokens == sum(len(run.tokens) for run in runs) / passes
    assert record.rows == 1 + sum(step.drafted for run in runs for step in run.steps) / passes and record.draft_passes == 0
    assert of_rows([record.row()])[0].tokens == pytest.approx(record.tokens, abs=1e-3)


def test_all_candidates_are_exact() -> None:
    for backbone in (tiny.pictogram(), tiny.lowpoly()):
        for name, knobs in auto.candidates(backbone):
            auto.begin(backbone, name, knobs, Prompt("red apple")).close()
    with pytest.raises(NotSupported, match="not exact"):
        auto.begin(tiny.pictogram(), "sjdpp_published", {}, Prompt("red apple"))


@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_a_shipped_card_has_the_tokens_of_its_weights(name: str) -> None:
    from engine.backbones import load

    card = json.loads((MODELS / name / "card.json").read_text())
    rows = of_card(load(name))
    assert len(rows) == len(card["expected"]["rows"]) >= 5 and {each.name for each in rows} >= {"ar", "sjdpp"}
    assert all(find(each.full_name) for each in rows)
    assert dataclasses.astuple(next(each for each in rows if each.name == "ar"))[2:] == (1.0, 1.0, 0.0)

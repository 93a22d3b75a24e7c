"""The budget of deviation: the arithmetic of the meter, and that no relaxed method exceeds it after any token."""

from __future__ import annotations

import math

import pytest
import torch

from engine.core import Knobs, Prompt
from engine.decoding.deviation import Meter, chain_verdicts
from engine.methods import METHODS, find
from engine.noise import Noise
from engine.run import Run, generate
from research.exactness import mutants
from research.exactness.mutation import apply_mutant
from research.exactness.toy import Toy

LENT = {"relax": "additive", "added_mass": 0.6, "neighbour_share": 0.4}
FLAT = {"rows": 1, "columns": 40, "vocabulary": 5, "sharpness": 1.0}
RELAXED: dict[str, dict[str, float | str]] = {  # every method with a relaxed rule that has a budget
    "eagle": LENT | {"children": "sampled", "nodes": 9, "depth": 3, "width": 3},
    "adt_tree_published": LENT | {"children": "deterministic", "nodes": 9},
    "medusa": LENT | {"children": "sampled", "nodes": 9, "depth": 3, "width": 3},
    "sjdpp": LENT | {"window": 6, "init": "random"},
    "gsd": {"window": 6, "half_width": 4, "probability_gap": 1.0, "code_distance": 2.0},
    "cross_regression": {"horizon": 4, "energy_tolerance": 4.0, "energy_smoothing": 0.3},
    "xspecmesh": {"accept_probability": 0.2, "judge": "warped"},
}


def make_meter(limit: float) -> Meter:
    """A meter at the beginning of a measured pass."""
    meter = Meter()
    meter.begin(Knobs({"allowed_deviation": limit}), Noise(0, 5), 0, 0)
    return meter


def run_of(name: str, seed: int = 0, **knobs: float | str) -> Run:
    """A finished run on a flat toy."""
    method, preset = find(name)
    return generate(Toy(**FLAT), method, Prompt(seed=seed), {**preset, **RELAXED[name], **knobs}).finish()


def test_the_share_by_hand() -> None:
    """Budget 0.1. A free token saves 0.1; the next may deviate by 0.2: of 0.4, half the rule. A token of 0.05 leaves 0.05."""
    meter = make_meter(0.1)
    meter.commit(1)
    meter.begin(Knobs({"allowed_deviation": 0.1}), Noise(0, 5), 1, 1)
    assert meter.share(0.4) == pytest.approx(0.5)
    assert meter.share(0.05) == 1.0
    assert meter.share(0.3) == pytest.approx(0.5)  # 0.05 were saved, plus 0.1 for this token
    assert meter.share(0.0, again=True) == 1.0
    assert meter.share(0.2, again=True) == pytest.approx(0)
    meter.commit(3)
    assert meter.total == pytest.approx(0.4) and meter.mean == pytest.approx(0.1) and meter.latest == pytest.approx(0.4 / 3)


def test_a_token_that_was_not_committed_costs_nothing() -> None:
    meter = make_meter(0.5)
    assert meter.share(0.4) == meter.share(0.5) == 1.0
    meter.commit(1)
    assert meter.total == 0.4 and meter.tokens == 1


def test_which_rule_decides() -> None:
    meter = make_meter(0.25)
    yes, no = torch.tensor([True, True, True]), torch.tensor([False, False, False])
    assert meter.decide(yes, no, lambda i: 0.5, torch.tensor([0.4, 0.6, 0.0])) == ([True, False], 1)
    accepted, relaxed = chain_verdicts([True, False], 1, yes)
    assert accepted.tolist() == [True, False, False] and relaxed.tolist() == [True, False, False]
    assert make_meter(0.25).decide(no, yes, lambda i: 0.5, torch.tensor([0.6, 0.6, 0.9])) == ([False, False, False], 3)


def test_every_relaxed_method_has_the_budget() -> None:
    relaxed = {name for name in METHODS if "allowed_deviation" in {knob.name for knob in METHODS[name].knobs}}
    assert relaxed == {find(name)[0].name for name in RELAXED}


@pytest.mark.parametrize("name", RELAXED)
def test_no_prefix_of_a_run_exceeds_the_budget(name: str) -> None:
    for seed in range(3):
        run = run_of(name, seed, allowed_deviation=0.04)
        deviations = [step.trace.deviation for step in run.steps]
        assert all(each.mean <= 0.04 + 1e-9 for each in deviations)
        total = sum(each.latest * len(step.tokens) for each, step in zip(deviations, run.steps, strict=True))
        assert total / len(run.tokens) == pytest.approx(deviations[-1].mean)  # every committed token counts
        assert deviations[-1].mean > 0.01  # the budget is used
        strengths = [each.strength for each in deviations if each.strength == each.strength]  # nan: no draft
        assert min(strengths) < max(strengths) <= 1
        assert not run.exact and "mean deviation of 0.04" in run.method.why(Knobs(run.live.read()))


@pytest.mark.parametrize("name", RELAXED)
def test_no_budget_is_the_exact_rule_and_a_great_one_the_relaxed(name: str) -> None:
    none, wide, free = (run_of(name, 1, allowed_deviation=allowed) for allowed in (0.0, 0.999, 1.0))
    assert none.exact and not wide.exact
    assert wide.tokens == free.tokens and [s.tokens for s in wide.steps] == [s.tokens for s in free.steps]
    assert wide.steps[-1].trace.deviation.mean > 0.04
    assert not math.isnan(wide.steps[-1].trace.deviation.latest)


@pytest.mark.parametrize("name", RELAXED)
def test_a_meter_that_ignores_the_budget_is_noticed(name: str) -> None:
    with apply_mutant("budget: ignored", mutants.MUTANTS["budget: ignored"]):
        run = run_of(name, 1, allowed_deviation=0.02)
    assert run.steps[-1].trace.deviation.mean > 0.03


def test_a_token_that_does_not_deviate_needs_no_allowance() -> None:
    meter = make_meter(0.1)
    assert meter.share(0.1) == meter.share(0.2) * 2 == 1.0
    meter.total += 1e-17  # rounding: a little more than allowed is spent
    assert meter.share(0.0, again=True) == 1.0 and meter.share(0.1, again=True) == 0.0

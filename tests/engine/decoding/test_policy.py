"""Match seed with rules that are not exact: refused at the start, and ended when a knob moves later."""

from __future__ import annotations

import pytest

from engine.core import Knobs, Prompt
from engine.errors import BadKnob
from engine.methods import METHODS
from engine.run import Run, generate
from research.exactness.toy import Toy

LENT = {"relax": "additive", "added_mass": 1.0, "neighbour_share": 0.5}
OWN = {"relax": "off"}
TREE = {"width": 2, "nodes": 6, "children": "sampled"}
CASES = {  # method, its knobs, knobs that relax its rule, knobs that make it exact again
    "eagle": ("eagle", TREE | {"depth": 3}, LENT, OWN),
    "adt_tree": ("adt_tree", TREE, LENT, OWN),
    "sjdpp": ("sjdpp", {"window": 5}, LENT, OWN),
    "sjdpp drawn anew": ("sjdpp", {"window": 5, "refresh": "redraw"}, LENT, OWN),
    "gsd": ("gsd", {"window": 5, "half_width": 0}, {"half_width": 4, "probability_gap": 1.0, "code_distance": 2.0}, {"half_width": 0}),
    "xspecmesh": ("xspecmesh", {"accept": "residual"}, {"accept": "threshold"}, {"accept": "residual"}),
    "mulo": ("mulo", {"least_mass": 1}, {"least_mass": 0}, {"least_mass": 1}),
    "zipar": ("zipar", {"window": 256}, {"window": 1}, {"window": 256}),
}
MATCH = {"verify": "match seed"}


def begin(toy: Toy, case: str, seed: int, more: dict[str, float | str]) -> Run:
    """A run of a case that matches the seed."""
    name, knobs, *_ = CASES[case]
    return generate(toy, METHODS[name], Prompt(seed=seed), knobs | MATCH | more)


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_would_begin_without_an_exact_rule_is_refused(case: str) -> None:
    with pytest.raises(BadKnob, match=r"^match seed needs an exact rule; .* is not\. Set .*, or verify=residual\.$"):
        next(begin(Toy(rows=4, columns=4), case, 0, CASES[case][2]))


@pytest.mark.parametrize("case", CASES)
def test_a_rule_that_is_relaxed_on_the_way_acts_and_ends_the_match(case: str) -> None:
    toy, same = Toy(rows=4, columns=4), 0
    for seed in range(8):
        plain = generate(toy, METHODS["ar"], Prompt(seed=seed)).finish()
        run = begin(toy, case, seed, {})
        next(run)
        assert run.exact and run.in_order == plain.in_order[: len(run.tokens)]
        run.set(**CASES[case][2])
        step = next(run)
        assert not step.exact and "So the seed is not matched." in run.method.why(Knobs(step.knobs))
        run.finish()
        assert len(run.tokens) == 16 and not run.exact
        same += run.in_order == plain.in_order
    assert same < 8


@pytest.mark.parametrize("case", CASES)
def test_a_rule_that_becomes_exact_again_matches_the_seed_again(case: str) -> None:
    toy = Toy(rows=4, columns=4)
    run = begin(toy, case, 3, {})
    next(run)
    run.set(**CASES[case][2])
    next(run)
    run.set(**CASES[case][3])
    later = list(run)
    assert sorted(run.positions) == list(range(16)) and not run.exact
    assert all(step.exact for step in later)


@pytest.mark.parametrize("refresh", ["reuse published", "reuse mixture", "coupled maximal"])
@pytest.mark.parametrize("verify", ["residual", "match seed"])
def test_a_refresh_that_looks_at_verdicts_does_not_end_a_run_whose_rule_is_relaxed(refresh: str, verify: str) -> None:
    run = generate(Toy(rows=4, columns=4), METHODS["sjdpp"], Prompt(seed=1), {"window": 5, "refresh": refresh, "verify": verify})
    next(run)
    run.set(**LENT)
    assert not next(run).exact
    assert len(run.finish().tokens) == 16

"""The columns of a `bench` row other than time: the fate of the drafts, and the probability of the pictures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.run import Run, generate
from engine.trace import Trace
from research.bench.plan import ImageBench
from research.bench.speed import acceptance_by_place, bench, drafting, plausibility
from research.exactness.toy import Toy
from tests.engine.backbones import tiny


def run(name: str, seed: int = 0, **knobs: float | str) -> Run:
    """One finished run on the toy."""
    return generate(Toy(rows=4, columns=4), METHODS[name], Prompt(seed=seed), knobs).finish()


def test_plain_decoding_drafts_nothing() -> None:
    assert drafting([run("ar")]) == {}


def test_a_tree_tells_its_nodes_and_depth_and_a_relaxed_rule_its_deviation() -> None:
    tree = run("eagle", nodes=5, depth=2, width=2)
    stats = drafting([tree])
    drafted = [s for s in tree.steps if s.drafted]
    assert stats["accepted_a_pass"] == pytest.approx(sum(len(s.tokens) - 1 for s in drafted) / len(drafted), abs=1.1 / len(drafted))
    assert 0 < stats["nodes"] <= 5 and 0 < stats["depth"] <= 2 and "mean_deviation" not in stats
    relaxed = drafting([run("gsd", seed, half_width=2, probability_gap=1, code_distance=2, allowed_deviation=0.9) for seed in range(3)])
    assert relaxed["mean_deviation"] > 0 and "nodes" not in relaxed


@pytest.mark.parametrize("name,knobs", [("cross_regression", {"horizon": 3}), ("eagle", {"nodes": 3, "depth": 3, "width": 1})])
def test_acceptance_is_counted_by_place(name: str, knobs: dict[str, float]) -> None:
    """Only reached drafts count: a pass that refused the second of three gives yes, no, and nothing."""
    runs = [run(name, seed, **knobs) for seed in range(4)]
    steps = [s for r in runs for s in r.steps if s.drafted]
    shares = acceptance_by_place(steps)
    assert len(shares) == 3 and drafting(runs)["accepted_by_place"] == shares
    first = [s.trace.accepted[0] for s in steps]
    assert shares[0] == pytest.approx(sum(first) / len(first), abs=1e-3)
    reached = [s for s in steps if s.trace.accepted[0] and s.drafted > 1 and len(s.tokens) > 1]
    assert shares[1] == pytest.approx(sum(s.trace.accepted[1] for s in reached) / len(reached), abs=1e-3)


def test_a_method_without_an_order_has_no_places() -> None:
    ordered = run("sjd", window=4).steps
    assert acceptance_by_place(ordered) and not acceptance_by_place([])
    scattered = replace(ordered[0], tokens=[1, 2, 3], drafted=3, trace=Trace([True, False, True]))
    assert not acceptance_by_place([*ordered, scattered])


def test_impossible_tokens_are_counted_and_do_not_make_a_mean_infinite() -> None:
    backbone = tiny.pictogram()
    narrow = Prompt("red apple", seed=1, sampling=Sampling(top_k=2, guidance=2.0))
    wide = Prompt("red apple", seed=1, sampling=Sampling(guidance=2.0))
    inside, outside = ([[generate(backbone, METHODS["ar"], prompt).finish()]] for prompt in (narrow, wide))
    assert plausibility(backbone, [narrow], inside)["impossible"] == 0
    likely = plausibility(backbone, [narrow], inside)["log_probability"][0]
    stats = plausibility(backbone, [narrow], outside)
    assert 0.05 < stats["impossible"] <= 1 and -20 < stats["log_probability"][0] < likely


def test_rows_at_a_value_of_a_setting_are_over_plain_decoding_at_that_value(registered_toy: None) -> None:
    """With `match seed` the tokens equal plain decoding's at the same temperature, and at no other."""
    sweep = (("temperature", ("0", "1")),)
    rows = bench(ImageBench(backbone="toy", methods=("jacobi",), knobs={"verify": "match seed"}, prompts=("a", "b"), sweep=sweep))
    names = ("ar in float32", "ar", "jacobi")
    assert [row["method"] for row in rows] == [f"{name} temperature={value}" for value in "01" for name in names]
    assert [row["temperature"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert [row["same_tokens_as_plain"] for row in rows] == [2] * 6
    assert rows[0]["speedup"] == rows[3]["speedup"] == [1.0, 1.0, 1.0]

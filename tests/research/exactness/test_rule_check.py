"""`check`: right rules of every kind of draft pass, wrong ones fail with the position and the sequences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from engine import rules
from engine.core import Prompt
from engine.diagnostics import most_accepted
from engine.errors import BadPrompt
from engine.methods import METHODS
from engine.run import generate
from research.exactness import check, example_rules, rule_check
from research.exactness.ceiling import accepted_drafts, expected_drafts, measure_method
from research.exactness.example_rules import block, chain, chain_with_end, equality, siblings, tree
from research.exactness.mutation import apply_mutant, substitute
from research.exactness.rule_check import Proposal, Target, best_chain, drawn_chain, drawn_siblings, drawn_tree, one_by_one
from research.exactness.toy import Toy

DRAWS = 4000
SHAPE: dict[str, Any] = {"rows": 1, "columns": 5, "sharpness": 1.2}
DRAFTER = Target(Toy(seed=3, **SHAPE))
NO_RESIDUAL = substitute(lambda p, q: p, (example_rules, "residual"))
RIGHT = {
    "chain": ({}, drawn_chain(DRAFTER, 2), chain),
    "end": ({"end": True}, drawn_chain(DRAFTER, 2), partial(chain_with_end, 2)),
    "top-k": ({"top_k": 2}, drawn_chain(DRAFTER, 2), chain),
    "top-p": ({"top_p": 0.7}, drawn_chain(DRAFTER, 2), chain),
    "grammar": ({"grammar": True}, drawn_chain(DRAFTER, 2), chain),
    "chosen": ({}, best_chain(DRAFTER, 2), equality),
    "candidates": ({}, drawn_siblings(DRAFTER, 2), one_by_one(siblings)),
    "tree": ({}, drawn_tree(DRAFTER, 2), one_by_one(tree)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_pass_and_fail_without_their_residual(name: str) -> None:
    settings, propose, verify = RIGHT[name]
    target = Target(Toy(**SHAPE, **settings))
    comparison = check(propose, verify, target, DRAWS)
    assert comparison.verdict == "exact" and comparison.position is None and comparison.detects < 0.07, comparison
    if verify is not equality:  # it has none
        with apply_mutant("residual is p", NO_RESIDUAL):
            assert check(propose, verify, target, DRAWS).verdict == "not exact"


def test_a_wrong_rule_is_described() -> None:
    """A best guess verified as a draw, as in the Gemma 4 path of transformers; and tokens after the end."""
    target = Target(Toy(**SHAPE))
    comparison = check(best_chain(target, 2, show=True), chain, target, DRAWS)
    best = [int(target.after(torch.tensor([[]], dtype=torch.int64)).argmax())]
    assert comparison.verdict == "not exact" and comparison.position == 0
    assert comparison.sentence.startswith("Not exact, from position 0 on") and f"Too frequent: {best[0]} " in comparison.sentence
    assert check(drawn_chain(DRAFTER, 2), chain, Target(Toy(end=True, **SHAPE)), DRAWS).position == 1


def test_block_verification_is_exact_unless_it_ends_with_the_rule_of_single_tokens() -> None:
    target = Target(Toy(**SHAPE))
    assert check(drawn_chain(DRAFTER, 2), block, target, 20_000).verdict == "exact"
    with apply_mutant("token rule inside the block", substitute(lambda p, q, reach: (p - q).clamp(min=0), (rules, "scaled_residual"))):
        assert check(drawn_chain(DRAFTER, 2), block, target, 20_000).verdict == "not exact"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_rule_accepts_more_than_the_ceiling(count: int) -> None:
    """A block of one draft is speculative sampling, which is then the best; later, a block is better than single tokens."""
    mean = accepted_drafts(Target(Toy(**SHAPE)), DRAFTER, count)
    if count == 1:
        assert mean.tokens == pytest.approx(mean.ceiling) and mean.block == pytest.approx(mean.ceiling)
    else:
        assert mean.tokens < mean.block < mean.ceiling


def test_drafts_of_runs_estimate_what_is_enumerated() -> None:
    target = Target(Toy(**SHAPE))
    prefixes = torch.empty(4000, 0, dtype=torch.int64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        proposal = drawn_chain(DRAFTER, 3)(prefixes)
    p = torch.stack([target.after(proposal.tokens[:, :k]) for k in range(4)], 1)
    exact = accepted_drafts(target, DRAFTER, 3)
    assert expected_drafts(proposal.tokens, proposal.q, p).mean(1).tolist() == pytest.approx(
        [exact.tokens, exact.block, exact.ceiling], abs=0.06
    )


@pytest.mark.parametrize(("name", "knobs"), [("sjd", {"window": 4}), ("sjdpp", {"window": 4}), ("surface", {})])
def test_runs_accept_what_their_distributions_predict_and_no_more_than_the_ceiling(name: str, knobs: dict[str, Any]) -> None:
    prompts = [Prompt(seed=seed) for seed in range(150)]
    row = measure_method(Toy(), prompts, name, knobs)
    assert row.accepted == pytest.approx(row.expected.tokens, abs=0.1)
    if name == "surface":  # chosen drafts: nothing is better than one by one
        assert row.expected.tokens == pytest.approx(row.expected.ceiling)
    else:
        assert row.expected.tokens < row.expected.block < row.expected.ceiling < row.drafts
    steps = [s for prompt in prompts for s in generate(Toy(), METHODS[name], prompt, knobs | {"verify": "residual"}) if s.drafted]
    assert np.mean([most_accepted(step) for step in steps]) == pytest.approx(row.expected.ceiling, abs=0.1)


def test_there_is_no_ceiling_where_the_seed_is_matched() -> None:
    steps = list(generate(Toy(), METHODS["surface"], Prompt(), {"verify": "match seed"}))
    assert all(most_accepted(step) is None for step in steps if step.drafted)


def test_a_rule_must_commit_a_token() -> None:
    def nothing(proposal: Proposal, p: torch.Tensor) -> torch.Tensor:
        return torch.full((len(p), 1), rule_check.NONE)

    with pytest.raises(BadPrompt, match="no token"):
        check(drawn_chain(DRAFTER, 2), nothing, Target(Toy(**SHAPE)), 10)

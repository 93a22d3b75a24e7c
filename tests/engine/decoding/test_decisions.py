"""The records of what decided a token, against the distributions that the method itself used in the pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.core import Backbone, Draft, Prompt, Rows, Sequence
from engine.decoding import trees, verdict
from engine.decoding.decisions import CANDIDATES, decisions
from engine.diagnostics import DECISIONS, arrays, per_token, replay
from engine.methods import find
from engine.run import Run, generate
from engine.trace import DecisionTrace
from research.exactness.toy import Toy
from tests.engine.backbones import tiny

BY_COIN = {"verify": "residual"}
CASES = {  # method, knobs, True if each draft has a coin
    "draws": ("sjd", {"window": 6, **BY_COIN}, True),
    "kept draws": ("sjdpp", {"window": 6, "refresh": "coupled maximal", **BY_COIN}, True),
    "chosen drafts": ("lookup", BY_COIN, True),
    "same seed": ("sjdpp", {"window": 6, "verify": "match seed"}, False),
    "block": ("sjd", {"window": 6, "verify": "block"}, False),
}


def recorded(backbone: Backbone, name: str, knobs: dict[str, Any]) -> tuple[Run, list[tuple[Rows, Draft]]]:
    """A finished run, and the rows and the draft of each of its passes."""
    passes: list[tuple[Rows, Draft]] = []

    def watch(sequence: Sequence) -> None:
        forward = sequence.forward

        def watched(draft: Draft) -> Rows:
            rows = forward(draft)
            passes.append((rows, Draft(draft.tokens.clone(), q=draft.probs())))
            return rows

        sequence.forward = watched

    method, values = find(name)
    run = generate(backbone, method, Prompt("red apple", seed=4), values | knobs)
    run.began = watch
    return run.finish(), passes


def check(run: Run, passes: list[tuple[Rows, Draft]], by_coin: bool) -> None:
    """Every recorded number is that of the pass; what the lens derives from them is what happened."""
    assert len(run.steps) == len(passes)
    carried = None  # under match seed: the rows from which the last pass redrew
    for step, (rows, draft) in zip(run.steps, passes, strict=True):
        record, k = DecisionTrace(*map(torch.from_numpy, vars(step.trace.decisions).values())), len(step.tokens)
        p, m = rows.p[:k], min(k, len(draft.tokens))
        assert torch.equal(record.p, p.gather(1, record.tokens.long()).float())
        assert all(token in row for token, row in zip(step.tokens, record.tokens.tolist(), strict=True))
        assert record.draft.tolist() == [*draft.tokens[:m].tolist(), *[-1] * (k - m)]
        q = (p[:0] if carried is None else carried)[:m] if draft.q is None else draft.q[:m]
        carried, m = rows.p[k:], len(q)
        assert torch.isnan(record.q[m:]).all() and torch.isnan(record.mass[m:]).all()
        assert torch.equal(record.q[:m], q.gather(1, record.tokens[:m].long()).float())
        assert torch.allclose(record.mass[:m], (1 - torch.minimum(p[:m], q).sum(-1)).float(), atol=1e-5)
        for row, most, rest in zip(record.tokens.tolist(), torch.cat([torch.maximum(p[:m], q), p[m:]]), record.draft.tolist(), strict=True):
            least = sorted(most[[token for token in row if token != rest]].tolist())[int(len(most) > CANDIDATES)]
            assert (most > least + 1e-6).sum() <= CANDIDATES  # none that is more probable was left out
        if by_coin:
            accepted = per_token(step, "accepted")[:m] == 1
            at = record.tokens[:m] == record.draft[:m, None]
            assert accepted.tolist() == (record.coin[:m] * record.q[:m][at] < record.p[:m][at]).tolist()
        else:
            assert torch.isnan(record.coin).all()


@pytest.mark.parametrize("case", CASES)
def test_the_records_are_the_distributions_of_the_pass(case: str) -> None:
    name, knobs, by_coin = CASES[case]
    check(*recorded(tiny.pictogram(), name, knobs), by_coin)
    check(*recorded(Toy(), name, knobs), by_coin)


def wrong_row(p: torch.Tensor, *rest: Any) -> Any:
    """The mutant: the distribution of the place after."""
    return decisions(p.roll(-1, 0), *rest)


def own_draws(p: torch.Tensor, last: Any, drafts: Any = None, q: Any = None, coins: Any = None) -> Any:
    """The mutant: the guess is recorded with the model's distribution."""
    return decisions(p, last, drafts, None if q is None else p[: len(q)], coins)


def other_coins(p: torch.Tensor, last: Any, drafts: Any = None, q: Any = None, coins: Any = None) -> Any:
    """The mutant: the coins of the first place."""
    return decisions(p, last, drafts, q, None if coins is None else coins.flip(0))


@pytest.mark.parametrize("mutant", [wrong_row, own_draws, other_coins])
def test_a_wrong_record_is_seen(monkeypatch: pytest.MonkeyPatch, mutant: Callable[..., Any]) -> None:
    monkeypatch.setattr(verdict, "decisions", mutant)
    with pytest.raises(AssertionError):
        check(*recorded(tiny.pictogram(), *CASES["draws"][:2]), True)


@pytest.mark.parametrize(("module", "wrong"), [(None, False), (trees, True)])
def test_a_tree_records_the_models_row_at_every_token(monkeypatch: pytest.MonkeyPatch, module: Any, wrong: bool) -> None:
    """The probability of an accepted node in the record is that of the tree's own trace."""
    if module:
        monkeypatch.setattr(module, "decisions", wrong_row)
    run, _ = recorded(Toy(rows=6, columns=6), "eagle", {"depth": 3, "width": 3, "nodes": 8})
    pairs = [
        (step.trace.decisions.p[i][step.trace.decisions.tokens[i] == step.tokens[i]].item(), step.trace.tree.p[node])
        for step in run.steps
        for i, node in enumerate(step.trace.tree.path[: len(step.tokens)])
    ]
    assert len(pairs) > 10 and wrong != np.allclose(*np.array(pairs).T, atol=1e-6)


@pytest.mark.parametrize("case", ["draws", "block"])
def test_a_saved_trace_has_the_same_records(case: str) -> None:
    run, _ = recorded(tiny.pictogram(), *CASES[case][:2])
    trace = arrays(run.steps)
    assert trace["decision_p"].shape == (len(run.tokens), CANDIDATES) and trace["decision_coin"].shape == (len(run.tokens),)
    for step, again in zip(run.steps, replay(trace), strict=True):
        for name in DECISIONS:
            own, read = (np.asarray(getattr(each.trace.decisions, name)) for each in (step, again))
            assert np.array_equal(own, read, equal_nan=True)

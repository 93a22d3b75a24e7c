"""Runs that go on after a prefix of tokens: exact for every method that can, by distribution on the toy; refused for others."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from engine.core import Prompt
from engine.errors import BadPrompt, NotSupported
from engine.methods import METHODS
from engine.run import Run, generate
from research.exactness.comparison import Z_ACCEPTED, Z_DETECTED
from research.exactness.power import Distribution, statistic
from research.exactness.toy import Toy

PREFIX = (1, 0, 2)
RUNS = 400
FORKING = [name for name, method in METHODS.items() if method.forks]


@cache
def toy() -> Toy:
    return Toy(seed=3)


@cache
def after_the_prefix() -> Distribution:
    """The distribution of whole sequences, given that they begin with PREFIX."""
    own = {tokens: p for tokens, p in toy().enumerate_distribution().items() if tokens[: len(PREFIX)] == PREFIX}
    return {tokens: p / sum(own.values()) for tokens, p in own.items()}


def z_of(name: str) -> float:
    """The statistic of RUNS runs against that distribution."""
    method = METHODS[name]
    runs = (generate(toy(), method, Prompt(seed=seed, prefix=PREFIX), method.common).finish() for seed in range(RUNS))
    return statistic(Counter(tuple(run.in_order) for run in runs), after_the_prefix(), RUNS)["z"]


@pytest.mark.parametrize("name", FORKING)
def test_a_method_draws_what_follows_a_prefix(name: str) -> None:
    assert abs(z_of(name)) < Z_ACCEPTED


def test_a_prefix_that_the_model_does_not_read_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Run._begin

    def begin_with_another(run: Run) -> None:
        begin(run)
        commit = run.sequence.commit

        def commit_once(nodes: list[int], token: int) -> list[int]:
            run.sequence.commit = commit
            return commit(nodes, (token + 1) % 3)

        run.sequence.commit = commit_once

    monkeypatch.setattr(Run, "_begin", begin_with_another)
    assert z_of("ar") > Z_DETECTED


def test_a_prefix_is_one_step_that_counts_no_pass() -> None:
    run = generate(toy(), METHODS["sjdpp"], Prompt(seed=1, prefix=PREFIX), {"window": 2}).finish()
    first, *others = run.steps
    assert (first.tokens, first.positions, first.forwards) == (list(PREFIX), [0, 1, 2], 0) and others
    assert run.tokens[:3] == list(PREFIX) and run.totals["tokens"] == 6
    assert run.totals["step_compression"] == 3 / run.totals["forwards"]


@pytest.mark.parametrize(
    ("method", "prefix", "settings", "error", "sentence"),
    [
        *((name, PREFIX, {}, NotSupported, f"{name} cannot start after a prefix") for name in METHODS if name not in FORKING),
        ("ar", (0, 1, 2, 0, 1, 2), {}, BadPrompt, "leaves none to draw: there are 6"),
        ("ar", (0, 3), {}, BadPrompt, "3 is not a token that others can follow"),
        ("ar", (0, 2, 1), {"end": True}, BadPrompt, "2 is not a token that others can follow"),
        ("ar", (0, 1, 1), {"grammar": True}, BadPrompt, "The token 1 may not stand at position 2"),
    ],
)
def test_what_is_refused(method: str, prefix: tuple[int, ...], settings: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        generate(Toy(**settings), METHODS[method], Prompt(prefix=prefix)).finish()

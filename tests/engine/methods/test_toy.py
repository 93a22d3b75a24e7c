"""The toy itself: its cache is real, its distribution is valid, its forced row ends are applied."""

from __future__ import annotations

import pytest
import torch

from engine.core import Draft, Prompt
from research.exactness.toy import Toy


def test_the_enumerated_law_sums_to_one() -> None:
    law = Toy().enumerate_law()
    assert len(law) == 3**6
    assert sum(law.values()) == pytest.approx(1)


def test_sequences_with_an_end_have_many_lengths() -> None:
    law = Toy(end=True).enumerate_law()
    assert {len(s) for s in law} == set(range(1, 7))
    assert all(2 not in s[:-1] for s in law)
    assert sum(law.values()) == pytest.approx(1)


def test_a_wrong_cache_changes_the_law() -> None:
    toy = Toy()
    sequence = toy.start(Prompt())
    for token in (0, 1):
        sequence.forward(Draft(torch.empty(0, dtype=torch.int64)))
        sequence.commit([], token)
    right = sequence.forward(Draft(torch.empty(0, dtype=torch.int64))).p
    sequence._cache = sequence._cache[:-1]
    wrong = sequence.forward(Draft(torch.empty(0, dtype=torch.int64))).p
    assert (right - wrong).abs().max() > 1e-3


def test_row_ends_are_in_the_cache_but_are_no_tokens() -> None:
    sequence = Toy().start(Prompt())
    for token in (0, 1, 2, 0):
        sequence.forward(Draft(torch.empty(0, dtype=torch.int64)))
        sequence.commit([], token)
    assert sequence.length == 4
    assert len(sequence._cache) == 1 + 3 + 1  # start, three tokens, one row end; the fourth token is pending


def test_guidance_matters() -> None:
    strong, weak = Toy(guidance=3.0).enumerate_law(), Toy(guidance=1.0).enumerate_law()
    assert 0.5 * sum(abs(strong[s] - weak[s]) for s in weak) > 0.1

"""The toy itself: its distribution is valid, its forced row ends are in the cache. Mutants of its cache and guidance are in `verify`."""

from __future__ import annotations

import pytest
import torch

from engine.core import Draft, Prompt
from research.exactness.toy import Toy


@pytest.mark.parametrize(("end", "lengths"), [(False, {6}), (True, set(range(1, 7)))])
def test_the_enumerated_distribution_sums_to_one(end: bool, lengths: set[int]) -> None:
    distribution = Toy(end=end).enumerate_distribution()
    assert sum(distribution.values()) == pytest.approx(1) and {len(s) for s in distribution} == lengths
    assert all(2 not in s[:-1] for s in distribution) if end else len(distribution) == 3**6


def test_row_ends_are_in_the_cache_but_are_no_tokens() -> None:
    sequence = Toy().start(Prompt())
    for token in (0, 1, 2, 0):
        sequence.forward(Draft(torch.empty(0, dtype=torch.int64)))
        sequence.commit([], token)
    assert sequence.length == 4
    assert len(sequence._cache) == 1 + 3 + 1  # start, three tokens, one row end; the fourth token is pending

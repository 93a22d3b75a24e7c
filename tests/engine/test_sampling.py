"""From logits to distributions and from distributions to tokens. `verify` tests that draws follow a distribution."""

from __future__ import annotations

import math

import pytest
import torch

from engine import sampling
from engine.core import Sampling
from engine.dispatch.choice import VARIABLE
from engine.noise import DRAW, Noise
from engine.sampling import best_of, draw, draw_gumbel, entropy, guide, residual, warp

PROBS = torch.tensor([0.4, 0.05, 0.3, 0.0, 0.25])


def probs(logits: list[float], allowed: list[bool] | None = None, **sampling: float) -> list[float]:
    """The distribution of one row of guided logits."""
    mask = None if allowed is None else torch.tensor(allowed)
    return torch.softmax(warp(torch.tensor([logits]), Sampling(**sampling), mask), -1)[0].tolist()


# --- warp -------------------------------------------------------------------------------------------------------------


def test_guidance() -> None:
    pair = torch.tensor([[[2.0, 0.0]], [[1.0, 1.0]]])  # conditional, unconditional
    assert guide(pair, 3.0).tolist() == [[4.0, -2.0]]
    assert guide(pair, 1.0).tolist() == [[2.0, 0.0]]
    assert guide(pair, 0.0).tolist() == [[1.0, 1.0]]
    assert guide(pair[:1], 3.0).tolist() == [[2.0, 0.0]]


def test_without_settings_nothing_changes() -> None:
    logits = torch.randn(3, 7)
    assert torch.equal(warp(logits, Sampling()), logits)


def test_temperature_zero_takes_the_first_of_the_best() -> None:
    assert probs([1.0, 3.0, 3.0, 2.0], temperature=0.0) == [0, 1, 0, 0]
    assert probs([1.0, 3.0, 3.0, 2.0], [True, False, True, True], temperature=0.0) == [0, 0, 1, 0]


def test_temperature_divides_the_logits() -> None:
    assert probs([0.0, math.log(3) / 2], temperature=0.5) == pytest.approx([0.25, 0.75])


def test_top_k_keeps_all_ties_at_the_last_place() -> None:
    assert [p > 0 for p in probs([5.0, 3.0, 3.0, 1.0], top_k=2)] == [True, True, True, False]
    assert [p > 0 for p in probs([5.0, 3.0, 2.0, 1.0], top_k=2)] == [True, True, False, False]


@pytest.mark.parametrize("k", [0, 4, 9])
def test_top_k_of_nothing_or_all_is_off(k: int) -> None:
    assert min(probs([5.0, 3.0, 2.0, 1.0], top_k=k)) > 0


@pytest.mark.parametrize(("mass", "count"), [(0.0, 1), (1e-9, 1), (0.3, 1), (0.5, 2), (0.79, 2), (0.81, 3), (0.999, 4), (1.0, 4)])
def test_top_p_keeps_the_smallest_set_that_reaches_the_mass(mass: float, count: int) -> None:
    logits = torch.tensor([0.1, 0.4, 0.1, 0.4]).log() + torch.tensor([0.02, 0.02, 0.0, 0.0])  # 0.1, 0.4 slightly favoured
    warped = probs(logits.tolist(), top_p=mass)
    assert sum(p > 0 for p in warped) == count
    assert sum(warped) == pytest.approx(1)
    assert warped[1] == max(warped)  # the best one stays


@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0, 20.0])
def test_top_p_is_the_same_however_many_scores_it_orders(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flat distributions need all scores in order, steep ones a few; a batch may contain both."""
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(1)) * torch.tensor([spread, 8.0] * 3)[:, None]
    warped = warp(logits, Sampling(top_p=0.9))
    for few in (1, 8, 500, 1000):
        monkeypatch.setattr(sampling, "FEW", few)
        assert torch.equal(warp(logits, Sampling(top_p=0.9)), warped)
    nucleus = warped.softmax(-1).gt(0)
    outside = logits.softmax(-1).masked_fill(nucleus, 0).sum(-1)
    assert (outside <= 0.1 + 1e-6).all() and nucleus[1::2].sum(-1).max() < 100


def test_top_p_counts_what_top_k_left() -> None:
    """0.4 of 0.7 is more than half: one token, where 0.4 of 1 would need two."""
    logits = torch.tensor([0.4, 0.3, 0.3 - 1e-3, 1e-3]).log().tolist()
    assert sum(p > 0 for p in probs(logits, top_k=2, top_p=0.5)) == 1
    assert sum(p > 0 for p in probs(logits, top_p=0.5)) == 2


def test_a_forbidden_token_is_impossible_and_does_not_count() -> None:
    assert probs([9.0, 2.0, 1.0, 0.0], [False, True, True, True], top_k=2)[0] == 0
    assert probs([9.0, 2.0, 1.0, 0.0], [False, True, True, True], top_k=2)[2] > 0


def test_each_row_has_its_own_grammar() -> None:
    allowed = torch.tensor([[True, False], [False, True]])
    assert torch.softmax(warp(torch.zeros(2, 2), Sampling(), allowed), -1).tolist() == [[1, 0], [0, 1]]


def test_warp_leaves_its_input_alone() -> None:
    logits = torch.randn(2, 9)
    before = logits.clone()
    warp(logits, Sampling(0.7, 3, 0.9), torch.ones(9, dtype=torch.bool))
    assert torch.equal(logits, before)


# --- draws ------------------------------------------------------------------------------------------------------------


def test_draw_inverts_the_cumulated_distribution() -> None:
    u = torch.tensor([1e-9, 0.39, 0.41, 0.44, 0.46, 0.74, 0.76, 1 - 1e-9], dtype=torch.float64)
    assert draw(PROBS.expand(len(u), -1), u).tolist() == [0, 0, 1, 1, 2, 2, 4, 4]


def test_draw_never_takes_an_impossible_token() -> None:
    u = torch.tensor([2.0**-53, 1 - 2.0**-53], dtype=torch.float64)
    assert draw(torch.tensor([[0.0, 0.5, 0.5, 0.0]] * 2), u).tolist() == [1, 2]


def test_draw_needs_no_normalised_distribution() -> None:
    u = Noise(1, 5).uniform(DRAW, 0, 500, 0)
    assert torch.equal(draw(PROBS.expand(500, -1), u), draw(3e-5 * PROBS.expand(500, -1), u))


@pytest.mark.parametrize("vocabulary", [1, 7, 63, 1000, 5121])
@pytest.mark.parametrize("share", [1.0, 0.02])
def test_draws_are_those_of_the_plain_sums(vocabulary: int, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens with and without a compiler: for few or all possible tokens, at the ends, and for empty rows."""
    random = torch.Generator().manual_seed(vocabulary)
    p = torch.rand(9, vocabulary, generator=random) * (torch.rand(9, vocabulary, generator=random) < share)
    p[8] = 0
    u = torch.rand(9, generator=random, dtype=torch.float64)
    u[:2] = torch.tensor([2.0**-53, 1 - 2.0**-53])
    sums = p.double().cumsum(-1)
    expected = torch.searchsorted(sums, u[:, None] * sums[:, -1:]).squeeze(1).clamp(max=vocabulary - 1)
    of_one = torch.searchsorted(sums[0], u * sums[0, -1]).clamp(max=vocabulary - 1)
    wider = torch.cat([p, p], 1)[:, :vocabulary]  # rows that do not follow one another
    for kernels in ("", "reference"):
        monkeypatch.setenv(VARIABLE, kernels)
        assert torch.equal(draw(p, u), expected) and torch.equal(draw(wider, u), expected) and torch.equal(draw(p[:1], u), of_one)


def test_gumbel_draws_do_not_need_normalised_scores() -> None:
    noise = Noise(5, 5).gumbel(0, 200)
    assert torch.equal(draw_gumbel(PROBS.log().expand(200, -1), noise), draw_gumbel(PROBS.log().expand(200, -1) + 3, noise))


def test_a_certain_token_beats_any_noise() -> None:
    scores = warp(torch.randn(50, 5), Sampling(temperature=0.0))
    assert torch.equal(draw_gumbel(scores, Noise(6, 5).gumbel(0, 50)), scores.argmax(-1))


# --- residual, entropy ------------------------------------------------------------------------------------------------


def test_residual_is_what_q_lacks() -> None:
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.5, 0.3]])
    torch.testing.assert_close(residual(p, q), torch.tensor([[0.3, 0.0, 0.0]]))


def test_an_empty_residual_falls_back_to_the_distribution() -> None:
    """Row by row, and never to a uniform distribution."""
    p = torch.tensor([[0.7, 0.3, 0.0], [0.5, 0.5, 0.0]])
    found = residual(p, torch.stack([p[0], torch.tensor([1.0, 0.0, 0.0])]))
    torch.testing.assert_close(found, torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.5, 0.0]]))


def test_residual_leaves_its_input_alone() -> None:
    p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]])
    residual(p, q)
    assert p.tolist() == [[0.5, 0.5]] and q.tolist() == [[1.0, 0.0]]


def test_the_best_of_equals_is_the_first() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0], [-torch.inf, -torch.inf, -torch.inf], [0.0, -1.0, 2.0]])
    assert best_of(scores).tolist() == best_of(scores.bfloat16()).tolist() == [1, 0, 2]


def test_entropy() -> None:
    p = torch.tensor([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.5, 0, 0]])
    assert entropy(p).tolist() == pytest.approx([math.log(4), 0, math.log(2)])

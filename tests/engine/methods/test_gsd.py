"""Grouped speculative decoding: groups by hand, its exact limit, its meter. Its distribution is tested in test_exactness.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Knobs, Prompt
from engine.methods import METHODS, gsd
from engine.noise import Noise
from engine.run import generate
from research.exactness import closed_forms
from research.exactness.toy import Toy

P = torch.tensor([[0.30, 0.05, 0.25, 0.10, 0.30]], dtype=torch.float64)  # from the least probable on: 1 3 2 0 4
ROUND = F.normalize(torch.tensor([[1, 0], [1, 0.1], [1, 0.2], [-1, 0], [1, -0.1]], dtype=torch.float64), dim=-1)  # 3 resembles no code


def members(token: int, half: int, gap: float = 2.0, far: float = 2.1) -> list[int]:
    """The group of a token, sorted."""
    order = P.argsort(dim=-1, stable=True)
    group, chosen = gsd.group(P, order, (order[0] == token).nonzero()[:, 0], ROUND, half, gap, far)
    assert group[0, 0] == token and group.shape == chosen.shape == (1, max(1, 2 * half))
    return sorted(group[chosen].tolist())


def test_groups_by_hand() -> None:
    assert members(2, 0) == [2]
    assert members(2, 1) == [2, 3]  # one rank below, none above
    assert members(2, 2) == [0, 1, 2, 3]
    assert members(1, 2) == [1, 3]  # the ranking is cut at its ends
    assert members(4, 2) == [0, 2, 4]
    assert members(2, 2, gap=0.15) == [0, 2]  # 3 is 0.15 away, which is not less
    assert members(2, 3, far=0.5) == [0, 1, 2, 4]


@pytest.mark.parametrize("alone", [{"half_width": 0}, {"probability_gap": 0.0}, {"code_distance": 0.0}, {"allowed_deviation": 0.0}])
def test_groups_of_one_are_speculative_jacobi(alone: dict[str, float]) -> None:
    for seed in range(5):
        toy = Toy(5, 3, 4, sharpness=1.0)
        expected = generate(toy, METHODS["sjd"], Prompt(seed=seed), {"window": 5}).finish()
        run = generate(toy, METHODS["gsd"], Prompt(seed=seed), {"window": 5, **alone}).finish()
        assert [s.tokens for s in run.steps] == [s.tokens for s in expected.steps] and run.exact
        assert not run.steps[-1].trace.deviation.mean > 1e-9  # nan where no pass was measured


def pair_of_probs(seed: int) -> Tensor:
    """Two distributions [2, 5]."""
    return torch.softmax(1.5 * torch.randn(2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), -1)


@pytest.mark.parametrize("seed", range(6))
def test_the_meter_is_the_closed_form(seed: int) -> None:
    toy, knobs = Toy(5), {"half_width": 2, "probability_gap": 0.4, "code_distance": 1.3, "allowed_deviation": 1.0}
    rule = gsd.GroupRule(toy.start(Prompt()), Knobs(knobs), Noise(0, 5))
    p, q = pair_of_probs(seed)
    out = closed_forms._probs_after_one_draft(p, q, toy.codebook(), knobs, closed_forms._group_chance)
    assert rule.total_variation(p[None], q[None]) == pytest.approx((out - p).abs().sum().item() / 2)
    rule.knobs = Knobs(knobs | {"half_width": 0})
    assert rule.total_variation(p[None], q[None]) == pytest.approx(0)

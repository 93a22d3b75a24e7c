"""Grouped speculative decoding: groups by hand, its exact limit, its meter. Its distribution is tested in test_exactness.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Knobs, Prompt
from engine.errors import BadKnob, NotSupported
from engine.methods import METHODS, gsd
from engine.noise import Noise
from engine.run import Run, generate
from research.exactness import closed_forms
from research.exactness.toy import Toy
from tests.engine.backbones import tiny

P = torch.tensor([[0.30, 0.05, 0.25, 0.10, 0.30]], dtype=torch.float64)  # from the least probable on: 1 3 2 0 4
ROUND = F.normalize(torch.tensor([[1, 0], [1, 0.1], [1, 0.2], [-1, 0], [1, -0.1]], dtype=torch.float64), dim=-1)  # 3 looks like nothing


def members(token: int, half: int, gap: float = 2.0, far: float = 2.1) -> list[int]:
    """The group of a token, sorted."""
    order = P.argsort(dim=-1, stable=True)
    found, chosen = gsd.group(P, order, (order[0] == token).nonzero()[:, 0], ROUND, half, gap, far)
    assert found[0, 0] == token and found.shape == chosen.shape == (1, max(1, 2 * half))
    return sorted(found[chosen].tolist())


def test_groups_by_hand() -> None:
    assert members(2, 0) == [2]
    assert members(2, 1) == [2, 3]  # one rank below, none above
    assert members(2, 2) == [0, 1, 2, 3]
    assert members(1, 2) == [1, 3]  # the ranking is cut at its ends
    assert members(4, 2) == [0, 2, 4]
    assert members(2, 2, gap=0.15) == [0, 2]  # 3 is 0.15 away, which is not less
    assert members(2, 3, far=0.5) == [0, 1, 2, 4]


def run(knobs: dict[str, float | str], seed: int = 0, **toy: float) -> Run:
    """A run on a flat toy."""
    flat = Toy(**{"vocabulary": 5, "rows": 3, "columns": 4, "sharpness": 1.0, **toy})
    return generate(flat, METHODS["gsd"], Prompt(seed=seed), knobs).finish()


@pytest.mark.parametrize("alone", [{"half_width": 0}, {"probability_gap": 0.0}, {"code_distance": 0.0}, {"allowed_deviation": 0.0}])
def test_groups_of_one_are_speculative_jacobi(alone: dict[str, float]) -> None:
    for seed in range(5):
        toy = Toy(5, 3, 4, sharpness=1.0)
        expected = generate(toy, METHODS["sjd"], Prompt(seed=seed), {"window": 5}).finish()
        found = generate(toy, METHODS["gsd"], Prompt(seed=seed), {"window": 5, **alone}).finish()
        assert [s.tokens for s in found.steps] == [s.tokens for s in expected.steps] and found.exact
        assert not found.steps[-1].trace.deviation.mean > 1e-9  # nan where no pass was measured


def test_the_badge_and_the_refusals() -> None:
    method, knobs = METHODS["gsd"], Knobs({k.name: k.default for k in gsd.METHOD.knobs})
    assert not method.exact(knobs) and method.why(knobs).startswith("Not exact")
    exact = Knobs(knobs.values | {"half_width": 0})
    assert method.exact(exact) and method.why(exact).startswith("Exact")
    with pytest.raises(BadKnob, match="match seed"):
        run({"verify": "match seed"})
    assert run({"verify": "match seed", "half_width": 0}).exact
    toy = Toy()
    toy.codes = None
    with pytest.raises(NotSupported, match="codebook"):
        generate(toy, method, Prompt()).finish()


def laws(seed: int) -> Tensor:
    """Two laws [2, 5]."""
    return torch.softmax(1.5 * torch.randn(2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), -1)


@pytest.mark.parametrize("seed", range(6))
def test_the_meter_is_the_closed_form(seed: int) -> None:
    toy, knobs = Toy(5), {"half_width": 2, "probability_gap": 0.4, "code_distance": 1.3, "allowed_deviation": 1.0}
    rule = gsd.Grouped(toy.start(Prompt()), Knobs(knobs), Noise(0, 5))
    p, q = laws(seed)
    out = closed_forms._behind_one_draft(p, q, toy.codebook(), knobs, closed_forms._group_chance)
    assert rule.apart(p[None], q[None]) == pytest.approx((out - p).abs().sum().item() / 2)
    rule.knobs = Knobs(knobs | {"half_width": 0})
    assert rule.apart(p[None], q[None]) == pytest.approx(0)


def test_the_closed_form_is_a_law_and_not_the_models() -> None:
    case = next(case for case in gsd.METHOD.cases if case.law)
    toy = Toy(**case.toy)
    law, exact = closed_forms.CLOSED_FORMS["grouped window"](toy, case.knobs), toy.enumerate_law()
    assert sum(law.values()) == pytest.approx(1)
    assert sum(abs(law[s] - p) for s, p in exact.items()) / 2 > 0.05
    alone = closed_forms.CLOSED_FORMS["grouped window"](toy, {**case.knobs, "half_width": 0})
    assert sum(abs(alone[s] - p) for s, p in exact.items()) < 1e-9


def test_the_allowed_deviation_holds() -> None:
    groups = {"half_width": 4, "probability_gap": 1.0, "code_distance": 2.0, "window": 6}
    free = [run(groups, seed, columns=16).steps[-2].trace.deviation.mean for seed in range(4)]
    held = [run({**groups, "allowed_deviation": 0.02}, seed, columns=16).steps[-1].trace.deviation.mean for seed in range(4)]
    assert min(held) > 0.002 and max(held) < 0.025 < min(free)


def test_a_picture_of_a_real_codebook_is_painted_whole() -> None:
    found = generate(tiny.pictogram(), METHODS["gsd"], Prompt(text="two red cats", seed=2), {"window": 8}).finish()
    assert found.positions == list(range(64)) and not found.exact
    assert found.totals["forwards"] < 64

"""Cross-Regression: energies by hand, refusals, and the report of a run. Its distributions are tested in test_exactness.py."""

from __future__ import annotations

import math

import pytest
import torch

from engine.core import Knobs, Prompt
from engine.errors import NotSupported
from engine.methods import METHODS
from engine.methods.cross_regression import METHOD
from engine.rules import CONSISTENT, LITERAL, after_energy, energy, ramp, ratio, smooth
from engine.run import Run, generate
from research.exactness.toy import Toy, ToySequence

P = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
Q = torch.tensor([[0.2, 0.3, 0.4, 0.1], [0.4, 0.3, 0.2, 0.1], [0.1, 0.1, 0.1, 0.7]], dtype=torch.float64)


def run_of(toy: Toy | None = None, seed: int = 0, **knobs: float | str) -> Run:
    """A run on the toy with γ = 3."""
    return generate(toy or Toy(), METHOD, Prompt(seed=seed), {"horizon": 3} | knobs)


def test_averages_are_the_paper_s_with_its_correction() -> None:
    energies, beta = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64), 0.3
    rho, expected = 0.0, []
    for k, e in enumerate(energies.tolist(), 1):
        rho = beta * rho + (1 - beta) * e  # algorithm 2, lines 4 and 5
        expected.append(rho / (1 - beta**k))
    assert smooth(energies, beta).tolist() == pytest.approx(expected)
    assert torch.equal(smooth(energies, 0.0), energies)
    assert len(smooth(energies[:0], beta)) == 0


def test_an_impossible_token_poisons_no_average_and_is_never_accepted() -> None:
    averages = smooth(torch.tensor([-torch.inf, 1.0, 1.0], dtype=torch.float64), 0.5)
    assert averages.isfinite().all()
    tokens, u = torch.tensor([3, 3, 3]), torch.full((3,), 1e-9, dtype=torch.float64)
    accepted, _, _ = energy(P, Q, tokens, u, 0.0, 16.0, 3, CONSISTENT)
    assert accepted.tolist() == [False, True, True]


def test_without_tolerance_it_is_speculative_sampling() -> None:
    u = torch.rand(400, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in u:
        tokens = (row * 1000).long() % 4
        assert torch.equal(energy(P, Q, tokens, row, 0.0, 0.0, 16, CONSISTENT)[0], ratio(P, Q, tokens, row)[0])


def test_the_threshold_falls_with_the_root_of_the_place() -> None:
    tokens, u = torch.tensor([0, 0, 0]), torch.full((3,), 0.5, dtype=torch.float64)
    _, levels, least = energy(P, Q, tokens, u, 0.0, 2.0, 4, CONSISTENT)
    assert ramp(levels, 4).tolist() == pytest.approx([0.5, math.sqrt(0.5), math.sqrt(0.75)])
    assert least.tolist() == pytest.approx([math.log(0.5) - 2 * math.sqrt(k / 4) for k in (1, 2, 3)])
    assert energy(P, Q, tokens, u, 0.0, 2.0, 4, LITERAL)[2].tolist() == pytest.approx([-1.0, -1.0, -1.0])


def test_the_literal_rule_at_zero_accepts_where_p_is_not_below_q() -> None:
    u = torch.full((3,), 0.01, dtype=torch.float64)
    for token in range(4):
        accepted, _, _ = energy(P, Q, torch.full((3,), token), u, 0.0, 0.0, 4, LITERAL)
        assert accepted.tolist() == ((P >= Q) & (P > 0))[:, token].tolist()


@pytest.mark.parametrize("smoothing", [0.0, 0.4])
@pytest.mark.parametrize("rule", [CONSISTENT, LITERAL])
def test_the_meter_s_distribution_is_what_the_rule_gives(smoothing: float, rule) -> None:
    """The last of three positions given the two before it: chances counted on a grid of u, for every token."""
    tokens = torch.tensor([0, 1, 2])
    grid = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    levels = energy(P, Q, tokens, grid[:3], smoothing, 1.0, 3, rule)[1]
    probs = after_energy(P, Q, tokens, levels, smoothing, 1.0, 3, rule)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, dtype=torch.float64))
    taken = torch.zeros(4, dtype=torch.float64)
    for x in range(4):
        own = torch.tensor([0, 1, x])
        level = energy(P, Q, own, grid[:3], smoothing, 1.0, 3, rule)[1]
        taken[x] = Q[2, x] * (level[2] >= rule.threshold(ramp(level, 3)[2], grid, 1.0)).double().mean()
    left = (P[2] - Q[2]).clamp(min=0)
    torch.testing.assert_close(probs[2], taken + (1 - taken.sum()) * left / left.sum(), atol=2e-3, rtol=0)


def test_unrelaxed_the_meter_s_distribution_is_the_model_s() -> None:
    tokens = torch.tensor([0, 1, 2])
    levels = energy(P, Q, tokens, torch.rand(3), 0.0, 0.0, 3, CONSISTENT)[1]
    torch.testing.assert_close(after_energy(P, Q, tokens, levels, 0.0, 0.0, 3, CONSISTENT), P)


def test_a_drafter_that_looks_both_ways_cannot_be_coupled() -> None:
    toy = Toy(bidirectional=True)
    with pytest.raises(NotSupported, match="refresh=redraw"):
        next(run_of(toy, refresh="coupled"))
    for knobs in ({"refresh": "redraw"}, {"refresh": "carry"}, {"mode": "sequential"}):
        assert len(run_of(toy, **knobs).finish().tokens) == 6


def test_the_mask_chooses_between_two_adapters_and_needs_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, causal = Toy(), []
    start = type(toy.drafter("predictive_stream")).start
    monkeypatch.setattr(type(toy.drafter("predictive_stream")), "start", lambda self, of: causal.append(self.causal) or start(self, of))
    for mask in ("causal", "both ways"):
        assert len(run_of(toy, refresh="redraw", mask=mask).finish().tokens) == 6
    assert causal == [True, False]
    with pytest.raises(NotSupported, match="refresh=redraw"):
        next(run_of(toy, refresh="coupled", mask="both ways"))
    alone = toy.drafter("predictive_stream")
    alone.both_ways = None
    monkeypatch.setattr(toy, "drafter", lambda name: alone)
    with pytest.raises(NotSupported, match="--both-ways"):
        next(run_of(toy, refresh="redraw", mask="both ways"))


@pytest.mark.parametrize("knobs", [{"energy_tolerance": 1.0}, {"energy_smoothing": 0.2}, {"rule": "paper"}])
def test_a_relaxed_setting_ends_the_match_of_the_seed_and_says_so(knobs: dict[str, float | str]) -> None:
    run = run_of(verify="match seed", **knobs).finish()
    assert run.tokens == run_of(**knobs | {"refresh": "coupled"}).finish().tokens and not run.exact
    assert METHOD.why(Knobs(run.live.read())).startswith("Not exact") and "seed is not matched" in METHOD.why(Knobs(run.live.read()))
    assert "seed" not in METHOD.why(Knobs(run_of(**knobs).live.read()))


def test_a_tolerance_can_be_moved_while_the_seed_is_matched() -> None:
    toy, same = Toy(rows=3, columns=3), 0
    for seed in range(8):
        plain = generate(toy, METHODS["ar"], Prompt(seed=seed)).finish().tokens
        run = generate(toy, METHOD, Prompt(seed=seed), {"verify": "match seed", "horizon": 3})
        for _ in range(2):
            next(run)
        assert run.exact and run.tokens == plain[: len(run.tokens)]
        run.set(energy_tolerance=16.0)
        run.finish()
        assert not run.exact and len(run.tokens) == 9
        same += run.tokens == plain
    assert same < 8


@pytest.mark.parametrize("refresh", ["redraw", "coupled", "carry"])
def test_drafts_behind_a_foreseen_state_are_those_that_one_distribution_at_a_time_gives(
    refresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = Toy(rows=3, columns=3, grammar=True)
    found = [run_of(toy, seed=seed, refresh=refresh).finish().tokens for seed in range(6)]
    monkeypatch.setattr(ToySequence, "state", lambda self, path: tuple(path))  # foreseen only by the very tokens
    assert found == [run_of(toy, seed=seed, refresh=refresh).finish().tokens for seed in range(6)]


def test_the_badge_goes_the_moment_a_knob_leaves_zero() -> None:
    run = run_of(Toy(rows=3, columns=3))
    assert next(run).exact
    run.set(energy_tolerance=2.0)
    step = next(run)
    assert not step.exact and step.knobs["energy_tolerance"] == 2.0 and 0 <= step.trace.deviation.mean <= 1
    run.set(energy_tolerance=0.0, horizon=1)
    assert next(run).exact
    run.finish()


def test_a_round_tells_its_energies() -> None:
    run = run_of(Toy(rows=3, columns=3), energy_tolerance=1.0).finish()
    assert len(run.tokens) == 9 and run.positions == list(range(9))
    drafted = [s for s in run.steps if s.drafted]
    assert drafted
    for step in drafted:
        round_ = step.trace.round
        passed = (round_.energy >= round_.threshold).long().cumprod(0).sum()
        assert len(round_.energy) == len(round_.threshold) == step.drafted and round_.accepted <= passed
        assert len(step.trace.energy) == len(step.trace.threshold) == min(len(step.tokens), step.drafted)


def test_sequential_passes_draft_and_verify_in_turn() -> None:
    run = run_of(Toy(rows=3, columns=3), mode="sequential").finish()
    assert [bool(s.drafted) for s in run.steps][:4] == [False, True, False, True]
    assert METHODS["cross_regression"] is METHOD

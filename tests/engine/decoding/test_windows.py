"""The window family apart from its distribution: bookkeeping, initial distributions, and the record in its Steps."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.core import Draft, Knobs, Prompt, Rows, Sampling, Sequence
from engine.decoding.initializers import INIT, Initializer
from engine.decoding.scales import CoarsePicture, sharpen
from engine.decoding.verdict import WindowState, step_of, verify
from engine.decoding.windows import Refresh, coupled_gumbel, coupled_maximal, redraw
from engine.diagnostics import to_numbers
from engine.errors import BadKnob, NotSupported
from engine.methods import METHODS, find
from engine.noise import Noise
from engine.run import generate
from engine.sampling import guide, warp
from engine.verify.reference import verify_reference
from research.exactness.toy import Toy
from tests.engine.backbones import tiny
from tests.engine.verify.requests import CASES, ITERATION, START, host_verdict

WINDOWED = ["jacobi", "sjd", "sjdpp"]


def _draft(tokens: list[int]) -> Draft:
    return Draft(torch.tensor(tokens, dtype=torch.int64))


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("window", [1, 2, 3, 5, 8])
def test_steps_cover_every_position_once_and_never_cost_more_than_plain(name: str, window: int) -> None:
    run = generate(Toy(), METHODS[name], Prompt(seed=3), {"window": window}).finish()
    assert run.positions == list(range(6))
    assert run.totals["forwards"] <= 6
    assert all(s.drafted == min(window - 1, 5 - s.positions[0]) for s in run.steps)


@pytest.mark.parametrize("refresh", next(k for k in METHODS["sjdpp"].knobs if k.name == "refresh").choices)
@pytest.mark.parametrize("init", INIT.choices)
def test_match_seed_gives_plain_tokens_for_every_refresh_and_initialisation(refresh: str, init: str) -> None:
    toy = Toy(seed=1)
    knobs = {"window": 4, "verify": "match seed", "refresh": refresh, "init": init}
    for seed in range(25):
        plain = generate(toy, METHODS["ar"], Prompt(seed=seed)).finish().tokens
        run = generate(toy, METHODS["sjdpp"], Prompt(seed=seed), knobs).finish()
        assert run.tokens == plain
        assert run.exact


@pytest.mark.parametrize("refresh", [redraw, coupled_gumbel, coupled_maximal])
@pytest.mark.parametrize("name", ["R7-V5", "R7-V17-top-k"])
def test_a_refresh_draws_the_same_from_a_verdict_with_draws_and_without(refresh: Refresh, name: str) -> None:
    request, noise = CASES[name], Noise(5, CASES[name].logits.shape[-1])
    drawn = host_verdict(request)
    rows = Rows(request.logits, lambda raw, soft=False: warp(guide(raw.float(), request.sampling.guidance), request.sampling))
    alone = verify(rows, request.tokens, request.draft_probs, noise, START, ITERATION, False)
    for first in range(1, len(request.tokens)):
        ours, theirs = (
            refresh(
                WindowState(rows, request.tokens, request.draft_probs, noise, START, ITERATION, verdict, first - 1, 0), first, Knobs({})
            )
            for verdict in (drawn, alone)
        )
        assert torch.equal(ours[0], theirs[0]) and len(ours[0]) == len(request.tokens) + 1 - first


def test_steps_record_ratios_and_acceptance_probabilities_of_at_most_1() -> None:
    request, noise = CASES["R7-V17-top-k"], Noise(5, 17)
    rows = Rows(request.logits, lambda raw, soft=False: warp(guide(raw.float(), request.sampling.guidance), request.sampling))
    count, recorded = len(request.tokens), []
    for verdict in (verify(rows, request.tokens, request.draft_probs, noise, START, ITERATION, False), verify_reference(request)):
        window = WindowState(rows, request.tokens, request.draft_probs, noise, START, ITERATION, verdict, count, 0)
        trace = step_of(window, [*request.tokens.tolist(), 0]).trace
        recorded.append((to_numbers(trace.ratio)[:count], to_numbers(trace.accept_probability)))
    host = host_verdict(request)
    a = host.settled[0]
    trace = step_of(WindowState(rows, request.tokens, request.draft_probs, noise, START, ITERATION, host, a, 0), [0] * (a + 1)).trace
    recorded.append((to_numbers(trace.ratio), to_numbers(trace.accept_probability)))
    for ratios, chances in recorded:
        assert np.allclose(ratios, recorded[0][0][: len(ratios)], rtol=1e-4) and np.array_equal(chances, np.minimum(ratios, 1))
    assert recorded[0][0].max() > 1


def fill_slots(init: str, tokens: list[int], slots: int) -> tuple[Sequence, Rows, Tensor, Tensor]:
    """A sequence, its newest rows, and the tokens and distributions of slots after some committed tokens."""
    toy = Toy(seed=4)
    sequence = toy.start(Prompt(seed=0))
    for token in tokens:
        rows = sequence.forward(_draft([]))
        sequence.commit([], token)
    filler = Initializer(sequence, Noise(0, 3))
    filler.observe(len(tokens) - 1, rows)
    return sequence, rows, *filler.fill(torch.empty(0, dtype=torch.int64), None, slots, init, 0, seeded=False)


@pytest.mark.parametrize("init", [init for init in INIT.choices if init != "up-sampled"])
def test_the_distribution_of_an_initial_token(init: str) -> None:
    """`verify` tests that tokens are drawn from this distribution."""
    _, rows, _, draft_probs = fill_slots(init, [1], 1)
    expected = {"repeat left": torch.tensor([0.0, 1.0, 0.0]), "sample left": rows.p[0]}
    assert torch.allclose(draft_probs[0].double(), expected.get(init, torch.full((3,), 1 / 3)).double())  # nothing is above the first row


@pytest.mark.parametrize("init", ["sample left", "sample above"])
def test_few_passes_are_kept_and_every_slot_finds_its_newest_neighbour(init: str) -> None:
    """Compared with an initializer that keeps everything."""
    toy = Toy(rows=6, columns=4, seed=4)
    sequence, noise = toy.start(Prompt(seed=0)), Noise(1, 3)
    ours, most = Initializer(sequence, noise), 0
    everything = Initializer(sequence, noise)
    for size in (4, 3, 4, 1, 4, 2, 4, 4, 0, 3, 4):
        n = sequence.length
        rows = sequence.forward(_draft([1] * size))
        ours.observe(n, rows)
        everything.passes = [(n, n + rows.count, rows), *everything.passes]
        sequence.commit([], 2)
        for held in (0, 1, 3):
            window = torch.ones(held, dtype=torch.int64)
            filled_window, expected = (each.fill(window, None, held + 3, init, 0, seeded=False) for each in (ours, everything))
            assert torch.equal(filled_window[0], expected[0]) and torch.equal(filled_window[1], expected[1])
        most = max(most, len(ours.passes))
    assert most <= 2 + sequence.layout.reach < len(everything.passes)


def test_up_sampled_tokens_have_the_distribution_that_the_small_picture_gives() -> None:
    sequence = Toy(rows=2, columns=4, seed=4).start(Prompt(seed=1999))
    filler = Initializer(sequence, Noise(1999, 3))
    _, draft_probs = filler.fill(torch.empty(0, dtype=torch.int64), None, 2, "up-sampled", 0, seeded=False)
    assert filler.take_pass_count() == 1 and filler.take_pass_count() == 0  # one token at a quarter of the size, made once
    coarser = CoarsePicture(sequence, Noise(1999, 3), 1)
    coarser.draft(1)
    assert torch.equal(sharpen(coarser.probs(0, 1))[:2], draft_probs)


def test_up_sampled_needs_a_smaller_size() -> None:
    with pytest.raises(NotSupported, match="none below"):
        generate(tiny.pictogram(), METHODS["sjd"], Prompt(text="red apple"), {"init": "up-sampled"}).finish()


def test_the_small_picture_counts_as_draft_passes_and_its_cache_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    monkeypatch.setattr(CoarsePicture, "close", lambda self: closed.append(self))
    method, preset = find("mulo_jacobi")
    run = generate(Toy(rows=4, columns=4), method, Prompt(seed=3), preset | {"window": 5}).finish()
    assert [s.draft_forwards for s in run.steps] == [1] + [0] * (len(run.steps) - 1)
    assert len(closed) == 1 and run.exact


def test_the_small_picture_goes_on_with_what_was_really_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of it is drawn when it is needed, after small rows made from the tokens that are above it by then."""
    followed = []
    follow = CoarsePicture.follow
    monkeypatch.setattr(
        CoarsePicture, "follow", lambda self, picture, *rows: (followed.append((picture.tolist(), rows)), follow(self, picture, *rows))
    )
    method, preset = find("mulo_jacobi")
    run = generate(Toy(rows=6, columns=2), method, Prompt(seed=3), preset | {"window": 3}).finish()
    assert run.steps[0].draft_forwards == 1 and sum(s.draft_forwards for s in run.steps) == 3
    assert [rows for _, rows in followed] == [(0, 1), (1, 2)]
    assert all(len(picture) >= 4 * rows[1] for picture, rows in followed)


@pytest.mark.parametrize("changed", [[], [0], [2, 3]])
def test_the_small_picture_reads_again_from_the_first_token_that_changed(changed: list[int]) -> None:
    small = CoarsePicture(Toy(rows=4, columns=4, seed=4).start(Prompt()), Noise(0, 3), 2)
    small.draft(2)
    new, length = small.tokens.copy(), small.sequence.length
    for at in changed:
        new[at] = (new[at] + 1) % 3
    small.resampler = SimpleNamespace(down=lambda *_: torch.tensor(new))
    small.follow(torch.zeros(16, dtype=torch.int64), 0, 2)
    assert small.tokens == new and small.sequence.length == min([length, *changed])


def test_above_means_the_token_one_row_up() -> None:
    _, _, tokens, draft_probs = fill_slots("repeat above", [2, 0, 1], 3)
    assert tokens.tolist() == draft_probs.argmax(-1).tolist() == [2, 0, 1]


def test_the_trace_says_what_was_accepted() -> None:
    run = generate(Toy(), METHODS["sjd"], Prompt(seed=5), {"window": 4}).finish()
    for step in run.steps:
        assert len(step.trace.accepted) == len(step.tokens) == len(step.trace.entropy)
        assert step.trace.accepted[:-1] == [True] * (len(step.tokens) - 1)
        chance = step.trace.accept_probability
        assert ((chance >= 0) & (chance <= 1)).all()


LENT = {"window": 6, "init": "random", "relax": "additive", "added_mass": 0.4, "neighbour_share": 0.4}
FLAT = {"columns": 16, "vocabulary": 5, "sharpness": 0.6}


def test_borrowed_probability_saves_passes_and_the_meter_says_what_it_costs() -> None:
    def passes(knobs: dict[str, float | str]) -> int:
        return sum(generate(Toy(**FLAT), METHODS["sjdpp"], Prompt(seed=seed), knobs).finish().totals["forwards"] for seed in range(12))

    assert passes(LENT) < passes(LENT | {"relax": "off"})
    relaxed = [generate(Toy(**FLAT), METHODS["sjdpp"], Prompt(seed=seed), LENT).finish() for seed in range(4)]
    assert not any(run.exact for run in relaxed)
    assert np.nanmean([run.steps[-1].trace.deviation.mean for run in relaxed]) > 0.025  # nan: no pass of a run was measured


def test_nothing_is_lent_at_temperature_0() -> None:
    greedy, toy = Prompt(sampling=Sampling(temperature=0.0)), Toy(**FLAT)
    assert generate(toy, METHODS["sjdpp"], greedy, LENT).finish().tokens == generate(toy, METHODS["ar"], greedy).finish().tokens


@pytest.mark.parametrize("refresh", ["reuse mixture", "coupled maximal"])
def test_a_relaxed_window_refuses_what_needs_exact_verdicts(refresh: str) -> None:
    with pytest.raises(BadKnob, match="relax=additive"):
        generate(Toy(**FLAT), METHODS["sjdpp"], Prompt(), LENT | {"refresh": refresh}).finish()

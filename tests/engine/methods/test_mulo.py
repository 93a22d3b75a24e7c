"""MuLo-SD apart from its distribution: limits, the context of repairs, the record in its Steps, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core import NO_DRAFT, Backbone, Prompt, Rows
from engine.decoding import scales
from engine.decoding.neighbours import neighbours
from engine.decoding.scales import CoarsePicture
from engine.errors import NotSupported
from engine.kernels.pooled_mass import pooled_mass
from engine.methods import METHODS, mulo, zipar
from engine.methods.mulo import dilate, islands
from engine.noise import Noise
from engine.rules import NEAR, REFUSED, STAYED
from engine.run import Run, generate
from research.exactness.toy import TableResampler, Toy, ToySequence
from tests.engine.backbones import tiny

MULO = METHODS["mulo"]
SHAPES = [(2, 3), (4, 4), (3, 5), (5, 3), (1, 4), (4, 2)]
REPAIRS = [{}, {"stale_kv": "on"}, {"repair": "islands"}]
WAVE = {"repair": "wavefront", "redraw_window": 256}  # every row waits for the whole row above
AHEAD = {"draft_window": 1}
HALF = {"least_mass": 0.35, "added_mass": 0.0, "radius": 0}


def plain(backbone: Backbone, prompt: Prompt) -> list[int]:
    """Plain decoding's tokens."""
    return generate(backbone, METHODS["ar"], prompt).finish().tokens


@pytest.mark.parametrize("rows,columns", SHAPES)
@pytest.mark.parametrize("repair", [*REPAIRS, WAVE])
@pytest.mark.parametrize("ahead", [{}, AHEAD])
def test_where_nothing_stays_it_is_plain_decoding(rows: int, columns: int, repair: dict[str, Any], ahead: dict[str, Any]) -> None:
    toy = Toy(rows=rows, columns=columns)
    for seed in range(3):
        run = generate(toy, MULO, Prompt(seed=seed), {"least_mass": 1, "block_rows": 1 + seed} | repair | ahead).finish()
        assert run.tokens == plain(toy, Prompt(seed=seed)) and run.exact
        assert run.totals["forwards"] == rows * columns  # one pass per token; the first of a block is the verification itself


@pytest.mark.parametrize("rows,columns", SHAPES)
@pytest.mark.parametrize("repair", [*REPAIRS, WAVE, WAVE | {"redraw_window": 1}, WAVE | {"redraw_window": 2}])
def test_every_position_once_for_any_knobs(rows: int, columns: int, repair: dict[str, Any]) -> None:
    toy = Toy(rows=rows, columns=columns)
    for seed, radius in enumerate((0, 0, 1)):
        knobs = HALF | {"radius": radius, "block_rows": 1 + seed % 2} | (AHEAD if seed == 1 else {})
        run = generate(toy, MULO, Prompt(seed=seed), knobs | repair).finish()
        assert sorted(run.positions) == list(range(rows * columns)) and not run.exact


@pytest.mark.parametrize("repair", REPAIRS)
def test_where_all_stays_it_is_the_up_sampled_draft(repair: dict[str, Any]) -> None:
    toy = Toy(rows=4, columns=4)
    run = generate(toy, MULO, Prompt(seed=5), {"least_mass": 0, "radius": 0, "block_rows": 2} | repair).finish()
    coarser = CoarsePicture(toy.start(Prompt(seed=5)), Noise(5, 3), 2)
    coarser.draft(2)
    assert run.in_order == coarser.probs(0, 2).argmax(-1).tolist()
    assert run.totals["forwards"] == 1 and run.totals["draft_forwards"] == coarser.passes


def test_parallel_drafting_is_a_wavefront_over_the_small_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a wavefront's passes, and each token has a wavefront's context: ZipAR gives the same tokens under the same noise."""
    toy, prompt = Toy(rows=8, columns=8), Prompt(seed=3)
    for window in (1, 2, 3):
        coarser = CoarsePicture(toy.start(prompt), Noise(3, 3), 4)
        drafted = coarser.draft(4, window)
        assert coarser.passes == 4 + 3 * window and coarser.tokens == drafted and coarser.sequence.length == 1
        small = toy.at_scale(4)
        own = coarser.noise
        monkeypatch.setattr(zipar, "_gumbel", lambda noise, at, own=own: torch.cat([own.gumbel(place, 1) for place in at]))
        run = generate(small, METHODS["zipar"], prompt, {"window": window}).finish()
        assert drafted == run.in_order and run.totals["forwards"] == coarser.passes
    plain_drafts, whole = (CoarsePicture(toy.start(prompt), Noise(3, 3), 4) for _ in range(2))
    assert plain_drafts.draft(4) == whole.draft(4, 4)


def test_a_window_over_the_small_picture_draws_plain_decodings_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts: dict[int, CoarsePicture] = {}
    for window in (1, 3, 8):
        monkeypatch.setattr(scales, "WINDOW", window)
        drafts[window] = CoarsePicture(Toy(rows=8, columns=8).start(Prompt(seed=3)), Noise(3, 3), 4)
        drafts[window].draft(2)
        drafts[window].draft(4)
    assert drafts[1].tokens == drafts[3].tokens == drafts[8].tokens
    assert drafts[1].passes == 16 > drafts[3].passes >= drafts[8].passes


def test_the_up_sampler_can_be_one_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy(rows=4, columns=4)
    toy.resampler.training_free = TableResampler(toy.vocabulary)
    toy.resampler.training_free.probs = toy.resampler.probs.flip(-1)
    runs = {}
    for kind in ("trained", "training-free"):
        runs[kind] = generate(toy, MULO, Prompt(seed=5), {"least_mass": 0, "radius": 0, "block_rows": 2, "up_sampler": kind}).finish()
    assert runs["trained"].in_order == [toy.vocabulary - 1 - token for token in runs["training-free"].in_order]


def test_after_a_wavefront_drafting_goes_on_in_the_whole_context() -> None:
    toy, prompt = Toy(rows=8, columns=8), Prompt(seed=3)
    ahead, plain_drafts = (CoarsePicture(toy.start(prompt), Noise(3, 3), 4) for _ in range(2))
    ahead.draft(2, 1)
    plain_drafts.draft(2)
    same = torch.zeros(64, dtype=torch.int64)
    for coarser in (ahead, plain_drafts):
        coarser.follow(same, 0, 2)
    assert ahead.draft(3) == plain_drafts.draft(3) and ahead.draft(4, 1) == plain_drafts.draft(4)


def test_a_block_goes_down_again_before_the_next_one_is_drawn() -> None:
    """A later block continues the coarse rows of the committed tokens."""
    toy, seen = Toy(rows=4, columns=4), []
    right = CoarsePicture.follow

    def follow(self: CoarsePicture, picture: Tensor, first: int, stop: int) -> None:
        right(self, picture, first, stop)
        seen.append((picture.clone(), list(self.tokens), self.sequence.length))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CoarsePicture, "follow", follow)
        run = generate(toy, MULO, Prompt(seed=1), {"least_mass": 1}).finish()
    picture, tokens, _ = seen[0]
    assert len(seen) == 1 and picture[:8].tolist() == run.tokens[:8]
    assert tokens == toy.resampler.down(picture, toy.layout, toy.at_scale(2).layout, 0, 1).tolist()


def logits_of_repairs(backbone: Backbone, prompt: Prompt, knobs: dict[str, Any]) -> tuple[Run, dict[int, Tensor]]:
    """A finished run, and for every redrawn token the scores [V] it was drawn from."""
    logits: dict[int, Tensor] = {}
    right = mulo._draw

    def draw(rows: Rows, row: int, position: int, noise: Noise) -> tuple[int, float]:
        logits[position] = rows.scores[row].clone()
        return right(rows, row, position, noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mulo, "_draw", draw)
        return generate(backbone, MULO, prompt, knobs).finish(), logits


def largest_difference(backbone: Backbone, prompt: Prompt, knobs: dict[str, Any]) -> float:
    """The largest difference between repairs' distributions and those of a fresh sequence fed the same tokens one by one."""
    run, logits = logits_of_repairs(backbone, prompt, knobs)
    worst = 0.0
    with torch.inference_mode():
        sequence = backbone.start(prompt)
        for position, token in enumerate(run.in_order):
            scores = sequence.forward(NO_DRAFT).scores[0]
            if position in logits:
                worst = max(worst, (torch.softmax(scores, -1) - torch.softmax(logits[position], -1)).abs().max().item())
            sequence.commit([], token)
    assert logits
    return worst


def test_a_repair_sees_exactly_the_tokens_before_it() -> None:
    toy = Toy(rows=4, columns=4)
    for seed in (1, 6):  # drafts stay between repairs
        exact, stale, side_by_side = (largest_difference(toy, Prompt(seed=seed), HALF | repair) for repair in REPAIRS)
        assert exact < 1e-10 and stale > 1e-3 and side_by_side > 1e-3


def test_on_the_scales_of_a_transformer() -> None:
    backbone, prompt = tiny.with_scales(), Prompt(text="red apple", seed=2, size=128)
    assert generate(backbone, MULO, prompt, {"least_mass": 1, "repair": "in order"}).finish().tokens == plain(backbone, prompt)
    knobs = {"least_mass": 0.3, "radius": 0, "repair": "in order"}
    assert largest_difference(backbone, prompt, knobs) < 1e-4
    for repair in REPAIRS[1:]:
        run = generate(backbone, MULO, prompt, knobs | repair).finish()
        assert sorted(run.positions) == list(range(256))


def test_passes_are_counted_where_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    right = ToySequence.forward

    def forward(self: ToySequence, draft: Any) -> Rows:
        sizes.append(self.layout.columns)
        return right(self, draft)

    monkeypatch.setattr(ToySequence, "forward", forward)
    for repair in REPAIRS:
        sizes.clear()
        run = generate(Toy(rows=4, columns=4), MULO, Prompt(seed=0), HALF | repair).finish()
        assert run.totals["forwards"] == sizes.count(4) and run.totals["draft_forwards"] == sizes.count(2) == 4
        assert run.totals["drafted"] == 16


def test_islands_take_fewer_passes() -> None:
    toy = Toy(rows=8, columns=8)
    knobs = HALF | {"least_mass": 0.1}
    in_order, stale, side_by_side = (generate(toy, MULO, Prompt(seed=0), knobs | r).finish().totals["forwards"] for r in REPAIRS)
    assert side_by_side < in_order == stale


def test_a_wavefront_of_repairs_takes_the_passes_of_a_wavefront() -> None:
    """All of a block of 4 x 8 is redrawn: a row begins `redraw_window` tokens behind the one above."""
    for window in (1, 2, 8):
        knobs = {"least_mass": 1, "block_rows": 2, "repair": "wavefront", "redraw_window": window}
        run = generate(Toy(rows=8, columns=8), MULO, Prompt(seed=0), knobs).finish()
        assert run.totals["forwards"] == 2 * (8 + 3 * window) and run.exact == (window == 256)
        assert sorted(run.positions) == list(range(64))


def test_refusals_spread_inside_the_block() -> None:
    """Worked trace H.6: a block of 2x8, l = 1, (0, 3) refused."""
    refused = torch.zeros(2, 8, dtype=torch.bool)
    refused[0, 3] = True
    assert dilate(refused, 1).nonzero().tolist() == [[0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4]]
    assert torch.equal(dilate(refused, 0), refused)
    assert dilate(refused, 8).all()


def test_islands_do_not_touch() -> None:
    assert islands([], 4) == []
    assert islands([0, 2, 5, 8], 4) == [[0, 2, 5, 8]]  # diagonals touch
    assert islands([0, 3, 8, 10], 4) == [[0], [3], [8], [10]]
    assert islands([1, 3, 4], 4) == [[1, 3, 4]]  # 1 touches 4, and 3 ends the row before it
    assert islands([3, 4, 10], 4) == [[3, 4], [10]]  # the end of a row and the beginning of the next


def test_pooled_mass_is_the_token_and_its_nearest_within_the_budget() -> None:
    p = torch.tensor([[0.5, 0.2, 0.2, 0.1], [0.1, 0.6, 0.05, 0.25]])
    near = neighbours(torch.tensor([[0.0], [1.0], [2.5], [4.5]]), 2, "raw", torch.tensor([1, 2]))
    assert near.tolist() == [[0, 2], [1, 3]]
    tokens = torch.tensor([1, 2])
    for most, masses in ((1.0, [0.9, 0.9]), (0.6, [0.7, 0.65]), (0.0, [0.2, 0.05])):
        assert torch.allclose(pooled_mass(p, tokens, near, torch.full((2,), most)), torch.tensor(masses))


def test_the_steps_say_what_became_of_the_draft() -> None:
    seen: set[int] = set()
    for seed, radius in ((1, 1), (9, 0)):
        run = generate(Toy(rows=4, columns=4), MULO, Prompt(seed=seed), HALF | {"radius": radius}).finish()
        verdict = {p: v for s in run.steps for p, v in zip(s.positions, s.trace.verdict, strict=True)}
        assert sorted(verdict) == list(range(16))
        for step in run.steps:
            assert step.draft["scale"] == 2 and len(step.draft["tokens"]) == len(step.draft["positions"]) == len(step.draft["status"]) == 2
            for position, stayed, mass in zip(step.positions, step.trace.accepted, step.trace.accept_probability, strict=True):
                assert stayed == (verdict[position] == STAYED)
                assert (mass <= 0.35) == (verdict[position] == REFUSED) and 0 <= mass <= 1
        seen |= set(verdict.values())
    assert seen == {STAYED, REFUSED, NEAR}


def test_tau_and_radius_act_on_the_next_block() -> None:
    run = generate(Toy(rows=4, columns=4), MULO, Prompt(seed=0), {"least_mass": 1})
    first = next(run)
    run.set(least_mass=0, radius=0)
    rest = list(run)
    assert first.exact and not rest[-1].exact
    assert run.totals["forwards"] == 8 + 1 and rest[-1].trace.accepted == [True] * 8


def test_a_missing_scale_is_a_sentence() -> None:
    backbone = tiny.with_scales()
    assert "at_scale" in backbone.capabilities and "at_scale" not in tiny.pictogram().capabilities
    with pytest.raises(NotSupported, match="at_scale"):
        generate(tiny.pictogram(), MULO, Prompt(text="red apple"))
    with pytest.raises(NotSupported, match="none below"):
        generate(backbone, MULO, Prompt(text="red apple", size=64)).finish()
    with pytest.raises(NotSupported, match="factor = 4"):
        generate(backbone, MULO, Prompt(text="red apple", size=128), {"factor": "4"}).finish()


def test_a_stopped_run_frees_both_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    right = ToySequence.close
    monkeypatch.setattr(ToySequence, "close", lambda self: (closed.append(self.layout.columns), right(self)))
    run = generate(Toy(rows=4, columns=4), MULO, Prompt(seed=0))
    next(run)
    run.stop()
    assert list(run) == [] and sorted(closed) == [2, 4]

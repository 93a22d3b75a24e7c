"""The wavefront apart from its distribution: number of passes, when it is plain decoding, its Steps, its cost in likelihood."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.core import Prompt
from engine.methods import METHODS
from engine.methods.zipar import REFRESHES, Stretch, _counts, _wavefront
from engine.run import Run, generate
from research.bench.likelihood import log_probabilities
from research.exactness.toy import Toy
from tests.engine.backbones import tiny

ZIPAR = METHODS["zipar"]
SHAPES = [(2, 3), (3, 2), (4, 3), (2, 5), (1, 4), (4, 1)]


def plain(backbone: Toy, seed: int) -> Run:
    """Plain decoding with a seed."""
    return generate(backbone, METHODS["ar"], Prompt(seed=seed)).finish()


@pytest.mark.parametrize("rows,columns", SHAPES)
@pytest.mark.parametrize("window", [1, 2, 3, 256])
def test_published_takes_the_passes_of_the_formula(rows: int, columns: int, window: int) -> None:
    """A row begins `window` passes after the row above and then takes one pass per token, on grids of any shape."""
    run = generate(Toy(rows=rows, columns=columns), ZIPAR, Prompt(seed=1), {"window": window}).finish()
    assert run.totals["forwards"] == columns + (rows - 1) * min(window, columns)
    assert sorted(run.positions) == list(range(rows * columns))


@pytest.mark.parametrize("rows,columns", SHAPES)
@pytest.mark.parametrize("window", ["columns", 256])
def test_a_window_as_wide_as_a_row_is_plain_decoding(rows: int, columns: int, window: int | str) -> None:
    toy = Toy(rows=rows, columns=columns)
    for seed in range(5):
        run = generate(toy, ZIPAR, Prompt(seed=seed), {"window": columns if window == "columns" else window}).finish()
        assert run.tokens == plain(toy, seed).tokens
        assert run.exact == (window == 256)  # the badge does not know how wide the picture is


@pytest.mark.parametrize("refresh", REFRESHES)
@pytest.mark.parametrize("window", [1, 2, 256])
@pytest.mark.parametrize("growth", [1, 2, 5])
def test_verified_matches_the_seed_for_every_refresh(refresh: str, window: int, growth: int) -> None:
    knobs = {"mode": "verified", "verify": "match seed", "refresh": refresh, "window": window, "growth": growth}
    for shape in ((3, 3), (4, 2), (2, 5)):
        toy = Toy(rows=shape[0], columns=shape[1])
        for seed in range(4):
            run = generate(toy, ZIPAR, Prompt(seed=seed), knobs).finish()
            assert run.tokens == plain(toy, seed).tokens and run.exact


@pytest.mark.parametrize("mode", ["published", "verified"])
@pytest.mark.parametrize("window", [1, 2])
def test_where_every_token_is_sure_the_floor_is_reached(mode: str, window: int) -> None:
    """With one successor for every token a draft is right once its true left neighbour is known."""
    toy = Toy(vocabulary=3, rows=4, columns=3, counting=True)
    run = generate(toy, ZIPAR, Prompt(seed=0), {"mode": mode, "window": window}).finish()
    assert run.totals["forwards"] >= 3 + 3 * window
    assert run.totals["forwards"] <= 12
    assert mode == "published" or run.in_order == generate(toy, METHODS["ar"], Prompt(seed=0)).finish().in_order


def test_verified_is_faster_than_plain_and_commits_a_prefix() -> None:
    toy = Toy(rows=4, columns=4)
    passes = []
    for seed in range(5):
        run = generate(toy, ZIPAR, Prompt(seed=seed), {"mode": "verified", "window": 1}).finish()
        assert run.positions == list(range(16))
        passes.append(run.totals["forwards"])
    assert sum(passes) / len(passes) < 12


def test_a_row_that_gains_more_drafts_needs_fewer_passes() -> None:
    """With one draft per row and pass, no more than one token per pass is committed where one row grows at a time."""
    toy = Toy(rows=2, columns=8)
    passes = {1: 0, 4: 0}
    for seed in range(8):
        for growth in passes:
            knobs = {"mode": "verified", "window": 1, "rows": 1, "growth": growth}
            passes[growth] += generate(toy, ZIPAR, Prompt(seed=seed), knobs).finish().totals["forwards"]
    assert passes[1] == 8 * 16 and passes[4] < 8 * 15


@pytest.mark.parametrize("growth", [1, 2])
def test_drafts_on_the_screen_are_the_open_positions(growth: int) -> None:
    """Every draft is shown at its position, none is committed yet, and rows after a gap are included. The next position stays drafted."""
    run = generate(Toy(rows=3, columns=6), ZIPAR, Prompt(seed=3), {"mode": "verified", "window": 1, "growth": growth})
    apart, before = False, set()
    for step in run:
        shown = step.draft["positions"]
        assert len(run.positions) not in before - set(shown)
        before = set(shown)
        assert len(shown) == len(step.draft["tokens"]) == len(set(shown))
        assert not set(shown) & set(run.positions)
        apart |= bool(shown) and shown != list(range(len(run.positions), len(run.positions) + len(shown)))
    assert apart


def test_the_adaptive_window_lies_between_its_bounds() -> None:
    toy = Toy(rows=3, columns=4)
    for seed in range(8):
        knobs = {"window": 4, "adaptive": "on", "least_window": 2}
        run = generate(toy, ZIPAR, Prompt(seed=seed), knobs).finish()
        assert 4 + 2 * 2 < run.totals["forwards"] <= 12  # the first trial never stays: it has nothing to be compared with
        assert sorted(run.positions) == list(range(12))


def test_knobs_may_move_at_any_time() -> None:
    for mode in ("published", "verified"):
        run = generate(Toy(rows=4, columns=4), ZIPAR, Prompt(seed=5), {"mode": mode, "window": 1})
        moves = (
            {"window": 3},
            {"rows": 1},
            {"adaptive": "on", "least_window": 1},
            {"adaptive": "off"},
            {"window": 1, "rows": 9},
            {"growth": 4},
        )
        for moved in moves:
            next(run)
            run.set(**moved)
        assert sorted(run.finish().positions) == list(range(16))


def test_log_probabilities_are_those_of_single_passes() -> None:
    """The meter agrees with the distributions that plain decoding drew from, and finds a wavefront's tokens in raster order."""
    toy = Toy(rows=2, columns=3)
    distribution = toy.enumerate_distribution()
    for run in (plain(toy, 4), generate(toy, ZIPAR, Prompt(seed=4), {"window": 1}).finish()):
        scores = log_probabilities(toy, Prompt(), run.tokens, run.positions)
        assert scores.shape == (6,)
        assert scores.sum().exp().item() == pytest.approx(distribution[tuple(run.in_order)])


@pytest.mark.parametrize("maker", [tiny.pictogram, tiny.janus])
def test_on_transformers(maker) -> None:
    """The same on models with a cache: full windows and match seed give plain tokens, short windows the passes of the formula."""
    backbone = maker()
    prompt = Prompt(text="red apple", seed=3)
    expected = generate(backbone, METHODS["ar"], prompt).finish().tokens
    side = round(len(expected) ** 0.5)
    assert generate(backbone, ZIPAR, prompt, {"window": side}).finish().tokens == expected
    seeded = {"mode": "verified", "window": 2, "verify": "match seed"}
    assert generate(backbone, ZIPAR, prompt, seeded).finish().tokens == expected
    run = generate(backbone, ZIPAR, prompt, {"window": 2}).finish()
    assert run.totals["forwards"] == side + (side - 1) * 2
    assert torch.isfinite(log_probabilities(backbone, prompt, run.tokens, run.positions)).all()


def test_a_row_counts_its_committed_and_its_drafted_tokens() -> None:
    layout = Toy(rows=3, columns=4).start(Prompt(seed=1)).layout
    stretches = [Stretch(2, torch.zeros(2), None), Stretch(4, torch.zeros(2), None)]
    assert _counts(stretches, layout, 2) == [4, 2]  # two committed and two drafts, and two drafts


def test_a_later_stretch_is_predicted_from_the_place_before_it() -> None:
    sequence = SimpleNamespace(tokens=[5, 6], device=torch.device("cpu"))
    drafted = [(2, [7, 8]), (8, [9]), (12, [])]
    stretches = [Stretch(at, torch.tensor(ids, dtype=torch.int64), None) for at, ids in drafted]
    draft, first_rows = _wavefront(sequence, stretches)
    assert draft.positions.tolist() == [2, 3, 7, 8, 11] and first_rows == [0, 3, 5]
    assert draft.tokens.tolist() == [7, 8, 8, 9, 9]  # a placeholder is the newest token above

"""Row and column heads: what they read, the same inputs in a run as in training, and files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from engine.backbones.pictogram import Pictogram
from engine.core import NO_DRAFT, Draft, Prompt
from engine.drafters.spatial_heads import NAME, NetworkHeads, SlotInputs, SpatialHeads, read_heads, weights_file
from engine.errors import MissingWeights
from engine.layout import Raster
from engine.methods import METHODS
from engine.methods.medusa import HeadDrafter
from engine.networks.weights import read_card, ship
from engine.run import generate
from engine.sampling import guide
from research.train.spatial_heads import Slots, predict_states
from tests.engine.backbones import tiny

CPU = torch.device("cpu")
PROMPT = Prompt(text="red apple", seed=5)


def network(guided: bool = False) -> SpatialHeads:
    """Random heads for states of width 32."""
    torch.manual_seed(8)
    heads = SpatialHeads(32, 40, 3, guided)
    tiny.spread(heads, 0.3)
    return heads.requires_grad_(False)


def pictogram_with_heads() -> Pictogram:
    """The tiny pictogram with the capability of heads."""
    plain = tiny.pictogram()
    backbone = tiny.wide_open(Pictogram(plain.model, plain.tokenizer, tiny.WORDS, (8,), {}))
    backbone.capabilities |= {NAME}
    return backbone


def test_a_slot_looks_at_the_row_above_and_at_the_newest_token_within_reach() -> None:
    around = SlotInputs.of(range(6, 11), 5, Raster(4, 4), 3)
    assert around.above.tolist() == [[2, 3], [3, 4], [4, 5], [5, 5], [5, 5]]  # of the last two, nothing is read
    assert around.has_above.tolist() == [True, True, True, False, False]
    assert around.distance.tolist() == [1, 2, 3 + 3, 0, 0]  # position 8 is in the next row; 9 is too far away


def test_the_first_row_has_nothing_above_and_the_first_slot_nothing_at_all() -> None:
    first = SlotInputs.of(range(0, 2), -1, Raster(4, 4), 3)
    assert not first.has_above.any() and first.distance.tolist() == [0, 0]
    second = SlotInputs.of(range(1, 4), 0, Raster(4, 4), 3)
    assert not second.has_above.any() and second.distance.tolist() == [1, 2, 3]


@pytest.mark.parametrize("rows, columns", [(True, True), (True, False), (False, True)])
def test_either_direction_can_be_left_out(rows: bool, columns: bool) -> None:
    around = SlotInputs.of(range(6, 8), 5, Raster(4, 4), 3, rows, columns)
    assert around.has_above.tolist() == [columns] * 2 and (around.distance > 0).tolist() == [rows] * 2


@pytest.mark.parametrize("guided", [False, True])
def test_a_run_reads_what_training_reads(guided: bool) -> None:
    """After plain decoding of 12 tokens, the heads predict for the next slots what training computes from the same states and tokens."""
    backbone, heads = tiny.pictogram(), network(guided)
    sequence = backbone.start(PROMPT)
    run, states = NetworkHeads(heads).start(sequence), []
    with torch.inference_mode():
        for i in range(12):
            rows = sequence.forward(NO_DRAFT)
            run.observe(i, rows)
            states.append(rows.hidden)
            sequence.commit([], (5 * i + 2) % sequence.vocabulary)
        guess = run.guess(range(12, 15), torch.empty(0, dtype=torch.int64))
        tokens = torch.tensor(sequence.tokens + [0] * 3)
        embedded = sequence.trunk.embed(tokens)[:, None]
        padded = F.pad(torch.cat(states, 1), (0, 0, 0, 3))[:, None]
        if guided:
            embedded, padded = (guide(x, sequence.sampling.guidance)[None] for x in (embedded, padded))
        slots = Slots(torch.zeros(3, dtype=torch.int64), torch.arange(12, 15), torch.arange(1, 4), torch.ones(3, dtype=torch.bool))
        expected = guide(sequence.trunk.head(predict_states(heads, embedded, padded, 8, slots)), sequence.sampling.guidance)
    torch.testing.assert_close(guess, expected, atol=1e-4, rtol=1e-4)


def test_drafts_and_their_states_are_read_too() -> None:
    """After a window, the newest token is its last draft, and a draft's state comes from the pass that saw it."""
    sequence = tiny.pictogram().start(PROMPT)
    run = NetworkHeads(network()).start(sequence)
    with torch.inference_mode():
        run.observe(0, sequence.forward(NO_DRAFT))
        sequence.commit([], 3)
        rows = sequence.forward(Draft(torch.tensor([4, 5, 6])))
        run.observe(1, rows)
        sequence.commit([0], 7)  # positions 1 and 2; the window goes on with drafts for 3 and 4
        one = run.guess(range(5, 7), torch.tensor([8, 9]))
        other = run.guess(range(5, 7), torch.tensor([8, 10]))
        assert (one - other).abs().max() > 1e-3  # the newest token
        torch.testing.assert_close(one, run.guess(range(5, 7), torch.tensor([2, 9])))  # no other token of the row is read
        assert run.newest == 4 and torch.equal(run.states[:, 4], rows.hidden[:, 3])


def test_a_head_of_medusa_knows_the_newest_token_and_no_guess() -> None:
    """A level reads the state and the token after the path that a tree committed; nodes of a level share one distribution."""
    sequence = tiny.pictogram().start(PROMPT)
    ahead, other = HeadDrafter(NetworkHeads(network())).start(sequence), NetworkHeads(network()).start(sequence)
    with torch.inference_mode():
        rows = sequence.forward(NO_DRAFT)
        sequence.commit([], 3)
        ahead.root(rows.hidden, [3])
        rows = sequence.forward(Draft(torch.tensor([4, 5, 6]), parents=torch.tensor([-1, -1, 1])))
        sequence.commit([1, 2], 7)  # tokens 5 and 6, then 7
        first = ahead.root(rows.hidden[:, [0, 2, 3]], [5, 6, 7])
        second = ahead.expand([-1, -1], [1, 2])
        third = ahead.expand([0, 1, 1], [1, 1, 2])
        other.observe_states(1, rows.hidden[:, [0, 2, 3]])
        wanted = other.guess(range(4, 7), torch.empty(0, dtype=torch.int64), columns=False)
    assert torch.equal(first, wanted[0]) and torch.equal(second, wanted[[1, 1]]) and torch.equal(third, wanted[[2, 2, 2]])
    assert (first - second[0]).abs().max() > 1e-3


@pytest.mark.parametrize("rounds", [0, 1, 8])
def test_published_commits_a_row_a_step(rounds: int) -> None:
    backbone, drafter = pictogram_with_heads(), NetworkHeads(network())
    run = generate(backbone, METHODS["spatial"], PROMPT, {"mode": "published", "rounds": rounds, "depth": 3}, drafter).finish()
    sizes = [len(step.tokens) for step in run.steps]
    assert sum(sizes) == 64 and not run.exact
    assert sizes[:4] == [1, 4, 4, 8] and set(sizes[4:-1]) == {8}  # blocks of three drafts and a token, then the rows
    assert [step.forwards for step in run.steps[3:]] == [rounds + 1] * len(run.steps[3:])


def test_files_are_read_back_and_refused_for_other_weights(tmp_path: Path) -> None:
    backbone, heads = pictogram_with_heads(), network()
    ship(tmp_path, {weights_file(tmp_path).name: heads.state_dict()}, {NAME: {"settings": heads.settings, "backbone": "right"}})
    read_back = read_heads(tmp_path, read_card(tmp_path), CPU, "right")
    assert read_back.reach == 3
    run = generate(backbone, METHODS["spatial"], PROMPT, {"verify": "match seed"}, read_back).finish()
    assert run.tokens == generate(backbone, METHODS["ar"], PROMPT).finish().tokens
    with pytest.raises(MissingWeights, match="was trained for the weights"):
        read_heads(tmp_path, read_card(tmp_path), CPU, "other")
    with pytest.raises(MissingWeights, match="does not describe it"):
        read_heads(tmp_path, {}, CPU, "right")

"""The contract of scales: a smaller sequence equals the prompt's sequence at that size, a shortened one equals one that was never
extended, and nodes committed in place leave the cache of single passes."""

from __future__ import annotations

import pytest
import torch

from engine.core import NO_DRAFT, Draft, Prompt
from engine.errors import BadPrompt
from research.exactness.toy import Toy
from tests.engine.backbones import tiny
from tests.engine.backbones.test_contract import Case, draft_of, feed, same_row, tokens_of

MAKERS = {
    "pictogram": lambda: Case(tiny.with_scales(), Prompt(text="two red cats on a table", size=128), 2e-5),
    "toy": lambda: Case(Toy(rows=4, columns=4), Prompt(), 1e-10),
}


@pytest.fixture(params=list(MAKERS))
def case(request: pytest.FixtureRequest):
    """Each backbone with the capability in turn."""
    with torch.inference_mode():
        case = MAKERS[request.param]()
        assert "at_scale" in case.backbone.capabilities
        yield case


def test_a_smaller_sequence_is_fresh_and_smaller(case: Case) -> None:
    sequence = feed(case.start(), [1, 2, 0])
    size = sequence.scales[-1]
    small = sequence.at_scale(size)
    assert small.length == 0 and small.vocabulary == sequence.vocabulary and small.layout.columns * 2 == sequence.layout.columns
    again = sequence.at_scale(size)
    same_row(case, feed(small, [1, 0]).forward(NO_DRAFT), 0, feed(again, [1, 0]).forward(NO_DRAFT), 0)
    assert sequence.length == 3  # and the larger one knows nothing of it


def test_a_smaller_pictogram_is_that_of_the_prompt() -> None:
    backbone = tiny.with_scales()
    with torch.inference_mode():
        large = backbone.start(Prompt(text="red apple", size=256))
        assert large.scales == (64, 128) and backbone.start(Prompt(text="red apple", size=64)).scales == ()
        rows, other = (s.forward(NO_DRAFT) for s in (large.at_scale(64), backbone.start(Prompt(text="red apple", size=64))))
        assert torch.equal(rows.logits, other.logits)
        with pytest.raises(BadPrompt, match="not 100"):
            large.at_scale(100)


@pytest.mark.parametrize("length", [0, 1, 4, 5])
def test_a_shortened_sequence_never_went_on(case: Case, length: int) -> None:
    sequence = case.start()
    tokens = tokens_of(sequence, 7)
    feed(sequence, tokens)
    sequence.rewind(length)
    fresh = feed(case.start(), tokens[:length])
    assert sequence.tokens == fresh.tokens and sequence.pending == fresh.pending and not sequence.done
    other = tokens_of(sequence, 3, 5)
    same_row(case, feed(sequence, other).forward(NO_DRAFT), 0, feed(fresh, other).forward(NO_DRAFT), 0)


def test_a_wavefront_can_be_taken_back_to_where_it_began(case: Case) -> None:
    sequence = case.start()
    first, later, other = tokens_of(sequence, 3), tokens_of(sequence, 2, 4), tokens_of(sequence, 3, 5)
    feed(sequence, first).forward(NO_DRAFT)
    sequence.commit_at([3, 5], later)
    sequence.forward(NO_DRAFT)
    sequence.commit_at([4], later[:1])
    sequence.rewind(3)
    fresh = feed(case.start(), first)
    assert sequence.tokens == fresh.tokens and sequence.pending == fresh.pending
    same_row(case, feed(sequence, other).forward(NO_DRAFT), 0, feed(fresh, other).forward(NO_DRAFT), 0)
    sequence.forward(NO_DRAFT)
    sequence.commit_at([8], later[:1])
    with pytest.raises(AssertionError, match="prefix"):
        sequence.rewind(8)


def test_committed_nodes_keep_their_cache(case: Case) -> None:
    """The first nodes of a chain stay, then come a token and later decisions: the same as one by one."""
    sequence, usual = feed(case.start(), [1, 2]), feed(case.start(), [1, 2])
    sequence.forward(draft_of([0, 1, 2, 1]))
    sequence.commit_at([4, 5, 6], [0, 2, 1], nodes=range(2))
    feed(usual, [0, 1, 0, 2, 1])
    assert sequence.tokens == usual.tokens and sequence.pending == [4, 5, 6]
    rows = sequence.forward(NO_DRAFT)
    same_row(case, rows, 2, usual.forward(NO_DRAFT), 0)


def test_a_node_that_stays_behind_a_change_keeps_what_it_saw(case: Case) -> None:
    """Nodes 0 and 2 of a chain stay and 1 is another token: later rows see the cache row that node 2 wrote after the old token."""
    sequence = feed(case.start(), [1, 2])
    sequence.forward(Draft(torch.tensor([0, 1, 2]), positions=torch.tensor([2, 3, 4])))
    sequence.commit_at([3, 5], [0, 1], nodes=[0, 2])
    rows = sequence.forward(NO_DRAFT)
    spelled = case.start()
    visible = torch.ones(8, 8, dtype=torch.bool).tril()
    visible[6:, 4] = False  # the old token at 3 is seen by nothing but the node behind it
    visible[6, 5] = visible[5, 6] = False  # the new one stands before that node, which was there first
    other = spelled.forward(Draft(torch.tensor([1, 2, 0, 1, 2, 0, 1]), positions=torch.tensor([0, 1, 2, 3, 4, 3, 5]), visible=visible))
    same_row(case, rows, 0, other, 6)
    same_row(case, rows, 1, other, 7)

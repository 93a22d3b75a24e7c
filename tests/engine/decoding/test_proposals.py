"""Proposals for a slot: the choice looks at no drawn token, learning takes committed positions, and lookups know neighbours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from engine.core import Chosen, Prompt
from engine.decoding.proposals import Proposal, Recall, Worth, best, grade, laws_of, learn
from engine.layout import Line, Raster
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny

LAW = torch.tensor([0.5, 0.3, 0.2])


def test_the_choice_does_not_depend_on_the_drawn_token() -> None:
    worth = Worth({"a": 0.4, "b": 0.5})
    others = Proposal("b", (0,), 2)
    chosen = {best([Proposal("a", (1,), token, LAW, LAW[token].item()), others], worth).proposer for token in range(3)}
    assert chosen == {"b"}


def test_worth_is_the_mean_of_what_was_seen_for_a_proposer_and_its_grade() -> None:
    worth = Worth({"a": 0.5})
    for accepted in (1.0, 1.0, 0.0, 1.0):
        worth.learn(Proposal("a", (3,), 0), accepted)
    assert worth.expected(Proposal("a", (3,), 1)) == pytest.approx((3 + 2 * 0.5) / 6)
    assert worth.expected(Proposal("a", (2,), 1)) == 0.5  # another grade


def test_learning_stops_at_the_last_committed_token() -> None:
    offers = [[Proposal("a", (i,), i)] for i in range(3)]
    for rows in (SimpleNamespace(), SimpleNamespace(p=LAW.expand(3, -1))):
        worth = Worth({"a": 0.5})
        learn(worth, offers, rows, [0, 2])
        first = 0.5 if hasattr(rows, "p") else 1.0  # p(x), or whether it was committed
        second = 0.3 if hasattr(rows, "p") else 0.0
        assert [worth.expected(slot[0]) for slot in offers] == pytest.approx([(first + 1) / 3, (second + 1) / 3, 0.5])


def test_each_draft_carries_the_law_of_its_own_proposal() -> None:
    window = [Proposal("a", (), 1), Proposal("b", (), 0, LAW, 0.5)]
    assert torch.equal(laws_of(window, 3, LAW), torch.stack([torch.tensor([0.0, 1.0, 0.0]), LAW]))
    alone = laws_of(window[:1], 3, LAW)
    assert isinstance(alone, Chosen) and alone.tokens.tolist() == [1]


def test_a_line_recalls_what_followed_the_longest_run() -> None:
    recall = Recall(Line(), longest=3)
    recall.add([1, 2, 3, 9, 2, 3])
    assert recall.find([]) == (9, 2)
    assert recall.find([9]) == (2, 3)
    assert recall.find([7]) is None


def test_a_picture_recalls_what_stood_beside_the_same_neighbours() -> None:
    recall = Recall(Raster(3, 3))
    recall.add([1, 1, 2, 1, 1, 2, 1])
    assert recall.find([]) == (1, 4)  # left 1, above 1, before 1, after 2
    assert recall.find([1]) == (2, 4)  # at the end of a row no token follows the one above: that agrees too
    assert recall.find([1, 2]) == (1, 1)  # a row begins: only the token above is known


def test_grades_rise_with_the_probability() -> None:
    found = [grade(p) for p in (0.0, 0.05, 0.5, 0.85, 0.999)]
    assert found == sorted(set(found))


@pytest.mark.parametrize(
    "knobs",
    [{}, {"coupled": "off", "neighbours": "off"}, {"neighbours": "left and above", "lookup": "off"}, {"least_chance": 0.3}],
)
def test_a_model_without_heads_gives_plain_tokens(knobs: dict[str, str | float]) -> None:
    backbone = tiny.lowpoly()
    assert "mesh_heads" not in backbone.capabilities
    prompt = Prompt(points=tiny.sphere(), seed=3)
    plain = generate(backbone, METHODS["ar"], prompt).finish().tokens
    assert generate(backbone, METHODS["blend"], prompt, {"verify": "match seed", **knobs}).finish().tokens == plain

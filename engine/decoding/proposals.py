"""Several proposals for a slot of a window: what each is worth is learned from committed tokens, and the best one is drafted.

A proposal is a token with the distribution it was drawn from. The choice among the proposals of a slot looks at what was known before
any of them was drawn: the proposer, its grade, and how proposals of that grade fared at committed positions. So the drafted token has
the distribution of its own proposal, and speculative sampling against it is exact.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable
from typing import NamedTuple

from torch import Tensor

from engine.core import Chosen, Rows
from engine.layout import Layout, Raster

LEVELS = (0.02, 0.1, 0.3, 0.6, 0.8, 0.9, 0.97, 0.99)  # the borders between grades of a probability
DOUBT = 2.0  # how many observations the first guess counts for


class Proposal(NamedTuple):
    """A token for a slot.

    proposer : its name; grade : what is known of the proposal before its token is drawn (for a chosen token, also the token)
    law      : the distribution [V] that the token was drawn from; None: it was chosen, and its distribution is one-hot
    drawn    : the token's probability under it, 1 for a chosen one
    """

    proposer: str
    grade: tuple[int, ...]
    token: int
    law: Tensor | None = None
    drawn: float = 1.0


def grade(probability: float) -> int:
    """The grade of a probability: 0 to the number of LEVELS."""
    return bisect(LEVELS, probability)


class Worth:
    """The mean acceptance probability of proposals by proposer and grade, learned in one run.

    Learning is given acceptance probabilities at committed positions only. A method may not give it verdicts on drafts that stay.
    """

    def __init__(self, first: dict[str, float]):
        """first : the guess for each proposer before anything was committed"""
        self.first = first
        self._seen: dict[tuple[str, tuple[int, ...]], list[float]] = {}

    def expected(self, proposal: Proposal) -> float:
        """The expected acceptance probability of a proposal. Its token is not looked at."""
        total, count = self._seen.get((proposal.proposer, proposal.grade), (0.0, 0.0))
        return (total + DOUBT * self.first[proposal.proposer]) / (count + DOUBT)

    def learn(self, proposal: Proposal, accepted: float) -> None:
        """accepted : the probability with which verification would accept the proposal, or 1 and 0 for whether its token was committed"""
        seen = self._seen.setdefault((proposal.proposer, proposal.grade), [0.0, 0.0])
        seen[0] += accepted
        seen[1] += 1


def best(proposals: list[Proposal], worth: Worth) -> Proposal:
    """The proposal of a slot with the greatest expected acceptance; of equal ones the first."""
    return proposals[0] if len(proposals) == 1 else max(proposals, key=worth.expected)


def laws_of(window: list[Proposal], vocabulary: int, like: Tensor) -> Tensor | Chosen:
    """The distributions of a window's drafts: [m, V] of the type of `like`, or `Chosen` if none was drawn."""
    if all(each.law is None for each in window):
        return Chosen(like.new_tensor([each.token for each in window]).long(), vocabulary, like.dtype)
    found = like.new_zeros(len(window), vocabulary)
    for row, each in zip(found, window, strict=True):
        if each.law is None:
            row[each.token] = 1
        else:
            row.copy_(each.law)
    return found


def learn(worth: Worth, offered: list[list[Proposal]], rows: Rows, committed: list[int]) -> None:
    """Learns from the proposals for committed positions, drafted or not. offered : by slot; committed : as many tokens, or more.

    Where the distributions of the pass were computed, each counts with min(1, p(x) / q(x)), else with whether it was the committed token.
    """
    pairs = [(i, each) for i, slot in enumerate(offered[: len(committed)]) for each in slot]
    if not pairs:
        return
    if "p" not in rows.__dict__:
        for i, each in pairs:
            worth.learn(each, float(each.token == committed[i]))
        return
    probable = rows.p[[i for i, _ in pairs], [each.token for _, each in pairs]].tolist()
    for p, (_, each) in zip(probable, pairs, strict=True):
        worth.learn(each, min(1.0, p / each.drawn))


class Recall:
    """What followed the last time: the token that came after the same newest tokens, or, in a picture, beside the same neighbours."""

    def __init__(self, layout: Layout, longest: int = 6):
        """longest : run of newest tokens, where there is no picture"""
        self.columns = layout.columns if isinstance(layout, Raster) else 0
        self.longest = longest
        self.tokens: list[int] = []
        self.followed: dict[tuple[int, ...], int] = {}

    def add(self, tokens: Iterable[int]) -> None:
        """Appends committed tokens."""
        for token in tokens:
            for key in self._keys(self.tokens):
                self.followed[key] = token
            self.tokens.append(token)

    def find(self, path: list[int]) -> tuple[int, int] | None:
        """The token after the committed ones and a path of drafts, and how much agrees, the most first; None if nothing is known."""
        known = self.tokens[-max(self.columns + 1, self.longest) :] + path
        for key in self._keys(known, len(self.tokens) + len(path)):
            if key in self.followed:
                return self.followed[key], len(key)
        return None

    def _keys(self, known: list[int], position: int | None = None) -> list[tuple[int, ...]]:
        """The contexts of the token after `known`, which end at `position`, the largest first."""
        position = len(known) if position is None else position
        if not self.columns:
            return [tuple(known[-g:]) for g in range(min(self.longest, len(known)), 0, -1)]
        row, column = divmod(position, self.columns)
        if row == 0 or column == 0:
            return [(known[-self.columns],)] if row else []
        left, above, before = known[-1], known[-self.columns], known[-self.columns - 1]
        after = known[-self.columns + 1] if column + 1 < self.columns else -1
        return [(left, above, before, after), (left, above, before), (left, above)]

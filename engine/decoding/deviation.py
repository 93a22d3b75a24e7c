"""The deviation of a relaxed rule's output from the model's distribution: a meter that all relaxed methods share, and its budget.

Paper: none. A paper's knob (LANTERN's δ, XSpecMesh's δ, Θ, a group's width) bounds what one token may gain, not the deviation of the
output. `allowed_deviation` bounds the output: the mean, over the committed tokens, of the total variation distance between the
distribution that the token was drawn from, given everything before it, and the model's distribution.

A relaxed rule would give a token the distribution o where the model has p, with the deviation d = TV(o, p). What the budget still allows
is r = budget * (tokens so far + 1) - (deviations so far). The relaxed rule decides with probability s = min(1, r / d), else the exact rule
does. So the token has the distribution s o + (1 - s) p and the deviation s d <= r, and the mean never exceeds the budget, whatever the
run does. d and s depend on p and on the draft's distribution, never on its value; otherwise neither rule would give its own distribution.
By the chain rule, the distribution of a run of T tokens is within T times the budget of plain decoding's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.core import Knob, Knobs
from engine.noise import SCHEDULE, Noise
from engine.trace import DeviationTrace

ALLOWED = Knob(
    "allowed_deviation", "", 1.0, 0, 1, 0.005,
    help="Budget: largest mean total variation distance between the tokens' distribution and the model's. 1: no limit. 0: exact.",
)  # fmt: skip

METERED = 0.25  # the share of passes measured when there is no limit; with a limit, every pass is measured
_DUE, _COIN = 1, 4  # slots of the schedule's noise


class Meter:
    """The deviations of one run's committed tokens, and the relaxed rule's share in the next token.

    tokens, total : the committed tokens of measured passes, and the sum of their deviations; 0 for a token that no rule decided
    is_due   : whether this pass is measured
    latest   : the mean deviation of the newest pass; nan if not measured. strength : the mean share of the relaxed rule in it
    """

    def __init__(self) -> None:
        self.tokens, self.total, self.is_due = 0, 0.0, False
        self.latest = self.strength = float("nan")
        self._limit = 1.0
        self._slots: list[float] = []  # of this pass: the deviation of each token, in order
        self._shares: list[float] = []

    @property
    def mean(self) -> float:
        """Mean deviation so far; nan before the first measurement."""
        return self.total / self.tokens if self.tokens else float("nan")

    def begin(self, knobs: Knobs, noise: Noise, position: int, iteration: int, always: bool = False) -> bool:
        """Begins a pass; returns whether it is measured. always : measure it also if there is no limit"""
        self._limit, self._slots, self._shares = knobs.allowed_deviation, [], []
        self.is_due = always or is_limited(knobs) or noise.host_uniform(SCHEDULE, position, 1, iteration, _DUE).item() < METERED
        return self.is_due

    def share(self, deviation: float, again: bool = False) -> float:
        """The share of the relaxed rule in the decision on the next token, if the rule alone would deviate by `deviation`.

        again : the decision is about the same token as the last one: its next sibling in a tree. The sum of the siblings' deviations is
        never less than the token's deviation.
        """
        if not again:
            self._slots.append(0.0)
        share = 1.0
        if self._limit < 1:
            rest = self._limit * (self.tokens + len(self._slots)) - self.total - sum(self._slots)
            share = 1.0 if deviation <= max(0.0, rest) else max(0.0, rest) / deviation
        self._slots[-1] += share * deviation
        self._shares.append(share)
        return share

    def decide(self, relaxed: Tensor, exact: Tensor, deviation: Callable[[int], float], uniforms: Tensor) -> tuple[list[bool], int]:
        """The rule that decides on each draft of a chain up to the first refused one, True: the relaxed rule; and the number accepted.

        relaxed, exact : bool [m], the verdicts of both rules; deviation : (draft) -> the relaxed rule's deviation; uniforms : [m] in (0, 1)
        """
        verdicts, by = torch.stack([exact, relaxed]).tolist(), []
        for draft, coin in enumerate(uniforms.tolist()):
            by.append(coin < self.share(deviation(draft)))
            if not verdicts[by[-1]][draft]:
                return by, draft
        return by, len(by)

    def commit(self, count: int) -> None:
        """Ends a pass that committed `count` tokens."""
        if not self.is_due:
            self.latest = self.strength = float("nan")
            return
        spent = sum(self._slots[:count])
        self.total += spent
        self.tokens += count
        self.latest = spent / count
        self.strength = sum(self._shares) / len(self._shares) if self._shares else float("nan")

    def trace(self) -> DeviationTrace:
        """The record for the Step: the run's mean, this pass's deviation and the relaxed rule's share."""
        return DeviationTrace(self.mean, self.latest, self.strength)


def is_limited(knobs: Knobs) -> bool:
    """True if there is a budget."""
    return knobs.allowed_deviation < 1


def acceptance_uniforms(noise: Noise, position: int, count: int, iteration: int) -> Tensor:
    """Numbers [count] in (0, 1) that choose between the rules; nothing else uses them."""
    return noise.host_uniform(SCHEDULE, position, count, iteration, _COIN)


def chain_verdicts(by: list[bool], a: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The result of `Meter.decide` for all drafts [m] of `like`: True where accepted, and True where the relaxed rule decided."""
    m = len(like)
    accepted = torch.arange(m, device=like.device) < a
    return accepted, torch.tensor([*by, *[False] * (m - len(by))], dtype=torch.bool, device=like.device)


def limit_of(knobs: Knobs) -> str:
    """Addition to the badge's sentence if there is a budget; "" if there is none."""
    return f", within a mean deviation of {knobs.allowed_deviation:g} per token" if is_limited(knobs) else ""

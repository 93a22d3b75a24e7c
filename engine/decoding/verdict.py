"""The verification of a window after a pass: verdicts, the corrected token, and the Step that records both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.core import Rows, Step
from engine.decoding.rules import matches, probability_of, ratio
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.sampling import draw, draw_gumbel, entropy, residual
from engine.trace import Trace, Values


@dataclass
class Verified:
    """The input of a refresh after a pass: the old window and its verdicts.

    Why carrying drafts is exact. Let the draft x of a position have distribution q given everything that happened at earlier positions.
    (a) Accepting it with probability min(1, p(x)/q(x)), and drawing from the residual otherwise, gives a token with distribution p.
    (b) Kept regardless of its value, x still has distribution q. (c) Kept with probability k(x), else redrawn from r, it has distribution
    q k + (1 - sum q k) r, which must then be carried. (d) With k = min(1, r/q) and a redraw from r's residual, that distribution is r.

    tokens : int64 [m]; laws : [m, V] or None (match seed keeps none unless the refresh needs them); ratios : p/q [m] or None
    rows   : of the pass; row i is the distribution of position start+i, i = 0..m
    accepted : bool [m], independent verdicts (also meaningful after the first rejection)
    """

    start: int
    tokens: Tensor
    laws: Tensor | None
    ratios: Tensor | None
    accepted: Tensor
    rows: Rows
    noise: Noise
    iteration: int


# (p [m, V], q [m, V], tokens int64 [m], u [m]) -> accepted bool [m] and what u was compared with [m]
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def verify(
    rows: Rows, tokens: Tensor, laws: Tensor | None, noise: Noise, n: int, iteration: int, seeded: bool, rule: Rule | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Verdicts bool [m], ratios [m] or None, and the seeded answers [m+1] or None. Default rule: speculative sampling."""
    size = len(tokens)
    answers = draw_gumbel(rows.scores, noise.gumbel(n, size + 1)) if seeded else None
    if laws is None:
        return matches(tokens, answers[:size]), None, answers
    accepted, ratios = (rule or ratio)(rows.p[:size], laws, tokens, noise.uniform(ACCEPT, n, size, iteration))  # eq. 3
    return (matches(tokens, answers[:size]) if seeded else accepted), ratios, answers


def correct(rows: Rows, laws: Tensor | None, answers: Tensor | None, a: int, size: int, noise: Noise, n: int, iteration: int) -> int:
    """The token after the accepted prefix: the seeded answer, a draw from the residual, or a draw from the last row."""
    if answers is not None:
        return answers[a].item()
    if a == size:
        return draw(rows.p[size:], noise.uniform(DRAW, n + size, 1, iteration)).item()
    left = residual(rows.p[a : a + 1], laws[a : a + 1])
    return draw(left, noise.uniform(RESIDUAL, n + a, 1, iteration)).item()


def describe(n: int, committed: list[int], a: int, drafted: int, laws: Tensor, chance: Values, **more: Any) -> Step:
    """The Step of a pass that accepted `a` of `drafted` drafts in order and then drew one token.

    laws   : [k, V], from position n on, at least one per committed token
    chance : acceptance probabilities of the drafts in order, at least as many as were committed
    more   : other fields of the trace
    """
    k = len(committed)
    trace = Trace(([True] * a + [False])[:k], accept_probability=chance[: min(k, drafted)], entropy=entropy(laws[:k]), **more)
    return Step(committed, list(range(n, n + k)), drafted=drafted, trace=trace)


def levels_of(a: int, committed: list[int]) -> list[int]:
    """The level of each token that a pass committed: 1 to `a` for accepted drafts, 0 for the token after them."""
    return [*range(1, a + 1), 0][: len(committed)]


def chances(rows: Rows, tokens: Tensor, ratios: Tensor | None, k: int) -> Tensor:
    """The acceptance probability of each of the first `k` drafts: its ratio cut at 1, or p if acceptance is equality."""
    k = min(k, len(tokens))
    return probability_of(rows.law(0, k), tokens[:k]) if ratios is None else ratios[:k].clamp(max=1)

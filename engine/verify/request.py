"""The request and the verdict of a pass, which all implementations share.

Mathematics, for row i of a pass with draft x drawn from q, and uniform numbers u, u', u'':
  s = u + g (c - u), impossible tokens at -inf, divided by the temperature       guidance, grammar        (sampling.guide, warp)
  s at -inf below max(k-th largest, top-p threshold)                             exact, all ties kept     (sampling.warp)
  p = softmax(s), entropy, distance |p - q| / 2
  accepted: u < p(x) / q(x), or x = answer under match seed                      (rules.ratio, rules.matches)
  answer: argmax(s + Gumbel noise of the position); fresh: inverse of p's sum at u'; drawn: inverse of max(0, p - q)'s sum at u''
Then the verdict is settled: the first refusal a and the token after it: answer[a], drawn[a], or fresh[m] if nothing was refused.

A row with NaN, or without any possible token, is not sound: its token is -1, and `check_pair` raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine.core import ChosenTokens, Sampling
from engine.trace import Values

ACCEPT, FRESH, RESIDUAL = range(3)  # rows of the uniform numbers


@dataclass(frozen=True)
class Criterion:
    """A rule on the model's distributions alone. The token after the accepted drafts is then the row's answer.

    accepts : (p [m, V], drafts int64 [m], limit []) -> accepted bool [m], by operations that the host need not read; a module's
              function, because it is part of a graph's key
    limit   : the rule's number, which may change between passes
    raw     : p is the softmax of the raw logits, else the distribution that tokens are drawn from
    """

    accepts: Callable[[Tensor, Tensor, Tensor], Tensor]
    limit: float
    raw: bool


@dataclass(frozen=True)
class VerifyRequest:
    """Drafts and random numbers of a pass, and its rows, unless the pass waits for this request and adds them itself (`fixed`).

    tokens    : int64 [m], m < R; draft_probs : the distributions they were drawn from [m, V], or None: then x must be the answer; only
                `fixed` takes ChosenTokens
    uniforms  : float64 [3, R] in (0, 1): for acceptance, fresh draws and residual draws
    base      : of the stream of Gumbel noise, or its bits int64 [] on the device of the logits
    positions : int64 [R], the positions of the rows' tokens
    seeded    : acceptance is equality with the answer
    store     : p is stored
    criterion : the rule instead of speculative sampling or equality, or None; only `fixed` applies it
    logits    : [C, R, V], float32 or half; C = 2 with guidance (conditional, unconditional). Row i follows draft i - 1
    numbers   : those of the sampling, on the device, see `sampling.warp`, or None
    allowed   : bool [V] or [R, V], or None = all
    """

    tokens: Tensor
    draft_probs: Tensor | ChosenTokens | None
    uniforms: Tensor
    base: int | Tensor
    positions: Tensor
    seeded: bool = False
    store: bool = False
    criterion: Criterion | None = None
    logits: Tensor | None = None
    sampling: Sampling | None = None
    numbers: Tensor | None = None
    allowed: Tensor | None = None


Recorded = tuple[Values | None, Values | None, Values | None, Values | None]


@dataclass
class Verdict:
    """Verdicts and draws of all rows, on the device of the logits. None: not computed.

    accepted : bool [m]; ratios : p(x)/q(x) [m], None without distributions
    answers, fresh, drawn : int64 [R]; drawn is from the residual, and from p in rows without a draft
    chances  : p(x) [m]; deviations : TV(p, q) [m], None without distributions
    entropy  : [R] in nats; p : [R, V]; sound : bool [R], False for a row that cannot be drawn from
    top      : p of each row's most probable token [R]
    pair     : int64 [2], the first refusal and the token after it, where the pass has settled it
    coins    : the uniform number of each draft, float64 [m], on the host
    """

    accepted: Tensor
    ratios: Tensor | None = None
    answers: Tensor | None = None
    fresh: Tensor | None = None
    drawn: Tensor | None = None
    chances: Tensor | None = None
    deviations: Tensor | None = None
    entropy: Tensor | None = None
    p: Tensor | None = None
    sound: Tensor | None = None
    pair: Tensor | None = None
    top: Tensor | None = None
    coins: Tensor | None = None

    @property
    def recorded(self) -> Recorded:
        """Entropies, draft probabilities, greatest probabilities and ratios p/q, or p without distributions, at least up to the first
        refusal."""
        return self.entropy, self.chances, self.top, self.chances if self.chances is None or self.ratios is None else self.ratios


def check_pair(a: int, token: int) -> tuple[int, int]:
    """Returns the two numbers; raises FloatingPointError if the row had NaN or no possible token."""
    if token < 0:
        raise FloatingPointError(f"row {a} of the pass, or a row before it, has NaN among its scores or no possible token")
    return a, token

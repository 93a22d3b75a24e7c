"""Acceptance rules as functions: what a rule needs goes in, a verdict a node comes out. No rule knows a method."""

from __future__ import annotations

from torch import Tensor


def ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Speculative sampling (Leviathan et al. 2023, Chen et al. 2023): accept x with probability min(1, p(x) / q(x)).

    p, q : [N, V]; tokens : int64 [N], drawn from q; u : [N] in (0, 1).
    Returns accepted bool [N] and the ratio p(x)/q(x) [N] (not cut at 1). The comparison is strict, so p(x) = 0 is never accepted.
    """
    at = tokens[:, None]
    r = p.gather(1, at).squeeze(1) / q.gather(1, at).squeeze(1)
    return u.to(r.device) < r, r


def matches(tokens: Tensor, answers: Tensor) -> Tensor:
    """Equality with the model's own draw: bool [N]."""
    return tokens == answers


def leading(accepted: Tensor) -> int:
    """How many verdicts are True before the first False. One read by the host."""
    return int(accepted.long().cumprod(0).sum())


def probability_of(p: Tensor, tokens: Tensor) -> Tensor:
    """p(x) of each token: the chance of agreement where acceptance is equality. [N, V], int64 [N] -> [N]."""
    return p.gather(1, tokens[:, None]).squeeze(1)

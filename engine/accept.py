"""Acceptance rules as functions: what a rule needs goes in, a verdict a node comes out. No rule knows a method."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.sampling import entropy, residual


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


def more_probable_than(p: Tensor, tokens: Tensor, least: float) -> Tensor:
    """XSpecMesh, equation 3: accept x if p(x) > least. Not exact. p [N, V], int64 [N] -> bool [N]."""
    return probability_of(p, tokens) > least


def top_of(p: Tensor, tokens: Tensor, count: int) -> Tensor:
    """Accept x if fewer than `count` tokens are more probable. Not exact. p [N, V], int64 [N] -> bool [N]."""
    return (p > probability_of(p, tokens)[:, None]).sum(-1) < count


def typical(p: Tensor, tokens: Tensor, floor: float, scale: float) -> Tensor:
    """Medusa (Cai et al. 2024): accept x if p(x) > min(floor, scale * exp(-entropy)). Not exact. p [N, V], int64 [N] -> bool [N]."""
    least = (scale * (-entropy(p)).exp()).clamp(max=floor)
    return probability_of(p, tokens) > least


# --- trees ------------------------------------------------------------------------------------------------------------


def walk(parents: list[int], tokens: list[int], answers: list[int]) -> tuple[list[int], int]:
    """Down a tree as long as a child is the model's own draw. The draw looks at p alone, so any tree may be walked.

    This is verification of children that were chosen and not drawn (EAGLE's code asks them one after the other, which gives the same law),
    and of any children where the draws are those of plain decoding (match seed).
    answers : the token drawn from the law behind the prefix and behind every node, N+1 of them. Returns the path and the token behind it.
    """
    below = {(parent, token): node for node, (parent, token) in reversed(list(enumerate(zip(parents, tokens, strict=True))))}
    found: list[int] = []
    at = -1
    while (at_next := below.get((at, answers[at + 1]))) is not None:
        found.append(at_next)
        at = at_next
    return found, answers[at + 1]


Mass = Callable[[Tensor, Tensor], Tensor]  # law [V], tokens int64 [m] -> what each is credited with [m]


def probability(p: Tensor, tokens: Tensor) -> Tensor:
    """p(x), what an exact rule credits a token with. p [V], int64 [m] -> [m]."""
    return p[tokens]


def multi_round(p: Tensor, tokens: Tensor, laws: Tensor, u: list[float], mass: Mass = probability) -> tuple[int, Tensor, list[float]]:
    """Asks sampled siblings one after the other (SpecInfer, Miao et al. 2023; without replacement: Jeon et al. 2024).

    Sibling j is accepted with probability min(1, mass(p, x) / q_j(x)); if not, p becomes the residual of p and q_j. With the exact mass
    the token has law p. A child that was chosen has the law 1 at its token: accepted with probability p(x), struck out of p if not.
    p : [V]; tokens : int64 [b]; laws : [b, V], of a sibling conditional on the earlier ones; u : b numbers in (0, 1).
    Returns which was accepted (-1: none), the law [V] that is left for the token behind, and the chance that each one asked had.
    """
    chances: list[float] = []
    for j in range(len(tokens)):
        token = tokens[j : j + 1]
        chance = (mass(p, token) / laws[j, token]).item()
        chances.append(min(1.0, chance))
        if u[j] < chance:
            return j, p, chances
        p = residual(p, laws[j])
        p = p / p.sum()
    return -1, p, chances


# --- relaxed rules ----------------------------------------------------------------------------------------------------


def additive_mass(p: Tensor, tokens: Tensor, neighbours: Tensor, most: float) -> Tensor:
    """LANTERN (Jang et al., arXiv 2410.03355): x borrows the probability of its nearest neighbours, at most δ in all. Not exact.

    p : [V]; tokens : int64 [m]; neighbours : int64 [V, k], nearest first, without oneself; most : δ. Returns [m].
    """
    return p[tokens] + _borrowed(p, tokens, neighbours, torch.full_like(p[tokens], most))


def multiplicative_mass(p: Tensor, tokens: Tensor, neighbours: Tensor, factor: float) -> Tensor:
    """LANTERN++ (Park et al., arXiv 2502.06352): x borrows at most λ p(x), so no token gains more than (1 + λ) of its own. Not exact.

    p : [V]; tokens : int64 [m]; neighbours : int64 [V, k]; factor : λ. Returns [m].
    """
    return p[tokens] + _borrowed(p, tokens, neighbours, factor * p[tokens])


def _borrowed(p: Tensor, tokens: Tensor, neighbours: Tensor, most: Tensor) -> Tensor:
    """The mass [m] of the longest run of nearest neighbours that does not exceed `most` [m]."""
    run = p[neighbours[tokens]].cumsum(-1)
    return torch.where(run <= most[:, None], run, 0).amax(-1)


def after_one_draw(p: Tensor, q: Tensor, mass: Tensor) -> Tensor:
    """The law of one draft from q that is accepted with min(1, mass(x) / q(x)) and else replaced by the exact residual. [V] x3 -> [V]."""
    accepted = torch.minimum(q, mass)
    left = residual(p, q)
    return accepted + (1 - accepted.sum()) * left / left.sum()


def after_choices(p: Tensor, tokens: Tensor, mass: Mass) -> Tensor:
    """The law [V] where chosen children are asked one after the other with a relaxed mass and struck out of p [V] when refused. int64
    [b]."""
    found, reached, left = torch.zeros_like(p), torch.ones_like(p[:1]), p
    for j in range(len(tokens)):
        token = tokens[j : j + 1]
        chance = mass(left, token).clamp(max=1)
        found[token] += reached * chance
        reached = reached * (1 - chance)
        left = left.clone()
        left[token] = 0
        left = left / left.sum() if left.sum() > 1e-12 else p
    return found + reached * left


def deviation(p: Tensor, law: Tensor) -> Tensor:
    """Total variation distance of two laws [..., V] -> [...]."""
    return (p - law).abs().sum(-1) / 2

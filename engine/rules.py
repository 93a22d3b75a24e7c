"""Acceptance rules as functions that return a verdict per node. No rule depends on a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.machine import widest_float
from engine.sampling import entropy, residual

STAYED, REFUSED, NEAR = range(3)  # verdicts on drafts, in methods that repair; NEAR: redrawn because a draft near it was refused


def ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Speculative sampling (Leviathan et al. 2023, Chen et al. 2023): accept x with probability min(1, p(x) / q(x)).

    p, q : [N, V]; tokens : int64 [N], drawn from q; u : [N] in (0, 1).
    Returns accepted bool [N] and the ratio p(x)/q(x) [N] (may exceed 1). The comparison is strict, so p(x) = 0 is never accepted.
    """
    at = tokens[:, None]
    r = p.gather(1, at).squeeze(1) / q.gather(1, at).squeeze(1)
    return u.to(r.device, widest_float(r.device)) < r, r


def block(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Block verification (Sun et al., arXiv 2403.10444, algorithm 2): accept the longest prefix of a chain whose own number u accepts it.

    p : [..., m+1, V]; q : [..., m, V]; tokens : int64 [..., m], each drawn from q given the earlier ones; u : [..., m] in (0, 1).
    Returns the length of the prefix int64 [...]; the probability [..., m] that the prefix reaches each draft, given the drafts up to it;
    and the distribution of the token after each prefix [..., m+1, V], not normalised.
    """
    chances, reach, rest = block_chances(p, q, tokens)
    lengths = torch.arange(1, tokens.shape[-1] + 1, device=chances.device)
    return F.pad((u.to(chances) < chances) * lengths, (1, 0)).amax(-1), reach, rest


def block_chances(p: Tensor, q: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The probability [..., m] that the number of each prefix of a chain accepts it, and the last two results of `block`."""
    at = tokens[..., None]
    ratios = (p[..., :-1, :].gather(-1, at) / q.gather(-1, at)).squeeze(-1).to(widest_float(p.device))
    ratios = ratios.masked_fill((ratios == 0).long().cumsum(-1) > 0, 0)  # rows after an impossible draft may be empty
    walk = F.pad(ratios.log().cumsum(-1), (1, 0))  # min(1, reach ratio), one draft after another
    reach = (walk - walk.cummax(-1).values).exp()[..., None]
    p = torch.where(reach == 0, 0, p)
    rest = scaled_residual(p[..., :-1, :], q, reach[..., :-1, :].to(p))
    reach, left = reach[..., 1:, 0], rest.sum(-1)[..., 1:]
    whole = left + 1 - reach[..., :-1]
    return torch.cat([torch.where(whole > 0, left / whole, 1.0), reach[..., -1:]], -1), reach, torch.cat([rest, p[..., -1:, :]], -2)


def scaled_residual(p: Tensor, q: Tensor, reach: Tensor) -> Tensor:
    """max(0, reach p - q), not normalised: what a block leaves of p after a prefix of this weight. [..., V] x2, [..., 1] -> [..., V]."""
    return (reach * p - q).clamp(min=0)


def matches(tokens: Tensor, answers: Tensor) -> Tensor:
    """True where a token equals the model's own draw: bool [N]."""
    return tokens == answers


def leading(accepted: Tensor) -> int:
    """Number of leading True verdicts. One read from the device."""
    verdicts = accepted.tolist()
    return verdicts.index(False) if False in verdicts else len(verdicts)


def probability_of(p: Tensor, tokens: Tensor) -> Tensor:
    """p(x) of each token: the acceptance probability if acceptance is equality. [N, V], int64 [N] -> [N]."""
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


@dataclass(frozen=True)
class EnergyRule:
    """A threshold for energies, and the probability of reaching it.

    threshold : (slope [m], u [m], Θ) -> the energy that each draft must reach [m]; slope is sqrt(k / γ), see `ramp`
    chance    : (energies [...], slope [...], Θ) -> the probability over u that they reach it
    """

    threshold: Callable[[Tensor, Tensor, float], Tensor]
    chance: Callable[[Tensor, Tensor, float], Tensor]


# log u - Θ sqrt(k / γ): without smoothing, x is accepted with min(1, exp(Θ sqrt(k / γ)) p/q); at Θ = 0 this is speculative sampling.
CONSISTENT = EnergyRule(
    lambda slope, u, tolerance: u.log() - tolerance * slope,
    lambda energies, slope, tolerance: (energies + tolerance * slope).exp().clamp(max=1),
)
# Algorithm 2 as printed: max(τ sqrt(k / γ), u') with τ = -Θ and u' uniform in (τ, 0). At τ = 0 it accepts only where p >= q, so a draft
# with q > p is never accepted.
LITERAL = EnergyRule(
    lambda slope, u, tolerance: torch.maximum(-tolerance * slope, -tolerance * u),
    lambda energies, slope, tolerance: (energies >= -tolerance * slope) * (1 + energies / max(tolerance, 1e-12)).clamp(0, 1),
)


def energy(
    p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, smoothing: float, tolerance: float, horizon: int, rule: EnergyRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-Regression (section 4): draft k is accepted if its smoothed log ratio reaches a threshold that falls with sqrt(k / γ).

    p, q : [m, V]; tokens : int64 [m], drawn from q; u : [m] in (0, 1); smoothing : β; tolerance : Θ; horizon : γ.
    Returns accepted bool [m], smoothed energies [m] and thresholds [m] in the widest type. An impossible token is never accepted.
    """
    at = tokens[:, None]
    pairs = torch.cat([p.gather(1, at), q.gather(1, at)], 1).to(widest_float(p.device))
    probable, drafted = pairs.log().unbind(1)
    levels = smooth(probable - drafted, smoothing)
    least = rule.threshold(ramp(levels, horizon), u.to(levels), tolerance)
    return (levels >= least) & (probable > -torch.inf), levels, least


def smooth(energies: Tensor, smoothing: float) -> Tensor:
    """The bias-corrected moving average: at k the mean of E_1..E_k with weights β^(k-j); β = 0 changes nothing. [m] -> [m].

    An impossible token counts as -30, because log 0 would make every later average infinite.
    """
    energies = energies.clamp(min=-30)
    return average_weights(len(energies), smoothing).to(energies) @ energies if smoothing else energies


def average_weights(count: int, smoothing: float) -> Tensor:
    """The weights of the moving averages, float64 [m, m]: row k has the weights of E_1..E_k."""
    place = torch.arange(count)
    weights = (smoothing ** (place[:, None] - place).clamp(min=0).double()).tril()
    return weights / weights.sum(-1, keepdim=True)


def ramp(energies: Tensor, horizon: int) -> Tensor:
    """sqrt(k / γ) of drafts k = 1..m: later drafts get more tolerance. [m] -> [m]"""
    return (torch.arange(1, len(energies) + 1, dtype=energies.dtype, device=energies.device) / horizon).sqrt()


def after_energy(
    p: Tensor, q: Tensor, tokens: Tensor, levels: Tensor, smoothing: float, tolerance: float, horizon: int, rule: EnergyRule
) -> Tensor:
    """The output distribution [m, V] of each position given the energies before it, if its draft is drawn from q. Shapes as in `energy`."""
    own = average_weights(len(tokens), smoothing).diagonal().to(levels)[:, None]  # the weight of the draft's own energy in the average
    widest = widest_float(p.device)
    energies = (p.to(widest).log() - q.to(widest).log()).nan_to_num(nan=-30.0).clamp(min=-30)
    others = levels[:, None] - own * energies.gather(1, tokens[:, None])
    chance = rule.chance(others + own * energies, ramp(levels, horizon)[:, None], tolerance)
    return after_one_draw(p, q, torch.where(p > 0, q * chance.to(q), 0))


# --- trees ------------------------------------------------------------------------------------------------------------


def walk(parents: list[int], tokens: list[int], answers: list[int]) -> tuple[list[int], int]:
    """The accepted path and the token after it: goes down the tree as long as a child equals the model's own draw.

    The draw depends on p alone, so this is valid for any tree. It verifies children that were chosen and not drawn (EAGLE's code verifies
    them one after another, which gives the same distribution), and any children if the draws are those of plain decoding (match seed).
    answers : N+1 tokens, drawn from the distributions after the prefix and after every node.
    """
    below = {(parent, token): node for node, (parent, token) in reversed(list(enumerate(zip(parents, tokens, strict=True))))}
    path: list[int] = []
    at = -1
    while (at_next := below.get((at, answers[at + 1]))) is not None:
        path.append(at_next)
        at = at_next
    return path, answers[at + 1]


RowMass = Callable[[Tensor, Tensor], Tensor]  # distributions [R, V], tokens int64 [R] -> each token's mass [R]
Mass = Callable[[Tensor, Tensor], Tensor]  # distribution [V], tokens int64 [m] -> each token's mass [m]
Share = Callable[
    [Tensor, Tensor, int], float
]  # distribution [V], a sibling's distribution [V], its place -> the relaxed rule's share, 0 to 1


def probability(p: Tensor, tokens: Tensor) -> Tensor:
    """p(x), the mass in an exact rule. p [V], int64 [m] -> [m]."""
    return p[tokens]


def multi_round(
    p: Tensor, tokens: Tensor, probs: Tensor, u: list[float], mass: Mass = probability, share: Share | None = None
) -> tuple[int, Tensor, list[float]]:
    """Verifies sampled siblings one after another (SpecInfer, Miao et al. 2023; without replacement: Jeon et al. 2024).

    Sibling j is accepted with probability min(1, mass(p, x) / q_j(x)); if refused, p becomes the residual of p and q_j. With the exact
    mass the output has distribution p. A chosen child is one-hot: it is accepted with probability p(x) and removed from p if refused.
    p : [V]; tokens : int64 [b]; probs : [b, V], conditional on the earlier siblings; u : b numbers in (0, 1)
    share : weight of the mass's acceptance probability, against p's own; None: 1.
    Returns the accepted sibling (-1: none), the remaining distribution [V], and the acceptance probability of each sibling verified.
    """
    chances: list[float] = []
    for j in range(len(tokens)):
        token = tokens[j : j + 1]
        chance = (mass(p, token) / probs[j, token]).item()
        if share is not None:
            part, exact = share(p, probs[j], j), (p[token] / probs[j, token]).item()
            chance = part * min(1.0, chance) + (1 - part) * min(1.0, exact)
        chances.append(min(1.0, chance))
        if u[j] < chance:
            return j, p, chances
        p = residual(p, probs[j])
        p = p / p.sum()
    return -1, p, chances


# --- relaxed rules ----------------------------------------------------------------------------------------------------


def additive_mass(p: Tensor, tokens: Tensor, neighbours: Tensor, most: float) -> Tensor:
    """LANTERN (Jang et al., arXiv 2410.03355): x borrows the probability of its nearest neighbours, at most δ in total. Not exact.

    p : [V]; tokens : int64 [m]; neighbours : int64 [V, k], nearest first, without the token itself; most : δ. Returns [m].
    """
    return p[tokens] + _borrowed_mass(p, tokens, neighbours, torch.full_like(p[tokens], most))


def multiplicative_mass(p: Tensor, tokens: Tensor, neighbours: Tensor, factor: float) -> Tensor:
    """LANTERN++ (Park et al., arXiv 2502.06352): x borrows at most λ p(x), so no token gains more than (1 + λ) of its own. Not exact.

    p : [V]; tokens : int64 [m]; neighbours : int64 [V, k]; factor : λ. Returns [m].
    """
    return p[tokens] + _borrowed_mass(p, tokens, neighbours, factor * p[tokens])


def _borrowed_mass(p: Tensor, tokens: Tensor, neighbours: Tensor, most: Tensor) -> Tensor:
    """The mass [m] of the longest run of nearest neighbours that does not exceed `most` [m]."""
    return longest(p[neighbours[tokens]], most)


def longest(masses: Tensor, most: Tensor) -> Tensor:
    """The largest sum [m] of leading masses [m, k] that does not exceed `most` [m]."""
    run = masses.cumsum(-1)
    return torch.where(run <= most[:, None], run, 0).amax(-1)


def first_above(p: Tensor, soft: Tensor, tokens: Tensor, mass: Mass) -> tuple[int, Tensor, list[float]]:
    """LANTERN at temperature 0: the first sibling that is the model's token, or becomes it with the probability of its neighbours.

    p : [V], one-hot; soft : [V], the distribution whose best token has p = 1; tokens : int64 [b]. A sibling becomes the model's token if
    its mass exceeds the probability of every token; the neighbours it borrows from have less than their sum. Returns the same as
    `multi_round`; the remaining distribution is p.
    """
    wins = (p[tokens] > 0) | (mass(soft, tokens) > soft.max())
    which = int(wins.long().argmax()) if wins.any() else -1
    verified = len(tokens) if which < 0 else which + 1
    return which, p, [float(win) for win in wins[:verified].tolist()]


def after_one_draw(p: Tensor, q: Tensor, mass: Tensor) -> Tensor:
    """The output distribution if one draft from q is accepted with min(1, mass(x) / q(x)), else replaced by a draw from the exact residual.
    [..., V] x3 -> [..., V]."""
    accepted = torch.minimum(q, mass)
    rest = residual(p, q)
    return accepted + (1 - accepted.sum(-1, keepdim=True)) * rest / rest.sum(-1, keepdim=True)


def deviation(p: Tensor, probs: Tensor) -> Tensor:
    """Total variation distance of two distributions [..., V] -> [...]."""
    return (p - probs).abs().sum(-1) / 2

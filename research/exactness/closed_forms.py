"""The distributions that inexact rules must follow, computed by enumeration on the toy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Prompt, Rows
from engine.methods import spatial
from research.exactness.toy import Toy

Distribution = dict[tuple[int, ...], float]


def _rows_after(toy: Toy, path: tuple[int, ...]) -> Rows:
    sequence = toy.start(Prompt())
    for token in path:
        sequence.forward(NO_DRAFT)
        sequence.commit([], token)
    return sequence.forward(NO_DRAFT)


def _allowed_share(knobs: Mapping[str, Any], tokens: int, spent: float, deviation: float) -> float:
    """Returns the share of a relaxed rule that the budget allows, after `tokens` tokens that deviated by `spent` in total."""
    allowed = knobs.get("allowed_deviation", 1.0)
    return 1.0 if allowed >= 1 or deviation <= 0 else max(0.0, min(1.0, (allowed * (tokens + 1) - spent) / deviation))


def _distance(p: Tensor, q: Tensor) -> float:
    """Returns the total variation distance of two distributions [V]."""
    return (p - q).abs().sum().item() / 2


def threshold(toy: Toy, knobs: Mapping[str, Any]) -> Distribution:
    """Returns the distribution of XSpecMesh's rule on three positions: plain, verified, plain.

    The draft of the middle position comes from the first head at the root. With A the tokens whose raw probability is above δ and
    R = 1 - q(A), the rule gives q(v) [v in A] + R p(v).
    """
    root = _rows_after(toy, ())
    logits = toy.drafter("mesh_heads").guess(root.hidden[0, 0], 1)
    distribution: Distribution = {}
    for first, chance in enumerate(root.p[0].tolist()):
        rows = _rows_after(toy, (first,))
        q = torch.softmax(logits[0] / toy.sampling.temperature, -1)
        for second, then in enumerate(_threshold_probs(rows, q, knobs).tolist()):
            for third, last in enumerate(_rows_after(toy, (first, second)).p[0].tolist()):
                distribution[first, second, third] = chance * then * last
    return distribution


def _threshold_probs(rows: Rows, q: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    likely, p = torch.softmax(rows.logits[0, 0], -1) > knobs["accept_probability"], rows.p[0]
    out = q * likely + (1 - q[likely].sum()) * p
    share = _allowed_share(knobs, 1, 0.0, _distance(out, p))
    return share * out + (1 - share) * p


def relaxed_tree(toy: Toy, knobs: Mapping[str, Any]) -> Distribution:
    """Returns the distribution of LANTERN's rules on three positions: plain, verified by a tree of one level, plain.

    The residual is exact. Sampled children: every order of draws without replacement is enumerated, each draw with its distribution.
    Chosen children have one order.
    """
    root = _rows_after(toy, ())
    distribution: Distribution = {}
    for first, chance in enumerate(root.p[0].tolist()):
        sequence = toy.start(Prompt())
        sequence.forward(NO_DRAFT)
        sequence.commit([], first)
        logits = toy.drafter("feature_draft").start(sequence).root(root.hidden[:, :1], [first])
        q = sequence.probs_after(logits[None], [])[0]
        p = _rows_after(toy, (first,)).p[0]
        if knobs["children"] == "sampled":
            out = _probs_after_draws(p, q, knobs["width"], toy.codebook(), knobs)
        else:
            out = _probs_after_choices(p, q.argsort(descending=True)[: knobs["width"]].tolist(), toy.codebook(), knobs)
        for second, then in enumerate(out.tolist()):
            for third, last in enumerate(_rows_after(toy, (first, second)).p[0].tolist()):
                distribution[first, second, third] = chance * then * last
    return distribution


def _probs_after_draws(p: Tensor, q: Tensor, draws: int, codebook: Tensor, knobs: Mapping[str, Any], spent: float = 0.0) -> Tensor:
    """Returns the output distribution [V] after draws from q without replacement, each verified against p [V] with its neighbourhood.
    spent : the deviations of the earlier draws"""
    if draws == 0 or q.sum() < 1e-12:
        return p
    out = torch.zeros_like(p)
    residual = (p - q).clamp(min=0)
    residual = residual / residual.sum()
    mass = torch.stack([_pooled_mass(p, x, codebook, knobs).minimum(q[x]) for x in range(len(p))])
    deviation = _distance(p, mass + (1 - mass.sum()) * residual)
    share = _allowed_share(knobs, 1, spent, deviation)
    mass = share * mass + (1 - share) * torch.minimum(p, q)
    for x in range(len(p)):
        accepted = (mass[x] / q[x]).item() if q[x] > 0 else 0.0
        out[x] += q[x] * accepted
        others = q.clone()
        others[x] = 0
        rest = _probs_after_draws(residual, others / others.sum(), draws - 1, codebook, knobs, spent + share * deviation)
        out += q[x] * (1 - accepted) * rest
    return out


def _probs_after_choices(p: Tensor, tokens: list[int], codebook: Tensor, knobs: Mapping[str, Any], spent: float = 0.0) -> Tensor:
    """Returns the output distribution [V] after chosen tokens, each verified against p [V] with its neighbourhood and removed from p if
    rejected. spent : the deviations of the earlier tokens"""
    if not tokens:
        return p
    out = torch.zeros_like(p)
    own, borrowed = p[tokens[0]].item(), min(1.0, _pooled_mass(p, tokens[0], codebook, knobs).item())
    share = _allowed_share(knobs, 1, spent, borrowed - own)
    out[tokens[0]] = accepted = share * borrowed + (1 - share) * own
    rest = p.clone()
    rest[tokens[0]] = 0
    return out + (1 - accepted) * _probs_after_choices(rest / rest.sum(), tokens[1:], codebook, knobs, spent + share * (borrowed - own))


def _pooled_mass(p: Tensor, x: int, codebook: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    """Returns p(x) plus the mass of its nearest neighbours, as long as that mass is at most the budget."""
    order = sorted((v for v in range(len(p)) if v != x), key=lambda v: (codebook[v] - codebook[x]).norm().item())
    budget = knobs["added_mass"] if knobs["relax"] == "additive" else knobs["multiplied_mass"] * p[x]
    added = torch.zeros_like(p[x])
    for v in order[: round(knobs["neighbour_share"] * len(p))]:
        if added + p[v] > budget:
            break
        added = added + p[v]
    return p[x] + added


def energy_tolerance(toy: Toy, knobs: Mapping[str, Any]) -> Distribution:
    """Returns the distribution of Cross-Regression's rule on four positions with γ = 2: plain, two verified, plain.

    The drafts come from the distributions after the prompt and uniform noise. Draft k is accepted with min(1, exp(Θ sqrt(k / 2)) p/q). A
    rejection keeps the second draft and its distribution: it is draft 2 after an accepted draft, and draft 1 of the next pass after a
    rejected one.
    """
    root, draft_probs = _rows_after(toy, ()), _stream_probs(toy)
    distribution: Distribution = {}
    for first, chance in enumerate(root.p[0].tolist()):
        p = _rows_after(toy, (first,)).p[0]
        for second in range(toy.vocabulary):
            behind = _rows_after(toy, (first, second)).p[0]
            thirds = torch.zeros_like(p)
            for q, then in draft_probs:
                accepted, replaced, spent = _draft_outcome(p, q, knobs, 1, 1, 0.0)
                after = [sum(_draft_outcome(behind, then, knobs, k, 2, spent)[:2]) for k in (1, 2)]
                thirds += (accepted[second] * after[1] + replaced[second] * after[0]) / len(draft_probs)
            for third, last in enumerate(thirds.tolist()):
                for fourth, end in enumerate(_rows_after(toy, (first, second, third)).p[0].tolist()):
                    distribution[first, second, third, fourth] = chance * last * end
    return distribution


def _stream_probs(toy: Toy) -> list[tuple[Tensor, Tensor]]:
    """Returns the distributions [V] of positions 1 and 2 from two predictive rows after the prompt, for every noise they may read."""
    proposals = []
    for noise in product(range(toy.vocabulary), repeat=2):
        sequence = toy.start(Prompt())
        read = toy.drafter("predictive_stream").start(sequence)
        visible = torch.ones(3, 3, dtype=torch.bool).tril()
        predictive = torch.ones(2, dtype=torch.bool)
        rows = sequence.forward(Draft(torch.tensor(noise), positions=torch.arange(2), visible=visible, predictive=predictive))
        proposals.append(tuple(sequence.probs_after(read(rows, 1), [])))
    return proposals


def _draft_outcome(p: Tensor, q: Tensor, knobs: Mapping[str, Any], k: int, tokens: int, spent: float) -> tuple[Tensor, Tensor, float]:
    """Returns the probabilities [V] that draft k from q [V] is accepted as each token and that it is replaced by each token, and the
    deviation so far. tokens, spent : number and deviation of the earlier tokens"""
    accepted = torch.minimum(q, math.exp(knobs["energy_tolerance"] * math.sqrt(k / 2)) * p)
    residual = (p - q).clamp(min=0)
    residual = residual / residual.sum()
    deviation = _distance(p, accepted + (1 - accepted.sum()) * residual)
    share = _allowed_share(knobs, tokens, spent, deviation)
    accepted = share * accepted + (1 - share) * torch.minimum(p, q)
    return accepted, (1 - accepted.sum()) * residual, spent + share * deviation


def rows_corrected(toy: Toy, knobs: Mapping[str, Any]) -> Distribution:
    """Returns the distribution of rows that heads draft and at most one pass corrects, draft by draft (engine/methods/spatial.py)."""
    distribution: Distribution = dict.fromkeys(product(range(toy.vocabulary), repeat=toy.layout.rows * toy.layout.columns), 0.0)

    def descend(path: tuple[int, ...], chance: float) -> None:
        if len(path) == toy.layout.rows * toy.layout.columns:
            distribution[path] += chance
            return
        for block, share in _blocks(toy, path, knobs):
            descend((*path, *block), chance * share)

    descend((), 1.0)
    return distribution


def _blocks(toy: Toy, path: tuple[int, ...], knobs: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yields every block that may follow a path, with its probability."""
    n, columns = len(path), toy.layout.columns
    stop = n if n == 0 else min(n + knobs["depth"], columns) if n < columns else columns * (n // columns + 1)
    sequence, states = _replay(toy, path)
    none = torch.empty(0, dtype=torch.int64)
    q = spatial.predicted_probs(states, sequence, range(n, stop), none, knobs["foresee"]) if stop > n else none
    shares: Counter[tuple[int, ...]] = Counter()
    for drafts in product(range(toy.vocabulary), repeat=stop - n):
        draft_chances = [q[j, x].item() for j, x in enumerate(drafts)]
        if not knobs["rounds"]:
            shares[drafts] += math.prod(draft_chances)
            continue
        rows = _replay(toy, path)[0].forward(Draft(torch.tensor(drafts, dtype=torch.int64)))
        for tokens in product(range(toy.vocabulary), repeat=stop - n):
            becomes = [_outcome_chance(rows.p[j], q[j], x, y) for j, (x, y) in enumerate(zip(drafts, tokens, strict=True))]
            shares[tokens] += math.prod(draft_chances) * math.prod(becomes)
    for tokens, share in shares.items():
        last = _replay(toy, path)[0].forward(Draft(torch.tensor(tokens, dtype=torch.int64))).p[-1].tolist()
        ends = stop == toy.layout.rows * columns
        yield from [(tokens, share)] if ends else [((*tokens, token), share * p) for token, p in enumerate(last)]


def _replay(toy: Toy, path: tuple[int, ...]) -> tuple[Any, Any]:
    """Feeds a path to a new sequence token by token; returns it with the states of its heads."""
    sequence = toy.start(Prompt())
    states = toy.drafter("spatial_heads").start(sequence)
    for i, token in enumerate(path):
        states.observe(i, sequence.forward(NO_DRAFT))
        sequence.commit([], token)
    return sequence, states


def _outcome_chance(p: Tensor, q: Tensor, x: int, y: int) -> float:
    """Returns the probability that a draft x from q [V] ends as y by speculative sampling against p [V]."""
    accepted, residual = min(1.0, (p[x] / q[x]).item()), (p - q).clamp(min=0)
    return accepted * (x == y) + (1 - accepted) * (residual[y] / residual.sum()).item() if accepted < 1 else float(x == y)


AcceptanceRule = Callable[[Tensor, Tensor, int, Tensor, Mapping[str, Any]], float]  # (p [V], q [V], draft, codes, knobs) -> P(accept)


def _one_draft_windows(toy: Toy, knobs: Mapping[str, Any], chance: AcceptanceRule) -> Distribution:
    """Returns the distribution of a rule on three positions with windows of one draft.

    The first draft is uniform. If it is rejected, the next comes from the distribution after the rejected draft; if it is accepted, a free
    draw follows and there is no second draft.
    """
    codes = toy.codebook()
    p = {path: _rows_after(toy, path).p[0] for count in range(3) for path in product(range(toy.vocabulary), repeat=count)}
    first, uniform = p[()], torch.full_like(p[()], 1 / toy.vocabulary)
    residual = (first - uniform).clamp(min=0)
    residual = residual / residual.sum()
    distribution: Distribution = dict.fromkeys(product(range(toy.vocabulary), repeat=3), 0.0)
    chances, spent = _acceptance_chances(first, uniform, codes, knobs, chance, 0, 0.0)
    for draft in range(toy.vocabulary):
        accepted = chances[draft]
        for second, last in product(range(toy.vocabulary), repeat=2):
            then = (uniform[draft] * accepted * p[draft,][second] * p[draft, second][last]).item()
            distribution[draft, second, last] += then
        for token, share in enumerate((uniform[draft] * (1 - accepted) * residual).tolist()):
            out = _probs_after_one_draft(p[token,], p[draft,], codes, knobs, chance, 1, spent)
            for second, last in product(range(toy.vocabulary), repeat=2):
                distribution[token, second, last] += share * (out[second] * p[token, second][last]).item()
    return distribution


def _acceptance_chances(
    p: Tensor, q: Tensor, codes: Tensor, knobs: Mapping[str, Any], chance: AcceptanceRule, tokens: int, spent: float
) -> tuple[Tensor, float]:
    """Returns the probability that a draft is accepted if it is each token [V], and the deviation of the tokens so far."""
    relaxed = torch.tensor([chance(p, q, x, codes, knobs) for x in range(len(p))], dtype=p.dtype)
    deviation = _distance(p, _output_probs(p, q, relaxed))
    share = _allowed_share(knobs, tokens, spent, deviation)
    return share * relaxed + (1 - share) * (p / q).clamp(max=1), spent + share * deviation


def _output_probs(p: Tensor, q: Tensor, chances: Tensor) -> Tensor:
    """Returns the output distribution [V] of a draft from q [V] accepted with these chances [V], with the residual of single tokens."""
    accepted, residual = q * chances, (p - q).clamp(min=0)
    return accepted if residual.sum() < 1e-12 else accepted + (1 - accepted.sum()) * residual / residual.sum()


def _probs_after_one_draft(
    p: Tensor, q: Tensor, codes: Tensor, knobs: Mapping[str, Any], chance: AcceptanceRule, tokens: int = 0, spent: float = 0.0
) -> Tensor:
    """Returns the output distribution [V] after a rule verified one draft from q [V].
    tokens, spent : number and deviation of the earlier tokens"""
    return _output_probs(p, q, _acceptance_chances(p, q, codes, knobs, chance, tokens, spent)[0])


def _group_chance(p: Tensor, q: Tensor, x: int, codes: Tensor, knobs: Mapping[str, Any]) -> float:
    """Returns min(1, P(G) / Q(G)) for the group G around x: from `half_width` ranks below x to `half_width` - 1 above."""
    order = sorted(range(len(p)), key=lambda v: (p[v].item(), v))
    rank, half = order.index(x), knobs["half_width"]
    members = {x}
    for v in order[max(0, rank - half) : rank + half]:
        cosine = codes[v] @ codes[x] / (codes[v].norm() * codes[x].norm())
        if abs(p[v] - p[x]) < knobs["probability_gap"] and 1 - cosine < knobs["code_distance"]:
            members.add(v)
    return min(1.0, (sum(p[v] for v in members) / sum(q[v] for v in members)).item())


def _lantern_chance(p: Tensor, q: Tensor, x: int, codes: Tensor, knobs: Mapping[str, Any]) -> float:
    """Returns LANTERN's min(1, mass(x) / q(x))."""
    return min(1.0, (_pooled_mass(p, x, codes, knobs) / q[x]).item())


CLOSED_FORMS: dict[str, Callable[[Toy, Mapping[str, Any]], Distribution]] = {
    "threshold": threshold,
    "relaxed tree": relaxed_tree,
    "energy tolerance": energy_tolerance,
    "grouped window": partial(_one_draft_windows, chance=_group_chance),
    "rows corrected": rows_corrected,
    "relaxed window": partial(_one_draft_windows, chance=_lantern_chance),
}

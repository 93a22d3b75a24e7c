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


def _rows_behind(toy: Toy, path: tuple[int, ...]) -> Rows:
    sequence = toy.start(Prompt())
    for token in path:
        sequence.forward(NO_DRAFT)
        sequence.commit([], token)
    return sequence.forward(NO_DRAFT)


def _share(knobs: Mapping[str, Any], tokens: int, spent: float, deviation: float) -> float:
    """Returns the share of a relaxed rule that the budget allows, after `tokens` tokens that deviated by `spent` in all."""
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
    root = _rows_behind(toy, ())
    logits = toy.drafter("mesh_heads").guess(root.hidden[0, 0], 1)
    distribution: Distribution = {}
    for first, chance in enumerate(root.p[0].tolist()):
        rows = _rows_behind(toy, (first,))
        q = torch.softmax(logits[0] / toy.sampling.temperature, -1)
        for second, then in enumerate(_accepted_above(rows, q, knobs).tolist()):
            for third, last in enumerate(_rows_behind(toy, (first, second)).p[0].tolist()):
                distribution[first, second, third] = chance * then * last
    return distribution


def _accepted_above(rows: Rows, q: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    likely, p = torch.softmax(rows.logits[0, 0], -1) > knobs["accept_probability"], rows.p[0]
    out = q * likely + (1 - q[likely].sum()) * p
    share = _share(knobs, 1, 0.0, _distance(out, p))
    return share * out + (1 - share) * p


def relaxed_tree(toy: Toy, knobs: Mapping[str, Any]) -> Distribution:
    """Returns the distribution of LANTERN's rules on three positions: plain, verified by a tree of one level, plain.

    The residual is the exact one. For sampled children, every order of draws without replacement is enumerated, with the distribution of
    each draw; for chosen children there is one order.
    """
    root = _rows_behind(toy, ())
    distribution: Distribution = {}
    for first, chance in enumerate(root.p[0].tolist()):
        sequence = toy.start(Prompt())
        sequence.forward(NO_DRAFT)
        sequence.commit([], first)
        logits = toy.drafter("feature_draft").start(sequence).root(root.hidden[:, :1], [first])
        q = sequence.probs_after(logits[None], [])[0]
        p = _rows_behind(toy, (first,)).p[0]
        if knobs["children"] == "sampled":
            out = _behind_draws(p, q, knobs["width"], toy.codebook(), knobs)
        else:
            out = _behind_choices(p, q.argsort(descending=True)[: knobs["width"]].tolist(), toy.codebook(), knobs)
        for second, then in enumerate(out.tolist()):
            for third, last in enumerate(_rows_behind(toy, (first, second)).p[0].tolist()):
                distribution[first, second, third] = chance * then * last
    return distribution


def _behind_draws(p: Tensor, q: Tensor, draws: int, codebook: Tensor, knobs: Mapping[str, Any], spent: float = 0.0) -> Tensor:
    """Returns the output distribution [V] after draws from q without replacement, each verified against p [V] with its neighbourhood.
    spent : the deviations of the earlier draws"""
    if draws == 0 or q.sum() < 1e-12:
        return p
    out = torch.zeros_like(p)
    left = (p - q).clamp(min=0)
    left = left / left.sum()
    taken = torch.stack([_credited(p, x, codebook, knobs).minimum(q[x]) for x in range(len(p))])
    away = _distance(p, taken + (1 - taken.sum()) * left)
    share = _share(knobs, 1, spent, away)
    taken = share * taken + (1 - share) * torch.minimum(p, q)
    for x in range(len(p)):
        accepted = (taken[x] / q[x]).item() if q[x] > 0 else 0.0
        out[x] += q[x] * accepted
        others = q.clone()
        others[x] = 0
        out += q[x] * (1 - accepted) * _behind_draws(left, others / others.sum(), draws - 1, codebook, knobs, spent + share * away)
    return out


def _behind_choices(p: Tensor, tokens: list[int], codebook: Tensor, knobs: Mapping[str, Any], spent: float = 0.0) -> Tensor:
    """Returns the output distribution [V] after chosen tokens, each verified against p [V] with its neighbourhood and removed from p if
    rejected. spent : the deviations of the earlier tokens"""
    if not tokens:
        return p
    out = torch.zeros_like(p)
    own, borrowed = p[tokens[0]].item(), min(1.0, _credited(p, tokens[0], codebook, knobs).item())
    share = _share(knobs, 1, spent, borrowed - own)
    out[tokens[0]] = accepted = share * borrowed + (1 - share) * own
    left = p.clone()
    left[tokens[0]] = 0
    return out + (1 - accepted) * _behind_choices(left / left.sum(), tokens[1:], codebook, knobs, spent + share * (borrowed - own))


def _credited(p: Tensor, x: int, codebook: Tensor, knobs: Mapping[str, Any]) -> Tensor:
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
    root, draft_probs = _rows_behind(toy, ()), _proposed(toy)
    distribution: Distribution = {}
    for first, chance in enumerate(root.p[0].tolist()):
        p = _rows_behind(toy, (first,)).p[0]
        for second in range(toy.vocabulary):
            behind = _rows_behind(toy, (first, second)).p[0]
            thirds = torch.zeros_like(p)
            for q, then in draft_probs:
                accepted, replaced, spent = _tolerated(p, q, knobs, 1, 1, 0.0)
                after = [sum(_tolerated(behind, then, knobs, k, 2, spent)[:2]) for k in (1, 2)]
                thirds += (accepted[second] * after[1] + replaced[second] * after[0]) / len(draft_probs)
            for third, last in enumerate(thirds.tolist()):
                for fourth, end in enumerate(_rows_behind(toy, (first, second, third)).p[0].tolist()):
                    distribution[first, second, third, fourth] = chance * last * end
    return distribution


def _proposed(toy: Toy) -> list[tuple[Tensor, Tensor]]:
    """Returns the distributions [V] of positions 1 and 2 from two predictive rows after the prompt, for every noise that they may read."""
    proposals = []
    for noise in product(range(toy.vocabulary), repeat=2):
        sequence = toy.start(Prompt())
        read = toy.drafter("predictive_stream").start(sequence)
        visible = torch.ones(3, 3, dtype=torch.bool).tril()
        predictive = torch.ones(2, dtype=torch.bool)
        rows = sequence.forward(Draft(torch.tensor(noise), positions=torch.arange(2), visible=visible, predictive=predictive))
        proposals.append(tuple(sequence.probs_after(read(rows, 1), [])))
    return proposals


def _tolerated(p: Tensor, q: Tensor, knobs: Mapping[str, Any], k: int, tokens: int, spent: float) -> tuple[Tensor, Tensor, float]:
    """Returns the probabilities that draft k from q [V] is accepted as each token, and that it is replaced by each token, both [V]; and the
    deviation of the tokens so far. tokens, spent : those before"""
    accepted = torch.minimum(q, math.exp(knobs["energy_tolerance"] * math.sqrt(k / 2)) * p)
    left = (p - q).clamp(min=0)
    left = left / left.sum()
    away = _distance(p, accepted + (1 - accepted.sum()) * left)
    share = _share(knobs, tokens, spent, away)
    accepted = share * accepted + (1 - share) * torch.minimum(p, q)
    return accepted, (1 - accepted.sum()) * left, spent + share * away


def rows_corrected(toy: Toy, knobs: Mapping[str, Any]) -> Distribution:
    """Returns the distribution of rows that heads draft and that no or one pass corrects, draft by draft (engine/methods/spatial.py)."""
    distribution: Distribution = dict.fromkeys(product(range(toy.vocabulary), repeat=toy.layout.rows * toy.layout.columns), 0.0)

    def descend(path: tuple[int, ...], chance: float) -> None:
        if len(path) == toy.layout.rows * toy.layout.columns:
            distribution[path] += chance
            return
        for more, share in _blocks(toy, path, knobs):
            descend((*path, *more), chance * share)

    descend((), 1.0)
    return distribution


def _blocks(toy: Toy, path: tuple[int, ...], knobs: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yields the tokens of the block after a path, and their probability."""
    n, columns = len(path), toy.layout.columns
    stop = n if n == 0 else min(n + knobs["depth"], columns) if n < columns else columns * (n // columns + 1)
    sequence, states = _replayed(toy, path)
    none = torch.empty(0, dtype=torch.int64)
    q = spatial.predicted_probs(states, sequence, range(n, stop), none, knobs["foresee"]) if stop > n else none
    shares: Counter[tuple[int, ...]] = Counter()
    for drafts in product(range(toy.vocabulary), repeat=stop - n):
        drawn = [q[j, x].item() for j, x in enumerate(drafts)]
        if not knobs["rounds"]:
            shares[drafts] += math.prod(drawn)
            continue
        rows = _replayed(toy, path)[0].forward(Draft(torch.tensor(drafts, dtype=torch.int64)))
        for tokens in product(range(toy.vocabulary), repeat=stop - n):
            becomes = [_becomes(rows.p[j], q[j], x, y) for j, (x, y) in enumerate(zip(drafts, tokens, strict=True))]
            shares[tokens] += math.prod(drawn) * math.prod(becomes)
    for tokens, share in shares.items():
        last = _replayed(toy, path)[0].forward(Draft(torch.tensor(tokens, dtype=torch.int64))).p[-1].tolist()
        ends = stop == toy.layout.rows * columns
        yield from [(tokens, share)] if ends else [((*tokens, token), share * p) for token, p in enumerate(last)]


def _replayed(toy: Toy, path: tuple[int, ...]) -> tuple[Any, Any]:
    """Returns a sequence that was fed a path token by token, and the heads' states of it."""
    sequence = toy.start(Prompt())
    states = toy.drafter("spatial_heads").start(sequence)
    for i, token in enumerate(path):
        states.observe(i, sequence.forward(NO_DRAFT))
        sequence.commit([], token)
    return sequence, states


def _becomes(p: Tensor, q: Tensor, x: int, y: int) -> float:
    """Returns the probability that a draft x from q [V] ends as y by speculative sampling against p [V]."""
    accepted, left = min(1.0, (p[x] / q[x]).item()), (p - q).clamp(min=0)
    return accepted * (x == y) + (1 - accepted) * (left[y] / left.sum()).item() if accepted < 1 else float(x == y)


Chance = Callable[[Tensor, Tensor, int, Tensor, Mapping[str, Any]], float]  # (p [V], q [V], draft, codes, knobs) -> P(accept)


def _window(toy: Toy, knobs: Mapping[str, Any], chance: Chance) -> Distribution:
    """Returns the distribution of a rule on three positions with windows of one draft.

    The first draft is uniform. If it is rejected, the next comes from the distribution after the rejected draft; if it is accepted, a free
    draw follows and there is no second draft.
    """
    codes = toy.codebook()
    p = {path: _rows_behind(toy, path).p[0] for count in range(3) for path in product(range(toy.vocabulary), repeat=count)}
    first, uniform = p[()], torch.full_like(p[()], 1 / toy.vocabulary)
    refused = (first - uniform).clamp(min=0)
    refused = refused / refused.sum()
    distribution: Distribution = dict.fromkeys(product(range(toy.vocabulary), repeat=3), 0.0)
    chances, spent = _chances(first, uniform, codes, knobs, chance, 0, 0.0)
    for draft in range(toy.vocabulary):
        accepted = chances[draft]
        for second, last in product(range(toy.vocabulary), repeat=2):
            then = (uniform[draft] * accepted * p[draft,][second] * p[draft, second][last]).item()
            distribution[draft, second, last] += then
        for token, share in enumerate((uniform[draft] * (1 - accepted) * refused).tolist()):
            out = _behind_one_draft(p[token,], p[draft,], codes, knobs, chance, 1, spent)
            for second, last in product(range(toy.vocabulary), repeat=2):
                distribution[token, second, last] += share * (out[second] * p[token, second][last]).item()
    return distribution


def _chances(
    p: Tensor, q: Tensor, codes: Tensor, knobs: Mapping[str, Any], chance: Chance, tokens: int, spent: float
) -> tuple[Tensor, float]:
    """Returns the probability that a draft is accepted if it is each token [V], and the deviation of the tokens so far."""
    relaxed = torch.tensor([chance(p, q, x, codes, knobs) for x in range(len(p))], dtype=p.dtype)
    away = _distance(p, _replaced(p, q, relaxed))
    share = _share(knobs, tokens, spent, away)
    return share * relaxed + (1 - share) * (p / q).clamp(max=1), spent + share * away


def _replaced(p: Tensor, q: Tensor, chances: Tensor) -> Tensor:
    """Returns the output distribution [V] of a draft from q [V] accepted with these chances [V]; the residual is that of single tokens."""
    accepted, left = q * chances, (p - q).clamp(min=0)
    return accepted if left.sum() < 1e-12 else accepted + (1 - accepted.sum()) * left / left.sum()


def _behind_one_draft(
    p: Tensor, q: Tensor, codes: Tensor, knobs: Mapping[str, Any], chance: Chance, tokens: int = 0, spent: float = 0.0
) -> Tensor:
    """Returns the output distribution [V] after a rule verified one draft from q [V]. tokens, spent : those before, and their deviation"""
    return _replaced(p, q, _chances(p, q, codes, knobs, chance, tokens, spent)[0])


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


def _lent_chance(p: Tensor, q: Tensor, x: int, codes: Tensor, knobs: Mapping[str, Any]) -> float:
    """Returns LANTERN's min(1, mass(x) / q(x))."""
    return min(1.0, (_credited(p, x, codes, knobs) / q[x]).item())


CLOSED_FORMS: dict[str, Callable[[Toy, Mapping[str, Any]], Distribution]] = {
    "threshold": threshold,
    "relaxed tree": relaxed_tree,
    "energy tolerance": energy_tolerance,
    "grouped window": partial(_window, chance=_group_chance),
    "rows corrected": rows_corrected,
    "relaxed window": partial(_window, chance=_lent_chance),
}

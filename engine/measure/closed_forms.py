"""Laws that a rule which is not exact must still follow to the letter, computed by enumeration on the toy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from engine.backbones.toy import Toy
from engine.core import NO_DRAFT, Prompt, Rows

Law = dict[tuple[int, ...], float]


def _rows_behind(toy: Toy, path: tuple[int, ...]) -> Rows:
    sequence = toy.start(Prompt())
    for token in path:
        sequence.forward(NO_DRAFT)
        sequence.commit([], token)
    return sequence.forward(NO_DRAFT)


def threshold(toy: Toy, knobs: Mapping[str, Any]) -> Law:
    """XSpecMesh's rule on three positions: plain, verified, plain.

    The draft of the middle position comes from the first head at the root. With A the tokens whose raw probability is above δ and
    R = 1 - q(A), the rule gives q(v) [v in A] + R p(v).
    """
    root = _rows_behind(toy, ())
    logits = toy.drafter("mesh_heads").guess(root.hidden[0, 0])
    law: Law = {}
    for first, chance in enumerate(root.p[0].tolist()):
        rows = _rows_behind(toy, (first,))
        q = torch.softmax(logits[0] / toy.sampling.temperature, -1)
        for second, then in enumerate(_accepted_above(rows, q, knobs["accept_probability"]).tolist()):
            for third, last in enumerate(_rows_behind(toy, (first, second)).p[0].tolist()):
                law[first, second, third] = chance * then * last
    return law


def _accepted_above(rows: Rows, q: Tensor, least: float) -> Tensor:
    likely = torch.softmax(rows.logits[0, 0], -1) > least
    return q * likely + (1 - q[likely].sum()) * rows.p[0]


def relaxed_tree(toy: Toy, knobs: Mapping[str, Any]) -> Law:
    """LANTERN's rules on three positions: plain, verified by a tree of one level, plain. The residual is the exact one.

    Drawn children: every order of draws without replacement is followed, with the law of each draw. Chosen children: one order.
    """
    root = _rows_behind(toy, ())
    law: Law = {}
    for first, chance in enumerate(root.p[0].tolist()):
        sequence = toy.start(Prompt())
        sequence.forward(NO_DRAFT)
        sequence.commit([], first)
        logits = toy.drafter("feature_draft").start(sequence).root(root.hidden[:, :1], [first])
        q = sequence.law(logits[None], [])[0]
        p = _rows_behind(toy, (first,)).p[0]
        if knobs["children"] == "sampled":
            out = _behind_draws(p, q, knobs["width"], toy.codebook(), knobs)
        else:
            out = _behind_choices(p, q.argsort(descending=True)[: knobs["width"]].tolist(), toy.codebook(), knobs)
        for second, then in enumerate(out.tolist()):
            for third, last in enumerate(_rows_behind(toy, (first, second)).p[0].tolist()):
                law[first, second, third] = chance * then * last
    return law


def _behind_draws(p: Tensor, q: Tensor, draws: int, codebook: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    """The law [V] behind some draws from q without replacement, each asked against p [V] with its neighbourhood."""
    if draws == 0 or q.sum() < 1e-12:
        return p
    out = torch.zeros_like(p)
    left = (p - q).clamp(min=0)
    left = left / left.sum()
    for x in range(len(p)):
        accepted = min(1.0, (_credited(p, x, codebook, knobs) / q[x]).item())
        out[x] += q[x] * accepted
        others = q.clone()
        others[x] = 0
        out += q[x] * (1 - accepted) * _behind_draws(left, others / others.sum(), draws - 1, codebook, knobs)
    return out


def _behind_choices(p: Tensor, tokens: list[int], codebook: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    """The law [V] behind chosen tokens, each asked against p [V] with its neighbourhood and struck out of p when refused."""
    if not tokens:
        return p
    out = torch.zeros_like(p)
    out[tokens[0]] = accepted = min(1.0, _credited(p, tokens[0], codebook, knobs))
    left = p.clone()
    left[tokens[0]] = 0
    return out + (1 - accepted) * _behind_choices(left / left.sum(), tokens[1:], codebook, knobs)


def _credited(p: Tensor, x: int, codebook: Tensor, knobs: Mapping[str, Any]) -> Tensor:
    """p(x) and what its nearest neighbours add as long as that is at most the budget."""
    order = sorted((v for v in range(len(p)) if v != x), key=lambda v: (codebook[v] - codebook[x]).norm().item())
    budget = knobs["added_mass"] if knobs["relax"] == "additive" else knobs["multiplied_mass"] * p[x]
    added = torch.zeros_like(p[x])
    for v in order[: round(knobs["neighbour_share"] * len(p))]:
        if added + p[v] > budget:
            break
        added = added + p[v]
    return p[x] + added


CLOSED_FORMS: dict[str, Callable[[Toy, Mapping[str, Any]], Law]] = {"threshold": threshold, "relaxed tree": relaxed_tree}

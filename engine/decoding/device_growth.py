"""Growth of a draft tree on the device: the same tree as engine/decoding/growth.py, with one read at the end instead of one per level.

A level has a fixed number of places, whatever the scores: `width` expanded nodes with `width` children each. A place without a possible
child has the score -inf; it ranks last and is dropped when the host has read the tree. Scores never rise along a path, so a node's
rank among all nodes is the rank of its path. No grammar may depend on the drafts, and no threshold may stop the growth.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.core import Sequence
from engine.decoding.growth import LATER, Tree, TreeSize, proposals, weights
from engine.drafters.feature_draft import FeatureGrowth
from engine.machine import widest_float
from engine.noise import Noise


def grows_there(sequence: Sequence, shape: TreeSize) -> bool:
    """True if a tree of this shape can be grown on the sequence's device without reads: a GPU with float64."""
    is_able = sequence.device.type != "cpu" and widest_float(sequence.device) == torch.float64
    return is_able and sequence.state([]) is None and shape.least_node == shape.least_level == 0


def grow_there(
    growth: FeatureGrowth, logits: Tensor, sequence: Sequence, shape: TreeSize, room: int, kind: str, noise: Noise, iteration: int,
    seeded: bool,
) -> Tree:  # fmt: skip
    """The tree of `growth.grow`; the arguments are the same."""
    levels = min(shape.depth, room)
    frontier = torch.full((1,), -1, device=logits.device)  # the nodes whose children come next
    behind = torch.zeros(1, dtype=torch.float64, device=logits.device)  # their scores
    columns: list[Tensor] = []  # by level: tokens, parents, drawn, and the drafter's numbers of the parents, int64 [4, F C]
    scores: list[Tensor] = []  # by level: float64 [F C]
    bases: list[Tensor] = []  # by level: the distributions after its parents [F, V]
    logits, first, expanded = logits[None], 0, -1  # number of the level's first node, and the drafter's of its first parent
    for level in range(levels):
        if level:
            order = leaders(scores[-1], shape.width)
            tokens, _, _, numbers = columns[-1][:, order].unbind()
            logits = growth.expand(numbers, tokens)
            frontier, behind = first + order, scores[-1][order]
            first += len(scores[-1])
        probs = sequence.probs_after(logits, [])
        draw_weights = weights(noise, sequence.length + level, probs.shape, iteration, level, seeded)
        tokens, drawn, chances = children_of(probs, logits, shape, kind, draw_weights)
        numbers = expanded + torch.arange(len(frontier), device=logits.device)
        parents = (each[:, None].expand_as(tokens) for each in (frontier, drawn, numbers))
        columns.append(torch.stack([each.flatten() for each in (tokens, *parents)]))
        scores.append((behind[:, None] + chances.log()).flatten())
        bases.append(probs)
        expanded += len(frontier)
    return read_tree(torch.cat(columns, 1), torch.cat(scores), torch.cat(bases), shape, levels)


def leaders(scores: Tensor, count: int) -> Tensor:
    """The places of the `count` greatest scores, an earlier one winning a tie, in order of place; impossible ones last."""
    best = scores.sort(descending=True, stable=True)
    places, values = best.indices[:count], best.values[:count]
    return places[(places + len(scores) * (values == -torch.inf)).argsort()]


def children_of(
    probs: Tensor, logits: Tensor, shape: TreeSize, kind: str, draw_weights: Callable[[], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The children of each node of a frontier, as `growth.families` gives them: tokens int64 [F, C], whether the node draws them
    int64 [F], and acceptance probabilities float64 [F, C], 0 for impossible ones. probs, logits : [F, V]"""
    sampled, keys, gains = proposals(probs, logits, shape, kind, draw_weights)
    best = keys.topk(min(shape.width, probs.shape[-1]), -1)
    peak, place = probs.amax(-1, keepdim=True).double(), torch.arange(best.indices.shape[1], device=probs.device)
    drawn = torch.where(place == 0, peak, (1 - peak) * (1 - LATER * peak) ** (place - 1) * LATER * peak)
    chances = torch.where(sampled[:, None], drawn, gains.gather(1, best.indices).double()).clamp(1e-30, 1)
    return best.indices, sampled.long(), torch.where(best.values > 0, chances, 0)


def read_tree(columns: Tensor, scores: Tensor, bases: Tensor, shape: TreeSize, passes: int) -> Tree:
    """The tree of the best nodes, in one read. columns : int64 [4, M], see `grow_there`; scores : [M]; bases : [sum of F, V]"""
    nodes = leaders(scores, shape.nodes)
    tokens, parents, drawn, numbers = columns[:, nodes].unbind()
    possible = scores[nodes] > -torch.inf
    probs = sibling_probs_there(bases[numbers + 1], tokens, parents, drawn > 0)
    rows = torch.stack([nodes, tokens, parents, drawn, possible.long()]).tolist()
    kept = sum(rows[4])  # the possible ones come first
    place = {-1: -1} | {node: i for i, node in enumerate(rows[0][:kept])}
    is_drawn = [each > 0 for each in rows[3][:kept]]
    return Tree(
        rows[1][:kept], [place[parent] for parent in rows[2][:kept]], probs[:kept] if any(is_drawn) else None, is_drawn, passes, shape
    )  # fmt: skip


def sibling_probs_there(probs: Tensor, tokens: Tensor, parents: Tensor, drawn: Tensor) -> Tensor:
    """`growth.sibling_probs` by tensors: probs [N, V], tokens and parents int64 [N], drawn bool [N] -> [N, V]."""
    order = torch.arange(len(tokens), device=tokens.device)
    earlier = (parents[:, None] == parents) & (order[:, None] > order) & drawn[:, None]
    struck = torch.zeros_like(probs).scatter_add_(1, tokens.expand(len(tokens), -1), earlier.to(probs.dtype))
    rest = probs.masked_fill(struck > 0, 0)
    chosen = torch.zeros_like(probs).scatter_(1, tokens[:, None], 1.0)
    rest = torch.where(drawn[:, None], rest, chosen)
    return rest / rest.sum(-1, keepdim=True)

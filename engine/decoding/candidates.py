"""Several candidates for the first slots of a window: how they are drawn, and the tree in which one pass verifies them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft
from engine.decoding import growth
from engine.decoding.growth import Tree
from engine.noise import Noise


@dataclass(frozen=True)
class Shape:
    """A tree over the slots of a window. Nodes 0..m-1 are the chain of first candidates; the others follow, parents before children.

    parents : of each node, -1 = after the prefix; slots : of each node, 0 = right after the prefix; ranks : which candidate of its slot
    """

    parents: list[int]
    slots: list[int]
    ranks: list[int]


def shape_of(counts: list[int], levels: int) -> Shape:
    """The tree of slots with so many candidates each: under every node of the first `levels` slots, all candidates of the next one; behind
    them the chain of first candidates alone."""
    size = len(counts)
    parents, slots, ranks = list(range(-1, size - 1)), list(range(size)), [0] * size
    above = [-1]
    for slot in range(min(levels, size)):
        nodes = []
        for parent in above:
            for rank in range(counts[slot]):
                if parent == slot - 1 and rank == 0:
                    nodes.append(slot)
                    continue
                nodes.append(len(parents))
                parents.append(parent)
                slots.append(slot)
                ranks.append(rank)
        above = nodes
    return Shape(parents, slots, ranks)


def race(tokens: Tensor, laws: Tensor, noise: Noise, n: int, count: int) -> list[list[int]]:
    """The candidates of slots n, n+1, ...: the given token first, then draws without replacement from the rest of its distribution, `count`
    in all, or as many as are possible.

    tokens : int64 [m]; laws : [m, V]. The position's Gumbel noise gives the draws. If the first token is the greatest of log law + noise,
    the order of the others is a race without it; if it was drawn without this noise, the noise is fresh. Both are draws without
    replacement.
    """
    keys = laws.log() + noise.gumbel(n, len(tokens))
    best = keys.scatter(1, tokens[:, None], torch.inf).topk(min(count, keys.shape[1]), -1)
    found = torch.where(best.values == -torch.inf, -1, best.indices).tolist()
    return [[token for token in slot if token >= 0] for slot in found]


def tree_of(tokens: Tensor, laws: Tensor, noise: Noise, n: int, count: int, levels: int) -> tuple[Tree, Shape]:
    """The tree of a window, tokens int64 [m] drawn from laws [m, V], with up to `count` candidates in its first `levels` slots."""
    levels = min(levels, len(tokens)) if count > 1 else 0
    found = race(tokens[:levels], laws[:levels], noise, n, count) if levels else []
    candidates = found + [[token] for token in tokens[levels:].tolist()]
    shape = shape_of([len(slot) for slot in candidates], levels)
    chosen = [candidates[slot][rank] for slot, rank in zip(shape.slots, shape.ranks, strict=True)]
    drawn = [True] * len(chosen)
    behind = growth.sibling_laws(laws[shape.slots], chosen, shape.parents, drawn) if chosen else None
    return Tree(chosen, shape.parents, behind, drawn, 0, None), shape


def draft_of(tree: Tree, size: int) -> Draft:
    """The Draft of a tree over `size` slots; a chain needs no parents."""
    if len(tree.tokens) > size:
        return tree.draft()
    return Draft(torch.tensor(tree.tokens), q=tree.laws) if size else NO_DRAFT


def spine(shape: Shape, path: list[int], size: int) -> list[int]:
    """The nodes whose rows give the newest distributions of the slots behind the token after an accepted path: first candidates under the
    path as far as the tree goes, then the chain. One for each slot from the path's end on."""
    first = {parent: node for node, parent in reversed(list(enumerate(shape.parents)))}
    found, at = [], path[-1] if path else -1
    for slot in range(len(path), size):
        at = first.get(at, slot)
        found.append(at)
    return found

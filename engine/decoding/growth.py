"""Growth of a draft tree, level by level, from a drafter's distributions.

Drawn children are verified exactly (`multi_round`) if every verified node is a draw from the distribution that its verification assumes. So
a node must not be kept or dropped because of its own token, nor because of tokens whose distributions depend on it: the
tokens of its later siblings, of its descendants and of those siblings' descendants. Call these nodes, with the node itself, the *shadow* of
the node. Every decision while a tree grows follows one rule:

    A decision about a node reads only the tokens of nodes that outrank it.

Rank: a node outranks the nodes of lower score, and later nodes of equal score (by level, then by parent, then by place among the
siblings: an order that no token changes). The rule is sufficient, and the code keeps it.

Sufficient. No node of v's shadow outranks v: a child's score is its parent's plus the log of a probability, and the scores of siblings
fall. So whether v is verified is a function of tokens outside its shadow. The distribution of a node's token depends on its ancestors and
its earlier siblings; if the node is outside the shadow, so are they. Hence, with all tokens outside the shadow fixed, v's token still has
the drafter's distribution after v's path, without the earlier siblings. With u the parent and v1, v2, ... its children: fix all tokens but
those below u. This settles whether v1 is verified, and its token still has the assumed distribution. If v1 is accepted, the same holds
below v1, where more is fixed. If it is refused, fix the tokens of v1 and below it as well: this settles whether v2 is verified, and so on.
So every round of `multi_round` has its premise, and the output has the model's distribution, whatever is fixed.

The code keeps it. By induction over levels, where a parent outranks its child:
- score: from the distributions at the ancestors; for a drawn child, `drawn_acceptance` reads the parent's distribution and the place, not
  the token
- which kind of children a node has, how many are possible (filters, grammar): from the node's own path, and they do not outrank it
- is a level grown (`is_worth_expanding`): from the scores of the level's best node and its siblings, which depend on their ancestors. A
  node that is expanded is outranked by those ancestors and by the best node, or is the best node itself. The sum over all nodes of the
  level would not do: it includes nodes of low rank, and the level that it lets grow can displace them
- which nodes of a level are expanded, and which nodes of the tree are verified (`leaders`): from the node's own score and from how many
  nodes outrank it
- `depth`, `width`, `nodes`, the two thresholds and the room before the limit: from committed tokens and earlier passes. Schedules also see
  how large earlier trees were, and with that tokens that were drawn and refused, but the next tree has its own noise
The token of a chosen child is a function of its path, and its distribution is one-hot: the rule covers it, whatever kinds are mixed. With
match seed any tree will do, because the verdict is equality with plain decoding's draws.

A level is tensors where the drafter is. A place without a possible child has the score -inf; it ranks last and is dropped when the host has
read the level. On a device the host reads the tree alone, and nodes that are not expanded have impossible children
(engine/decoding/device_growth.py). Scores never rise along a path, so a node's rank among all nodes is the rank of its path.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Knob, Sequence
from engine.drafters.feature_draft import FeatureGrowth
from engine.machine import widest_float
from engine.noise import DRAFTER, Noise

DEPTH = Knob("depth", "d", 5, 1, 12, 1, help="Number of levels of the tree.")
WIDTH = Knob("width", "k", 10, 1, 40, 1, help="Number of nodes expanded per level, and of children per node.")
NODES = Knob("nodes", "N", 60, 1, 128, 1, help="Number of nodes verified per pass: the best of the grown tree.")
CHILDREN = Knob(
    "children", "", "auto", choices=("auto", "sampled", "deterministic"),
    help="deterministic: the most probable children, as published. sampled: drawn children. auto: per node, the kind more likely to be "
    "accepted.",
    label="Branches of the tree", words={"sampled": "drawn", "deterministic": "the likeliest"},
)  # fmt: skip

SURVIVAL = 0.6  # the assumed acceptance probability of a drawn token, when auto compares drawn with chosen children
LATER = 0.7  # see `drawn_acceptance`


@dataclass(frozen=True)
class TreeSize:
    """The largest size of the next tree.

    least_node  : the least acceptance probability of a node
    least_level : the least sum of these probabilities over the best node of a level and its siblings; below it no further level is grown
    In a graph both are tensors [].
    """

    depth: int
    width: int
    nodes: int
    least_node: float | Tensor = 0.0
    least_level: float | Tensor = 0.0


@dataclass(frozen=True)
class Tree:
    """A draft tree. Siblings are in the order in which they are verified.

    probs   : [N, V], the distribution of each node given its path and its earlier siblings; None if no node was drawn
    drawn  : whether each node was drawn
    passes : number of drafter passes
    needed : number of these passes that had a node to expand
    """

    tokens: list[int]
    parents: list[int]
    probs: Tensor | None
    drawn: list[bool]
    passes: int
    shape: TreeSize | None
    needed: int = 0

    @property
    def is_chain(self) -> bool:
        """True if each node but the first is the child of the one before it, and there is one."""
        return bool(self.tokens) and self.parents == list(range(-1, len(self.tokens) - 1))

    def draft(self) -> Draft:
        """The tree as the Draft of a pass. Its ids stay on the host, where they are needed again."""
        if not self.tokens:
            return NO_DRAFT
        return Draft(torch.tensor(self.tokens), parents=torch.tensor(self.parents), q=self.probs)


NO_TREE = Tree([], [], None, [], 0, None)


def one_hot_rows(tokens: Tensor, like: Tensor) -> Tensor:
    """One-hot distributions [b, V] of chosen tokens, int64 [b]; `like` [V] gives dtype and device."""
    return like.new_zeros(len(tokens), len(like)).scatter_(1, tokens[:, None], 1.0)


@dataclass(frozen=True)
class Front:
    """Nodes whose children come next, int64 [F] each: number in order of growth, and the drafter's number of it; -1: the prefix.
    scores : [F], in the device's widest type"""

    nodes: Tensor
    numbers: Tensor
    scores: Tensor

    @classmethod
    def of_prefix(cls, device: torch.device) -> Front:
        """The front of the first level."""
        none = torch.full((1,), -1, device=device)
        return cls(none, none, torch.zeros(1, dtype=widest_float(device), device=device))


@dataclass(frozen=True)
class Level:
    """The children of a front, C for each of its F nodes.

    nodes  : int64 [4, F C], of each child: token, parent, whether it was drawn, and the drafter's number of the parent
    scores : [F C], -inf for an impossible child
    """

    nodes: Tensor
    scores: Tensor


def grow(
    growth: FeatureGrowth, logits: Tensor, sequence: Sequence, shape: TreeSize, room: int, kind: str, noise: Noise, iteration: int,
    seeded: bool,
) -> Tree:  # fmt: skip
    """A tree of at most `room` levels, reduced to its best `shape.nodes` nodes. logits : [V], guided, after the prefix

    The score of a chosen child is its parent's score plus log q of its token (equation 3). For a drawn child, log q is replaced by the
    log of the probability that it is reached and accepted, which does not depend on the token. Every decision follows the rule above.
    """
    front, paths = Front.of_prefix(logits.device), [[]]
    levels: list[Level] = []
    bases: list[Tensor] = []  # of each level, the distributions after its front [F, V]
    of_node: dict[int, list[int]] = {-1: []}  # the path of each node of a front
    logits, grown, expanded = logits[None], 0, 0  # numbers of nodes, and of expanded ones
    for level in range(min(shape.depth, room)):
        if level:
            order, scores = to_expand(levels[-1], shape)
            tokens, parents, _, behind = levels[-1].nodes[:, order].unbind()
            nodes = order + grown - len(levels[-1].scores)
            paths = follow(of_node, torch.stack([nodes, parents, tokens, (scores > -torch.inf).long()]).T.tolist())
            if not paths:
                break
            nodes, tokens, behind, scores = (each[: len(paths)] for each in (nodes, tokens, behind, scores))
            logits = growth.expand(behind, tokens)
            front = Front(nodes, torch.arange(expanded, expanded + len(nodes), device=nodes.device), scores)
            expanded += len(nodes)
        probs = probs_after_paths(sequence, logits, paths)
        draw_weights = partial(weights, noise, sequence.length + level, iteration, level, seeded)
        levels.append(children_of(front, probs, logits, shape, kind, draw_weights))
        bases.append(probs)
        grown += len(levels[-1].scores)
    rows = best_nodes(torch.cat([each.nodes for each in levels], 1), torch.cat([each.scores for each in levels]), shape)
    tree = read_tree(rows.tolist(), None, len(levels), len(levels), shape)
    if not any(tree.drawn):
        return tree
    return replace(tree, probs=sibling_probs(torch.cat(bases), rows)[: len(tree.tokens)])


def children_of(
    front: Front, probs: Tensor, logits: Tensor, shape: TreeSize, kind: str, draw_weights: Callable[[Tensor, Tensor], Tensor | None]
) -> Level:  # fmt: skip
    """The children of a front, siblings in order: those of the greatest keys; 0 is impossible. probs, logits : [F, V], distributions
    and guided logits; draw_weights : see `weights`"""
    gains, sampled = rank(probs, logits), draws_children(probs, shape, kind)
    random = None if kind == "deterministic" else draw_weights(sampled, probs)
    keys = gains if random is None else torch.where(sampled[:, None], probs * random, gains)
    best = keys.topk(min(shape.width, probs.shape[-1]), -1)
    chances = best.values if random is None else gains.gather(1, best.indices)
    chances = chances.to(front.scores.dtype)
    if random is not None:
        drawn = drawn_acceptance(probs.amax(-1, keepdim=True).to(chances.dtype), best.indices.shape[1])
        chances = torch.where(sampled[:, None], drawn, chances)
    scores = (front.scores[:, None] + torch.where(best.values > 0, chances.clamp(1e-30, 1), 0).log()).flatten()
    parents = (each[:, None].expand_as(best.indices).flatten() for each in (front.nodes, sampled.long(), front.numbers))
    return Level(torch.stack([best.indices.flatten(), *parents]), scores)


def drawn_acceptance(peak: Tensor, count: int) -> Tensor:
    """The probability that each of `count` drawn siblings is reached and accepted, [F, count]; `peak` [F, 1] is the drafter's greatest
    probability at the parent. Measured on pictogram at temperatures 0.6 and 1: the first sibling is accepted with about this probability,
    whatever token was drawn, and a later one 0.7 times as often."""
    place = torch.arange(count, device=peak.device)
    return torch.where(place == 0, peak, (1 - peak) * (1 - LATER * peak) ** (place - 1) * LATER * peak)


def to_expand(level: Level, shape: TreeSize) -> tuple[Tensor, Tensor]:
    """The places of a level to expand, in order, and their scores; -inf: not to be expanded, these come last."""
    scores = torch.where(level.scores.exp() >= shape.least_node, level.scores, -torch.inf)
    scores = torch.where(is_worth_expanding(level.nodes[1], scores, shape), scores, -torch.inf)
    order = leaders(scores, shape.width)
    return order, scores[order]


def is_worth_expanding(parents: Tensor, scores: Tensor, shape: TreeSize) -> Tensor:
    """True, bool [], if the children of a level are worth a pass of the drafter. Only the best node and its siblings count, because a
    node of lower rank may not decide about one of higher rank. parents : int64 [M]; scores : [M], -inf if a node is not expanded"""
    siblings = parents == parents[leaders(scores, 1)]
    return torch.where(siblings, scores.exp(), 0).sum() >= shape.least_level


def leaders(scores: Tensor, count: int) -> Tensor:
    """The places of the `count` greatest scores, an earlier one winning a tie, in order of place; impossible ones last."""
    best = scores.sort(descending=True, stable=True)
    places, values = best.indices[:count], best.values[:count]
    return places[(places + len(scores) * (values == -torch.inf)).argsort()]


def follow(of_node: dict[int, list[int]], rows: list[list[int]]) -> list[list[int]]:
    """The paths of the possible nodes of a front, which come first; adds them to the paths `of_node`. rows : of each node, its number,
    parent, token, and whether it is possible"""
    possible = [row for row in rows if row[3]]
    of_node |= {node: [*of_node[parent], token] for node, parent, token, _ in possible}
    return [of_node[node] for node, *_ in possible]


def best_nodes(nodes: Tensor, scores: Tensor, shape: TreeSize) -> Tensor:
    """The best nodes of a grown tree, at least one, in order: int64 [6, N], their number, token, parent, whether they were drawn, the
    drafter's number of the parent, and whether they are possible. nodes, scores : of all levels, see `Level`"""
    first = torch.arange(len(scores), device=scores.device) == 0
    scores = torch.where((scores.exp() >= shape.least_node) | first, scores, -torch.inf)
    best = leaders(scores, shape.nodes)
    return torch.cat([best[None], nodes[:, best], (scores[best] > -torch.inf).long()[None]])


def read_tree(rows: list[list[int]], probs: Tensor | None, passes: int, needed: int, shape: TreeSize) -> Tree:
    """The tree of the rows of `best_nodes`. probs, passes, needed : see `Tree`"""
    numbers, tokens, parents, drawn, _, possible = rows
    kept = sum(possible)
    place = {-1: -1} | {node: i for i, node in enumerate(numbers[:kept])}
    is_drawn = [each > 0 for each in drawn[:kept]]
    probs = probs[:kept] if probs is not None and any(is_drawn) else None
    return Tree(tokens[:kept], [place[parent] for parent in parents[:kept]], probs, is_drawn, passes, shape, needed)


def sibling_probs(bases: Tensor, rows: Tensor) -> Tensor:
    """The distribution of every node [N, V]: the drafter's after its parent, without earlier siblings if it was drawn, else one-hot.

    bases : [F, V], after the prefix and each expanded node; rows : see `best_nodes`
    """
    tokens, parents, drawn = rows[1], rows[2], rows[3] > 0
    probs, others = bases[rows[4] + 1], tokens.expand(len(tokens), -1)
    order = torch.arange(len(tokens), device=tokens.device)
    earlier = (parents[:, None] == parents) & (order[:, None] > order) & drawn[:, None]
    probs = probs.scatter_reduce(1, others, torch.where(earlier, 0, probs.gather(1, others)), "amin")  # a token may be struck twice
    own = probs.gather(1, tokens[:, None]).where(drawn[:, None], 1)
    probs = probs.masked_fill(~drawn[:, None], 0).scatter(1, tokens[:, None], own)
    return probs / probs.sum(-1, keepdim=True)


def probs_after_paths(sequence: Sequence, logits: Tensor, paths: list[list[int]]) -> Tensor:
    """Distributions [F, V] of guided logits [F, V], each after its own path; paths with the same grammar state are batched."""
    rows: dict[Hashable, list[int]] = {}
    for i, path in enumerate(paths):
        rows.setdefault(sequence.state(path), []).append(i)
    if len(rows) == 1:
        return sequence.probs_after(logits, paths[0])
    stacked = torch.cat([sequence.probs_after(logits[some], paths[some[0]]) for some in rows.values()])
    order = [i for some in rows.values() for i in some]
    return torch.empty_like(stacked).index_copy_(0, torch.tensor(order, device=stacked.device), stacked)


def weights(noise: Noise, position: int, iteration: int, level: int, seeded: bool, sampled: Tensor, probs: Tensor) -> Tensor | None:
    """The random weights [F, V] of a level, 1 / E with E exponential. Multiplied with the distributions, the greatest products in order are
    draws without replacement. Every node has its own noise in this cycle. With match seed the noise is the position's: its Gumbel numbers
    are the logarithms of such weights, so the first child is the model's own draw wherever the two distributions agree.

    None on a CPU, where it costs nothing to ask, if no node draws. sampled : see `draws_children`; probs : [F, V]
    """
    if probs.device.type == "cpu" and not sampled.any():
        return None
    if seeded:
        return noise.gumbel(position, 1).exp()
    return -1 / noise.uniform(DRAFTER, 0, probs.numel(), iteration, level + 1).log().view(probs.shape).to(noise.dtype)


def rank(probs: Tensor, logits: Tensor) -> Tensor:
    """The ranking of chosen children [F, V]: the distribution; at temperature 0, where it is one-hot, the softmax of the logits."""
    sure = (probs.amax(-1) >= 1) & (probs.argmax(-1) == logits.argmax(-1))
    return torch.where(sure[:, None], torch.softmax(logits, -1).to(probs.dtype), probs)


def draws_children(probs: Tensor, shape: TreeSize, kind: str) -> Tensor:
    """True for each node that draws its children, bool [F]. auto: where k draws are more likely to contain an accepted token than the k
    most probable tokens are to contain the model's draw. Both are estimated from the drafter's distribution before anything is drawn."""
    if kind != "auto":
        return torch.full((len(probs),), kind == "sampled", device=probs.device)
    count = min(shape.width, probs.shape[-1])
    return probs.topk(count, -1).values.sum(-1) < 1 - (1 - SURVIVAL) ** count

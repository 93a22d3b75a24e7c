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
- which nodes of a level are expanded (`best_of_level`), and which nodes of the tree are verified (`verified_nodes`): from the node's own
  score and from how many nodes outrank it
- `depth`, `width`, `nodes`, the two thresholds and the room before the limit: from committed tokens and earlier passes. Schedules also see
  how large earlier trees were, and with that tokens that were drawn and refused, but the next tree has its own noise
The token of a chosen child is a function of its path, and its distribution is one-hot: the rule covers it, whatever kinds are mixed. With
match seed any tree will do, because the verdict is equality with plain decoding's draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Knob, Sequence
from engine.drafters.feature_draft import FeatureGrowth
from engine.machine import widest_float
from engine.noise import DRAFTER, Noise
from engine.tree import best, children, restrict

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
    """

    depth: int
    width: int
    nodes: int
    least_node: float = 0.0
    least_level: float = 0.0


@dataclass(frozen=True)
class Tree:
    """A draft tree. Siblings are in the order in which they are verified.

    probs   : [N, V], the distribution of each node given its path and its earlier siblings; None if no node was drawn
    drawn  : whether each node was drawn
    passes : number of drafter passes
    """

    tokens: list[int]
    parents: list[int]
    probs: Tensor | None
    drawn: list[bool]
    passes: int
    shape: TreeSize | None

    def draft(self) -> Draft:
        """The tree as the Draft of a pass. Its ids stay on the host, where they are needed again."""
        if not self.tokens:
            return NO_DRAFT
        return Draft(torch.tensor(self.tokens), parents=torch.tensor(self.parents), q=self.probs)


NO_TREE = Tree([], [], None, [], 0, None)


def one_hot_rows(tokens: Tensor, like: Tensor) -> Tensor:
    """One-hot distributions [b, V] of chosen tokens, int64 [b]; `like` [V] gives dtype and device."""
    return like.new_zeros(len(tokens), len(like)).scatter_(1, tokens[:, None], 1.0)


def grow(
    growth: FeatureGrowth,
    logits: Tensor,
    sequence: Sequence,
    shape: TreeSize,
    room: int,
    kind: str,
    noise: Noise,
    iteration: int,
    seeded: bool,
) -> Tree:
    """A tree of at most `room` levels, reduced to its best `shape.nodes` nodes. logits : [V], guided, after the prefix

    The score of a chosen child is its parent's score plus log q of its token (equation 3). For a drawn child, log q is replaced by the
    log of the probability that it is reached and accepted, which does not depend on the token. Every decision follows the rule above.
    """
    tokens: list[int] = []
    parents: list[int] = []
    scores: list[float] = []
    drawn: list[bool] = []
    bases: list[Tensor] = []  # the distributions of each level [F, V]
    base_of: list[int] = []
    number = {-1: -1}  # the drafter's index of each expanded node
    frontier, levels, passes = [-1], min(shape.depth, room), 1
    logits = logits[None]
    for level in range(levels):
        if level:
            able = [u for u in frontier if math.exp(scores[u]) >= shape.least_node]
            if not able or not is_worth_expanding(able, parents, scores, shape):
                break
            frontier = best_of_level(able, scores, shape)
            logits = growth.expand([number[parents[u]] for u in frontier], [tokens[u] for u in frontier])
            for u in frontier:
                number[u] = len(number) - 1
            passes += 1
        probs = probs_after_paths(sequence, logits, [path_of(tokens, parents, u) for u in frontier])
        draw_weights = weights(noise, sequence.length + level, probs.shape, iteration, level, seeded)
        first, grown = sum(len(b) for b in bases), []
        bases.append(probs)
        for i, (u, family) in enumerate(zip(frontier, families(probs, logits, shape, kind, draw_weights), strict=True)):
            behind = 0.0 if u < 0 else scores[u]
            for token, sampled, chance in family:
                grown.append(len(tokens))
                tokens.append(token)
                parents.append(u)
                drawn.append(sampled)
                base_of.append(first + i)
                scores.append(behind + math.log(max(chance, 1e-30)))
        frontier = grown
    nodes = verified_nodes(parents, scores, shape)
    tokens, drawn, base_of = ([x[node] for node in nodes] for x in (tokens, drawn, base_of))
    parents = restrict(parents, nodes)
    probs = sibling_probs(torch.cat(bases)[base_of], tokens, parents, drawn) if any(drawn) else None
    return Tree(tokens, parents, probs, drawn, passes, shape)


def families(
    probs: Tensor, logits: Tensor, shape: TreeSize, kind: str, draw_weights: Callable[[], Tensor]
) -> list[list[tuple[int, bool, float]]]:
    """The children of each node of a frontier, in order: token, whether it was drawn, and the probability that it is accepted if its
    parent was. probs, logits : [F, V]"""
    sampled, keys, gains = proposals(probs, logits, shape, kind, draw_weights)
    best = keys.topk(min(shape.width, probs.shape[-1]), -1)
    columns = [sampled[:, None], probs.amax(-1, keepdim=True), best.indices, best.values, gains.gather(1, best.indices)]
    rows = torch.cat([each.to(widest_float(probs.device)) for each in columns], 1).tolist()  # one read for all
    count = best.indices.shape[1]
    return [
        [
            (int(token), drawn > 0, min(drawn_acceptance(peak, j) if drawn else gain, 1.0))
            for j, (token, key, gain) in enumerate(zip(row[:count], row[count : 2 * count], row[2 * count :], strict=True))
            if key > 0
        ]
        for drawn, peak, *row in rows
    ]


def path_of(tokens: list[int], parents: list[int], node: int) -> list[int]:
    """The tokens from the prefix down to a node."""
    path: list[int] = []
    while node >= 0:
        path.append(tokens[node])
        node = parents[node]
    return path[::-1]


def drawn_acceptance(peak: float, place: int) -> float:
    """The probability that drawn sibling number `place` (from 0) is reached and accepted; `peak` is the drafter's greatest probability at
    the parent. Measured on pictogram at temperatures 0.6 and 1: the first sibling is accepted with about this probability, whatever
    token was drawn, and a later one 0.7 times as often."""
    return peak if place == 0 else (1 - peak) * (1 - LATER * peak) ** (place - 1) * LATER * peak


def is_worth_expanding(level: list[int], parents: list[int], scores: list[float], shape: TreeSize) -> bool:
    """True if the children of a level, a list of nodes, are worth a pass of the drafter. Only the best node and its siblings count, because
    a node of lower rank may not decide about one of higher rank."""
    best_parent = parents[min(level, key=lambda node: (-scores[node], node))]
    return sum(math.exp(scores[node]) for node in level if parents[node] == best_parent) >= shape.least_level


def best_of_level(level: list[int], scores: list[float], shape: TreeSize) -> list[int]:
    """The nodes of a level to expand, in order of index."""
    return sorted(sorted(level, key=lambda node: (-scores[node], node))[: shape.width])


def verified_nodes(parents: list[int], scores: list[float], shape: TreeSize) -> list[int]:
    """The nodes to verify, at least one: the best by score."""
    nodes = best(parents, scores, shape.nodes)
    return [node for node in nodes if math.exp(scores[node]) >= shape.least_node] or nodes[:1]


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


def weights(noise: Noise, position: int, shape: torch.Size, iteration: int, level: int, seeded: bool) -> Callable[[], Tensor]:
    """A function that returns the random weights [F, V] of a level, 1 / E with E exponential. Multiplied with the distributions, the
    greatest products in order are draws without replacement. Every node has its own noise in this cycle. With match seed the noise is
    the position's: its Gumbel numbers are the logarithms of such weights, so the first child is the model's own draw wherever the two
    distributions agree."""
    if seeded:
        return lambda: noise.gumbel(position, 1).exp()
    return lambda: -1 / noise.uniform(DRAFTER, 0, shape.numel(), iteration, level + 1).log().view(shape).to(noise.dtype)


def proposals(
    probs: Tensor, logits: Tensor, shape: TreeSize, kind: str, draw_weights: Callable[[], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Proposes children for nodes with these distributions and guided logits [F, V]. Returns True for the nodes that draw their children
    [F], the keys [F, V], of which the greatest are taken (0: impossible), and the acceptance probability of a chosen child [F, V].
    draw_weights : see `weights`."""
    gains = rank(probs, logits)
    sampled = draws_children(probs, shape, kind)
    if kind == "deterministic" or (probs.device.type == "cpu" and not sampled.any()):
        return sampled, gains, gains
    return sampled, torch.where(sampled[:, None], probs * draw_weights(), gains), gains


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


def sibling_probs(probs: Tensor, tokens: list[int], parents: list[int], drawn: list[bool]) -> Tensor:
    """The distribution of every node [N, V], from the drafter's at its parent [N, V]: without earlier siblings if drawn, else one-hot."""
    struck: list[tuple[int, int]] = []
    for siblings in children(parents):
        struck += [(node, tokens[earlier]) for i, node in enumerate(siblings) if drawn[node] for earlier in siblings[:i]]
    if struck:
        at, gone = zip(*struck, strict=True)
        probs[list(at), list(gone)] = 0
    fixed = [node for node in range(len(tokens)) if not drawn[node]]
    if fixed:
        probs[fixed] = one_hot_rows(torch.tensor([tokens[node] for node in fixed], device=probs.device), probs[0])
    return probs / probs.sum(-1, keepdim=True)

"""Chains of drafts from mesh heads: one token per head, under the grammar after the earlier tokens.

Paper: XSpecMesh, Chen et al., arXiv 2507.23777, section 3.4 for the trees. The heads are engine/drafters/mesh_heads.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.core import ChosenTokens, Draft, Knob, Knobs, Rows, Sequence
from engine.decoding.masked_draws import MaskedDraws, draw_under_masks
from engine.drafters.mesh_heads import best_under
from engine.noise import DRAFTER, Noise
from engine.sampling import draw, draw_gumbel, one_hot

HEADS = Knob(
    "heads", "", "cross-attention", choices=("cross-attention", "multilayer"), live=False,
    help="cross-attention: the paper's heads, which attend to the point cloud. multilayer: the heads of its ablation, smaller and faster.",
)  # fmt: skip
PRUNED = 1e-5  # paths of the tree with less weight are pruned (section 3.4)


def propose(logits: Tensor, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int, seeded: bool, on_host: bool = False) -> Draft:
    """A chain drawn from the heads' logits [count, V], each token under the grammar after the earlier ones, with its true distribution.
    on_host : use `best_along` of the sequence"""
    if knobs.drafts == "most probable" and on_host and (tokens := sequence.best_along(logits)) is not None:
        return Draft(tokens, q=ChosenTokens(tokens, sequence.vocabulary, noise.dtype))
    n, count = sequence.length, len(logits)
    u = noise.uniform(DRAFTER, n, count, iteration)
    if sequence.masks is not None and sequence.device.type != "cpu" and knobs.drafts != "tree pruned":
        return at_once(logits, sequence, knobs, noise, u, seeded)
    tree = PathTree(logits, sequence, count, knobs.tree_top) if knobs.drafts == "tree pruned" else None
    path: list[int] = []
    rows: list[Tensor] = []
    for j in range(count):
        if knobs.drafts == "most probable":
            token = best_guess(sequence.biased_logits(logits[j : j + 1], path)[0], sequence.allowed_ids(path))
            probs = one_hot(token, sequence.vocabulary, noise.dtype)
        else:
            probs = tree.probs_after(path) if tree else sequence.probs_after(logits[j : j + 1], path)
            if knobs.drafts == "tree":
                probs = best_of(probs, knobs.tree_top)
            token = draw_gumbel(probs.log(), noise.gumbel(n + j, 1)) if seeded else draw(probs, u[j : j + 1])
        path.append(token.item())
        rows.append(probs)
    return Draft(torch.tensor(path), q=torch.cat(rows))  # the host needs the ids again


def draw_heads(logits: Tensor, sequence: Sequence, knobs: Knobs, noise: Noise, u: Tensor, gumbel: Tensor | None) -> MaskedDraws:
    """The heads' draws from logits [k, V] under every mask of the grammar. u, gumbel : see `draw_under_masks`"""
    if knobs.drafts == "most probable":
        return MaskedDraws(best_under(logits, sequence.masks), None)
    probs = sequence.probs_by_mask(logits)
    probs = best_of(probs, knobs.tree_top) if knobs.drafts == "tree" else probs
    return draw_under_masks(probs, u, gumbel)


def at_once(logits: Tensor, sequence: Sequence, knobs: Knobs, noise: Noise, u: Tensor, seeded: bool) -> Draft:
    """The same chain with one read: on a device every head draws under every mask of the grammar, and the host follows the path."""
    count = len(logits)
    drawn = draw_heads(logits, sequence, knobs, noise, u, noise.gumbel(sequence.length, count) if seeded else None)
    return chain(drawn, sequence, count, noise.dtype)


def chain(drawn: MaskedDraws, sequence: Sequence, count: int, dtype: torch.dtype) -> Draft:
    """The first `count` draws along the path that the grammar allows. dtype : of distributions"""
    path, probs = drawn.follow(sequence, [], 0, count)
    tokens = torch.tensor(path)
    return Draft(tokens, q=ChosenTokens(tokens, sequence.vocabulary, dtype) if probs is None else probs)


class DrawsAhead:
    """The heads' draws for the drafts after a pass, from the results inside the pass; the host reads them with its verdict. The first
    token's position, and with it the noise, depends on the verdict, which stays on the device.

    drawn : None if the pass has no such results, or its verdict is not fused
    """

    def __init__(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int, seeded: bool, count: int):
        """iteration : of the next pass; count : number of heads"""
        self.sequence, self.knobs, self.noise, self.iteration, self.seeded, self.count = sequence, knobs, noise, iteration, seeded, count
        self.drawn: MaskedDraws | None = None

    def compute(self, rows: Rows, pair: Tensor) -> Tensor | None:
        """See `JointRead`."""
        if not rows.ahead or self.sequence.masks is None or self.knobs.drafts == "tree pruned":
            return None
        logits, first = rows.ahead[0][: self.count], self.sequence.length + 1
        if self.knobs.drafts == "most probable":
            self.drawn = MaskedDraws(rows.ahead[1][: self.count], None)
        else:
            at = pair[0] + torch.arange(len(logits), device=pair.device)
            most = rows.count + len(logits)
            u = self.noise.uniform(DRAFTER, first, most, self.iteration)[at]
            gumbel = self.noise.gumbel(first, most)[at] if self.seeded else None
            self.drawn = draw_heads(logits, self.sequence, self.knobs, self.noise, u, gumbel)
        return self.drawn.tokens.flatten()

    def take(self, numbers: list[int]) -> None:
        """See `JointRead`."""
        self.drawn.take(numbers)

    def draft(self, count: int) -> Draft:
        """The chain of the first `count` drafts, after the pass was committed."""
        return chain(self.drawn, self.sequence, count, self.noise.dtype)


def best_guess(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """The most probable allowed token, int64 [1], of a head's logits [V]; filters and temperature would not change it."""
    scores = logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)
    return scores.argmax(-1, keepdim=True)


def best_of(probs: Tensor, k: int) -> Tensor:
    """A distribution [1, V] cut to its k best tokens. A path of the unpruned tree, drawn by weight, has this distribution at every
    depth."""
    values, ids = probs.topk(k, -1)
    return torch.zeros_like(probs).scatter_(-1, ids, values / values.sum(-1, keepdim=True))


class PathTree:
    """The pruned tree of a pass: `count` levels of the k best tokens of each head, without leaves of low weight (section 3.4).

    A path is drawn by weight, token by token: a token's weight is the sum over the remaining leaves below it.
    """

    def __init__(self, logits: Tensor, sequence: Sequence, count: int, k: int):
        self.tokens: list[Tensor] = []  # by level j: int64 [k^j, k], the children of every node
        self.vocabulary = logits.shape[-1]
        leaves = torch.ones(1, dtype=logits.dtype, device=logits.device)
        paths: list[list[int]] = [[]]  # one path to each state of the grammar
        states = torch.zeros(1, dtype=torch.int64)  # the state of every node of the level, as an index into `paths`
        for j in range(count):
            probs = torch.cat([sequence.probs_after(logits[j : j + 1], path) for path in paths])
            values, ids = best_of(probs, k).topk(k)  # [states, k]
            known: dict[Any, int] = {}
            ahead, reached = [], []
            for path, row in zip(paths, ids.tolist(), strict=True):
                for token in row:
                    behind = [*path, token]
                    at = known.setdefault(sequence.state(behind), len(known))
                    ahead.append(at)
                    if at == len(reached):
                        reached.append(behind)
            self.tokens.append(ids[states])
            leaves = (leaves[:, None] * values[states]).flatten()
            states, paths = torch.tensor(ahead).view(-1, k)[states].flatten(), reached
        heavy = leaves * (leaves >= PRUNED)
        self.leaves = heavy if heavy.sum() > 0 else leaves  # if all leaves are light, none is pruned

    def probs_after(self, path: list[int]) -> Tensor:
        """The distribution [1, V] of the token after a path of the tree."""
        node = 0
        for children, token in zip(self.tokens, path, strict=False):
            node = node * children.shape[1] + children[node].tolist().index(token)
        children = self.tokens[len(path)][node]
        below = self.leaves.view(len(self.tokens[len(path)]), len(children), -1)[node].sum(-1)
        probs = torch.zeros(1, self.vocabulary, dtype=below.dtype, device=below.device)
        probs[0, children] = below / below.sum()
        return probs

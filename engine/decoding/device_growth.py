"""Growth of a draft tree in fixed shapes, for graphs: the tree of engine/decoding/growth.py by three functions of tensors.

The first level with the drafter's newest tokens, every further level, and the best nodes. They share tensors of the workspace, so that a
level sends and launches nothing else, and a level has the same graph wherever it is in the tree. The host describes a tree in one tensor:
the drafter's rows, and a row of numbers for every level. It reads the tree at the end; before that it reads only where `reads_levels` says.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Sequence
from engine.decoding import growth as growing
from engine.decoding.growth import Front, Level, Tree, TreeSize
from engine.drafters.feature_draft import COLUMNS, NetworkGrowth
from engine.networks.workspace import Bucket, bucket
from engine.networks.workspace import span as span_of
from engine.noise import DRAFTER, Noise
from engine.noise.kernel import gumbel, to_int64, uniform
from engine.sampling import warp

NAME = "tree"  # of its tensors, and in the keys of graphs
MOST_LEVELS = 12
# A level's row of numbers: its index, the committed tokens of the drafter, the number of its first node to the drafter (-1: the prefix),
# its position, the base of that position's noise, the base and the slot of its own noise, and as bits the two thresholds of the size and
# the four numbers of the sampling
INDEX, COMMITTED, FIRST, POSITION, BASE, KEY, SLOT, FLOATS = range(8)
NUMBERS = FLOATS + 6


class FixedTrees:
    """The trees of a run that have one width, and one or several levels: their tensors, and the functions that graphs capture."""

    def __init__(self, growth: NetworkGrowth, sequence: Sequence, dtype: torch.dtype, width: int, most: int, kind: str, seeded: bool):
        """dtype : of the noise; most : the number of levels that fit; kind : of children"""
        self.growth, self.sampling, self.masks = growth, sequence.sampling.kind(sequence.vocabulary), sequence.masks
        self.width, self.kind, self.seeded, self.dtype = width, kind, seeded, dtype
        self.key = NAME, growth.key, self.sampling, dtype, width, most, kind, seeded, self.masks is None
        zeros, size = growth.workspace.zeros, width * min(width, sequence.vocabulary)
        self.nodes, self.scores = zeros("nodes", (most, 4, size), torch.int64), zeros("scores", (most, size), torch.float64)
        self.fronts, self.behind = zeros("fronts", (most + 1, 4, width), torch.int64), zeros("behind", (most + 1, width), torch.float64)
        self.bases = zeros("bases", (1 + (most - 1) * width, sequence.vocabulary), torch.float32)
        self.numbers = zeros("numbers", (most, NUMBERS), torch.int64)

    def begin(self, span: int, rows: int, inputs: Tensor, features: Tensor, *masks: Tensor) -> tuple[Tensor]:
        """The first level. inputs : int64 [], the drafter's rows, the last one's number, and the numbers of all levels; features : see
        `NetworkGrowth.newest`; masks : int64 [1], the number of the prefix's grammar mask, if there is a grammar"""
        own, last, numbers = inputs.split([rows * COLUMNS, 1, self.numbers.numel()])
        self.numbers.copy_(numbers.view_as(self.numbers))
        self.scores.fill_(-torch.inf)
        logits = self.growth.begin_there(span, own.view(rows, -1), last, features, self.numbers[0, FLOATS:].view(torch.float64)[5])
        return self._grow(Front.of_prefix(logits.device), logits, self.numbers[0], *masks)

    def extend(self, span: int, numbers: Tensor, *masks: Tensor) -> tuple[Tensor]:
        """A further level. numbers : int64 [NUMBERS]; masks : int64 [width], of each expanded node"""
        index = numbers[INDEX : INDEX + 1]
        nodes, _, tokens, behind = self.fronts.index_select(0, index)[0].unbind()
        own = numbers[FIRST] + torch.arange(self.width, device=numbers.device)
        logits = self.growth.expand_there(span, behind, tokens, own, numbers[COMMITTED], numbers[FLOATS:].view(torch.float64)[5])
        return self._grow(Front(nodes, own, self.behind.index_select(0, index)[0]), logits, numbers, *masks)

    def _grow(self, front: Front, logits: Tensor, numbers: Tensor, *masks: Tensor) -> tuple[Tensor]:
        """Stores the children of a front and the next front. Returns this, int64 [4, width]: number, parent, token, whether possible."""
        floats = numbers[FLOATS:].view(torch.float64)
        probs = torch.softmax(warp(logits, self.sampling, self.masks[masks[0]] if masks else None, floats[2:]), -1)
        shape = TreeSize(1, self.width, 1, floats[0], floats[1])
        level = growing.children_of(front, probs, logits, shape, self.kind, partial(self._weights, numbers))
        index, fill = numbers[INDEX : INDEX + 1], self.scores.shape[1] - len(level.scores)
        level = Level(F.pad(level.nodes, (0, fill)), F.pad(level.scores, (0, fill), value=-torch.inf))
        self.nodes.index_copy_(0, index, level.nodes[None])
        self.scores.index_copy_(0, index, level.scores[None])
        self.bases.index_copy_(0, front.numbers + 1, probs)
        order, scores = growing.to_expand(level, shape)
        tokens, parents, _, behind = level.nodes[:, order].unbind()
        nodes = order + index * len(level.scores)
        self.fronts.index_copy_(0, index + 1, torch.stack([nodes, parents, tokens, behind])[None])
        self.behind.index_copy_(0, index + 1, scores[None])
        return (torch.stack([nodes, parents, tokens, (scores > -torch.inf).long()]),)

    def finish(self, count: int, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The best nodes, see `best_nodes`, and their distributions. numbers : of any level"""
        floats = numbers[FLOATS:].view(torch.float64)
        rows = growing.best_nodes(self.nodes.transpose(0, 1).flatten(1), self.scores.flatten(), TreeSize(1, 1, count, floats[0], floats[1]))
        return rows, growing.sibling_probs(self.bases, rows)

    def _weights(self, numbers: Tensor, sampled: Tensor, probs: Tensor) -> Tensor:
        """`growth.weights` from a level's numbers."""
        if self.seeded:
            return gumbel(numbers[BASE], numbers[POSITION : POSITION + 1], probs.shape[1], self.dtype).exp()
        counters = torch.arange(probs.numel(), device=probs.device)
        return -1 / uniform(numbers[KEY : SLOT + 1], counters).log().view(probs.shape).to(self.dtype)


def fits(growth: Any, sequence: Sequence) -> bool:
    """True if the trees of a run can grow in fixed shapes: passes have them, and a grammar has a table of masks."""
    is_fixed = isinstance(growth, NetworkGrowth) and growth.workspace is not None
    return is_fixed and (sequence.masks is not None or sequence.state([]) is None)


class DeviceGrowth:
    """The growth of a run's trees in fixed shapes."""

    def __init__(self, growth: NetworkGrowth, sequence: Sequence):
        self.growth, self.sequence, self._trees = growth, sequence, {}

    def grow(
        self, hidden: Tensor, committed: list[int], shape: TreeSize, room: int, kind: str, noise: Noise, iteration: int, seeded: bool
    ) -> Tree:  # fmt: skip
        """The tree of `growth.grow` after the newest committed tokens. hidden : see `FeatureGrowth.root`"""
        growth, sequence = self.growth, self.sequence
        levels, most, call = min(shape.depth, room), 1 if shape.depth == 1 else MOST_LEVELS, growth.workspace.replays.call
        key = shape.width, most, kind, seeded
        if key not in self._trees:
            self._trees[key] = FixedTrees(growth, sequence, noise.dtype, *key)
        trees = self._trees[key]
        first = bucket(len(committed), growth.committed, growth.kv_cache.capacity)
        own, features = growth.newest(hidden, committed, first.rows)
        numbers = level_numbers(shape, levels, growth.committed, sequence, noise, iteration)
        inputs = torch.cat([own.flatten(), torch.tensor([len(committed) - 1]), F.pad(numbers, (0, 0, 0, most - levels)).flatten()])
        of_node, reads = {-1: []}, growing.reads_levels(sequence, shape)
        begin = partial(trees.begin, first.span, first.rows)
        (front,) = call((trees.key, "begin"), first, begin, inputs, features, *self._masks([[]], 1))
        span, passes = span_of(growth.committed + levels * shape.width, growth.kv_cache.capacity), 1
        extend, paths = partial(trees.extend, span), []
        while passes < levels:
            if reads and not (paths := growing.follow(of_node, front.T.tolist())):
                break
            masks = self._masks(paths, shape.width)
            (front,) = call(trees.key, Bucket(shape.width, span), extend, trees.numbers[passes], *masks)
            passes += 1
        rows, probs = call((trees.key, "finish"), Bucket(shape.nodes, 0), partial(trees.finish, shape.nodes), trees.numbers[0])
        return growing.read_tree(rows, probs, passes, shape)

    def _masks(self, paths: list[list[int]], count: int) -> list[Tensor]:
        """The numbers of the grammar's masks after paths, int64 [count], padded; none without a grammar."""
        numbers = [self.sequence.mask_index(path) for path in paths] if self.sequence.masks is not None else None
        return [] if numbers is None else [F.pad(torch.tensor(numbers), (0, count - len(paths)))]


def level_numbers(shape: TreeSize, levels: int, committed: int, sequence: Sequence, noise: Noise, iteration: int) -> Tensor:
    """The numbers of every level, int64 [levels, NUMBERS]. committed : of the drafter"""
    floats = [shape.least_node, shape.least_level, *sequence.sampling.numbers]
    floats = torch.tensor(floats, dtype=torch.float64).view(torch.int64).tolist()
    base, key = to_int64(noise.base), to_int64(noise.key(DRAFTER, iteration))
    firsts = [-1, *range(0, shape.width * levels, shape.width)]
    return torch.tensor([[i, committed, firsts[i], sequence.length + i, base, key, i + 1, *floats] for i in range(levels)])

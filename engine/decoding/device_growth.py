"""Growth of a draft tree in fixed shapes, for graphs: the tree of engine/decoding/growth.py by three functions of tensors.

The first level with the drafter's newest tokens, every further level, and the best nodes. They share tensors of the workspace, so that a
level sends and launches nothing else, and a level has the same graph wherever it is in the tree. The host describes a tree in one tensor:
the drafter's rows, and a row of numbers for every level. It reads the tree at the end, and nothing before that: the device follows the
grammar, and where a threshold ends the growth, the levels that are left add impossible nodes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Sequence
from engine.decoding import growth as growing
from engine.decoding.device_verify import Call
from engine.decoding.growth import Front, Level, Tree, TreeSize
from engine.drafters.feature_draft import COLUMNS, NetworkGrowth
from engine.machine import widest_float
from engine.networks.workspace import Bucket, bucket
from engine.networks.workspace import span as span_of
from engine.noise import DRAFTER, Noise
from engine.noise.kernel import gumbel, to_int64, uniform
from engine.sampling import warp

NAME = "tree"  # of its tensors, and in the keys of graphs
MOST_LEVELS = 12
# A level's row of numbers: its index, the committed tokens of the drafter, the number of its first node to the drafter (-1: the prefix),
# its position, the base of that position's noise, the base and the slot of its own noise, the grammar's state after the prefix, and as bits
# the two thresholds of the size and the four numbers of the sampling
INDEX, COMMITTED, FIRST, POSITION, BASE, KEY, SLOT, STATE, FLOATS = range(9)
NUMBERS = FLOATS + 6


class FixedTrees:
    """The trees of a run that have one width, and one or several levels: their tensors, and the functions that graphs capture."""

    def __init__(self, growth: NetworkGrowth, sequence: Sequence, dtype: torch.dtype, width: int, most: int, kind: str, seeded: bool):
        """dtype : of the noise; most : the number of levels that fit; kind : of children"""
        self.growth, self.sampling, self.automaton = growth, sequence.sampling.kind(sequence.vocabulary), sequence.automaton
        self.width, self.kind, self.seeded, self.dtype = width, kind, seeded, dtype
        self.key = NAME, growth.key, self.sampling, dtype, width, most, kind, seeded, self.automaton is None
        zeros, size = growth.zeros, width * min(width, sequence.vocabulary)
        self.nodes, self.scores = zeros("nodes", (most, 4, size)), zeros("scores", (most, size), torch.float64)
        self.fronts, self.behind = zeros("fronts", (most + 1, 4, width)), zeros("behind", (most + 1, width), torch.float64)
        self.bases = zeros("bases", (1 + (most - 1) * width, sequence.vocabulary), torch.float32)
        self.numbers = zeros("numbers", (most, NUMBERS))

    def begin(self, span: int, rows: int, inputs: Tensor, features: Tensor) -> tuple[()]:
        """The first level. inputs : int64 [], the drafter's rows, the last one's number, and the numbers of all levels; features : see
        `NetworkGrowth.newest`"""
        own, last, numbers = inputs.split([rows * COLUMNS, 1, self.numbers.numel()])
        self.numbers.copy_(numbers.view_as(self.numbers))
        self.scores.fill_(-torch.inf)
        self.behind.fill_(-torch.inf)
        logits = self.growth.begin_there(span, own.view(rows, -1), last, features, self.numbers[0, FLOATS:].view(torch.float64)[5])
        return self._grow(Front.of_prefix(logits.device), logits, self.numbers[0], self.numbers[0, STATE : STATE + 1])

    def extend(self, span: int, numbers: Tensor) -> tuple[()]:
        """A further level. numbers : int64 [NUMBERS]"""
        index = numbers[INDEX : INDEX + 1]
        nodes, tokens, behind, states = self.fronts.index_select(0, index)[0].unbind()
        own = numbers[FIRST] + torch.arange(self.width, device=numbers.device)
        logits = self.growth.expand_there(span, behind, tokens, own, numbers[COMMITTED], numbers[FLOATS:].view(torch.float64)[5])
        return self._grow(Front(nodes, own, self.behind.index_select(0, index)[0]), logits, numbers, states)

    def _grow(self, front: Front, logits: Tensor, numbers: Tensor, states: Tensor) -> tuple[()]:
        """Stores the children of a front, and the next front: number, token, the drafter's number of the parent, and the grammar's state.
        states : int64 [F], of the grammar after each node of the front"""
        floats = numbers[FLOATS:].view(torch.float64)
        allowed = None if self.automaton is None else self.automaton.allowed_ids(states)
        probs = torch.softmax(warp(logits, self.sampling, allowed, floats[2:]), -1)
        shape = TreeSize(1, self.width, 1, floats[0], floats[1])
        level = growing.children_of(front, probs, logits, shape, self.kind, partial(self._weights, numbers))
        index, each = numbers[INDEX : INDEX + 1], len(level.scores) // len(front.nodes)
        fill = self.scores.shape[1] - len(level.scores)
        level = Level(F.pad(level.nodes, (0, fill)), F.pad(level.scores, (0, fill), value=-torch.inf))
        self.nodes.index_copy_(0, index, level.nodes[None])
        self.scores.index_copy_(0, index, level.scores[None])
        self.bases.index_copy_(0, front.numbers + 1, probs)
        order, scores = growing.to_expand(level, shape)
        tokens, _, _, behind = level.nodes[:, order].unbind()
        states = states[(order // each).clamp(max=len(states) - 1)]  # a filler has the state of any node
        states = states if self.automaton is None else self.automaton.next(states, tokens)
        self.fronts.index_copy_(0, index + 1, torch.stack([order + index * len(level.scores), tokens, behind, states])[None])
        self.behind.index_copy_(0, index + 1, scores[None])
        return ()

    def finish(self, count: int, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The best nodes, see `best_nodes`, with the number of fronts that had a possible node in a last row, int64 [7, N]; and the
        distributions of these nodes. numbers : of any level"""
        floats = numbers[FLOATS:].view(torch.float64)
        rows = growing.best_nodes(self.nodes.transpose(0, 1).flatten(1), self.scores.flatten(), TreeSize(1, 1, count, floats[0], floats[1]))
        fronts = (self.behind > -torch.inf).any(1).sum()
        return torch.cat([rows, fronts.expand(1, rows.shape[1])]), growing.sibling_probs(self.bases, rows)

    def _weights(self, numbers: Tensor, sampled: Tensor, probs: Tensor) -> Tensor:
        """`growth.weights` from a level's numbers."""
        if self.seeded:
            return gumbel(numbers[BASE], numbers[POSITION : POSITION + 1], probs.shape[1], self.dtype).exp()
        counters = torch.arange(probs.numel(), device=probs.device)
        return -1 / uniform(numbers[KEY : SLOT + 1], counters).log().view(probs.shape).to(self.dtype)


def fits(growth: Any, sequence: Sequence) -> bool:
    """True if the trees of a run grow on its device without the host: the device is not the host and has float64 (Apple's have not), and
    nothing follows their paths but a grammar that is an automaton of tensors."""
    can_grow = sequence.device.type != "cpu" and widest_float(sequence.device) == torch.float64
    if not isinstance(growth, NetworkGrowth) or (growth.workspace is None and not can_grow):
        return False
    return sequence.automaton is not None or sequence.state([]) is None


class DeviceGrowth:
    """The growth of a run's trees in fixed shapes."""

    def __init__(self, growth: NetworkGrowth, sequence: Sequence, call: Call):
        """call : of a function of tensors in fixed shapes, for example as a graph (`Replays.call`)"""
        self.growth, self.sequence, self.call, self._trees = growth, sequence, call, {}

    def grow(
        self, hidden: Tensor, committed: list[int], shape: TreeSize, room: int, kind: str, noise: Noise, iteration: int, seeded: bool
    ) -> Tree:  # fmt: skip
        """The tree of `growth.grow` after the newest committed tokens. hidden : see `FeatureGrowth.root`"""
        growth, sequence = self.growth, self.sequence
        levels, most, call = min(shape.depth, room), 1 if shape.depth == 1 else MOST_LEVELS, self.call
        key = shape.width, most, kind, seeded
        if key not in self._trees:
            self._trees[key] = FixedTrees(growth, sequence, noise.dtype, *key)
        trees = self._trees[key]
        first = bucket(len(committed), growth.committed, growth.kv_cache.capacity)
        own, features = growth.newest(hidden, committed, first.rows)
        numbers = level_numbers(shape, levels, growth.committed, sequence, noise, iteration)
        inputs = torch.cat([own.flatten(), torch.tensor([len(committed) - 1]), F.pad(numbers, (0, 0, 0, most - levels)).flatten()])
        call((trees.key, "begin"), first, partial(trees.begin, first.span, first.rows), inputs, features)
        span = span_of(growth.committed + levels * shape.width, growth.kv_cache.capacity)
        for level in range(1, levels):
            call(trees.key, Bucket(shape.width, span), partial(trees.extend, span), trees.numbers[level])
        rows, probs = call((trees.key, "finish"), Bucket(shape.nodes, 0), partial(trees.finish, shape.nodes), trees.numbers[0])
        *rows, fronts = rows.tolist()  # the one read
        return growing.read_tree(rows, probs, levels, min(levels, 1 + fronts[0]), shape)


def level_numbers(shape: TreeSize, levels: int, committed: int, sequence: Sequence, noise: Noise, iteration: int) -> Tensor:
    """The numbers of every level, int64 [levels, NUMBERS]. committed : of the drafter"""
    floats = [shape.least_node, shape.least_level, *sequence.sampling.numbers]
    floats = torch.tensor(floats, dtype=torch.float64).view(torch.int64).tolist()
    base, key = to_int64(noise.base), to_int64(noise.key(DRAFTER, iteration))
    state = 0 if sequence.automaton is None else sequence.state([])[0]
    firsts = [-1, *range(0, shape.width * levels, shape.width)]
    return torch.tensor([[i, committed, firsts[i], sequence.length + i, base, key, i + 1, state, *floats] for i in range(levels)])

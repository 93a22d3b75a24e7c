"""Verification of a draft tree on the device, with one read: the path, the token after it, and what the panels show of every node.

The host's walk (engine/decoding/trees.py) reads each verdict before it goes down. Here every row settles its own children, as if the path
came there: rows do not depend on each other, and the noise of a child depends on its node and level. Then the path follows the children
that were accepted. Siblings are verified one after another, all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import NO_DRAFT, Rows
from engine.decoding.growth import Tree
from engine.decoding.verdict import verify_fused
from engine.networks.workspace import Bucket
from engine.noise import ACCEPT, DRAW, Noise
from engine.rules import RowMass, probability_of
from engine.sampling import draw, residual
from engine.tree import children, depths
from engine.verify.request import check_pair

SURE = 1 - 1e-9  # the least probability of a certain token; 1 in float32
NAME = "tree verdict"  # in the keys of graphs
LEVELS = (4, 8, 16, 32, 64, 128)  # of a path
ROWS = (1, 4, 8, 16, 32, 64, 128, 256)  # of a tree, the prefix included
Call = Callable[..., tuple[Tensor, ...]]  # (key, shape, function of tensors, tensors on any device) -> its results


def directly(key: Hashable, shape: Bucket, function: Callable[..., tuple[Tensor, ...]], *tensors: Tensor) -> tuple[Tensor, ...]:
    """Calls a function on the device of the last tensor. The first one may be on the host."""
    return function(tensors[0].to(tensors[-1].device, non_blocking=True), *tensors[1:])


@dataclass(frozen=True)
class Relaxation:
    """A relaxed rule. mass : see RowMass; is_greedy : the temperature is 0; key : identifies the rule in the keys of graphs"""

    mass: RowMass
    is_greedy: bool
    key: Hashable


@dataclass(frozen=True)
class PathVerdict:
    """The verdict on a tree.

    path, token : the accepted nodes and the token after them
    rows    : int64 [levels + 1] on the device, the pass's rows along the path, then repetitions of the last one
    chances : the acceptance probability of each accepted node; None: the node's p
    p, q    : of each node, see TreeTrace
    """

    path: list[int]
    token: int
    rows: Tensor
    chances: list[float] | None
    p: list[float]
    q: list[float]


@dataclass(frozen=True)
class TreeTable:
    """A tree as tensors of the device, with its random numbers. tokens, parents : int64 [N], accept : float64 [N], of the nodes;
    last : float64 [N + 1], for a draw in each row; below : int64 [N + 1, C], the children of each row, -1: no more"""

    tokens: Tensor
    parents: Tensor
    accept: Tensor
    last: Tensor
    below: Tensor

    @classmethod
    def of(cls, packed: Tensor) -> TreeTable:
        """From the tensor of `pack_tree`."""
        accept, last = (packed[:, at].contiguous().view(torch.float64) for at in (2, 3))
        return cls(packed[1:, 0], packed[1:, 1], accept[1:], last, packed[:, 4:])


@dataclass(frozen=True)
class Settled:
    """The verdicts of all rows on their children. child : int64 [N + 1], the accepted one, -1: none; tokens : int64 [N + 1], the token
    after the path if it ends in this row; chances : float64 [N + 1], the acceptance probability of the last child verified, or None"""

    child: Tensor
    tokens: Tensor
    chances: Tensor | None


def verify_there(
    rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool, relaxation: Relaxation | None = None, call: Call = directly
) -> PathVerdict:  # fmt: skip
    """The verdict on a tree in a pass that a kernel verifies.

    relaxation : of a relaxed rule, or None; call : of a function of tensors in fixed shapes, for example as a graph (`Replays.call`)
    """
    level, count = [0, *depths(tree.parents)], len(tree.tokens)  # of each row
    verdict = verify_fused(rows, NO_DRAFT.tokens, None, noise, [n + d for d in level], iteration, seeded)
    places, levels = next(r for r in ROWS if r > count), next(d for d in LEVELS if d >= max(level))
    packed = F.pad(pack_tree(tree, noise, n, iteration, level), (0, 0, 0, places - 1 - count), value=-1)
    chosen = seeded or (tree.probs is None and relaxation is None)
    tensors = {"packed": packed, "p": rows.p, "sound": verdict.sound}
    tensors |= {"answers": verdict.answers if seeded else verdict.fresh} if chosen else {}
    tensors |= {} if tree.probs is None else {"probs": tree.probs}
    tensors |= {"soft": rows.soft} if relaxation is not None and relaxation.is_greedy and not chosen else {}
    mass = None if chosen or relaxation is None else relaxation.mass
    padded = [F.pad(each, (*[0] * (2 * each.ndim - 1), (places - (name == "probs") - len(each)))) for name, each in tensors.items()]
    key = NAME, packed.shape[1], rows.p.dtype, tuple(tensors), None if mass is None else relaxation.key
    numbers, along = call(key, Bucket(places, levels), partial(tree_verdict, levels, mass, tuple(tensors)), *padded)
    read = numbers.tolist()  # the one read
    path, token = [node for node in read[:levels] if node >= 0], read[levels]
    floats = torch.tensor(read[levels + 1 :]).view(torch.float64)
    check_pair(len(path), token)
    p, q, chances = (each.tolist() for each in floats.split([places - 1, places - 1, len(floats) - 2 * (places - 1)]))
    return PathVerdict(path, token, along, None if chosen else chances[: len(path)], p[:count], q[:count])


def tree_verdict(levels: int, mass: RowMass | None, names: tuple[str, ...], *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """What the host reads of a verdict, int64: the path [levels], the token after it, and as bits p and q of each node, and the acceptance
    probabilities along the path; then the rows along the path. names : of the tensors, see `verify_there`"""
    tensor_of = dict(zip(names, tensors, strict=True))
    table, p, probs = TreeTable.of(tensor_of["packed"]), tensor_of["p"], tensor_of.get("probs")
    if "answers" in tensor_of:
        settled = settle_answers(tensor_of["answers"], table)
    else:
        settled = settle_siblings(p, None if mass is None else tensor_of.get("soft", p), probs, table, mass or probability_of)
    steps, along = walk_there(settled.child, levels)
    tokens = table.tokens.clamp(min=0)[:, None]
    own = p[table.parents + 1].gather(1, tokens).squeeze(1)
    drafted = torch.ones_like(own) if probs is None else probs.gather(1, tokens).squeeze(1)
    token = torch.where(tensor_of["sound"].index_select(0, along).all(), settled.tokens.index_select(0, along[-1:]), -1)
    chances = own[:0] if settled.chances is None else settled.chances.index_select(0, along[:-1])
    floats = torch.cat([each.double() for each in (own, drafted, chances)]).view(torch.int64)
    return torch.cat([steps, token, floats]), along


def pack_tree(tree: Tree, noise: Noise, n: int, iteration: int, level: list[int]) -> Tensor:
    """The host's description of a tree, int64 [N + 1, 4 + C], for the prefix and each node: token, parent, the bits of two uniform numbers,
    and children. level : of each row"""
    below = children(tree.parents)
    most = max(map(len, below)) if tree.shape is None else tree.shape.width
    nodes = torch.tensor([[*each, *[-1] * (most - len(each))] for each in below], dtype=torch.int64).view(len(below), most)
    after, slots = n + torch.tensor(level), torch.arange(-1, len(tree.tokens)).clamp(min=0)
    uniforms = noise.host_uniforms((ACCEPT,), after - 1, iteration, slots)[0], noise.host_uniforms((DRAW,), after, iteration)[0]
    columns = [torch.tensor([-1, *tree.tokens]), torch.tensor([-1, *tree.parents]), *(each.view(torch.int64) for each in uniforms)]
    return torch.cat([torch.stack(columns, 1), nodes], 1)


def settle_answers(answers: Tensor, table: TreeTable) -> Settled:
    """Accepts the child that equals the row's own draw; see `rules.walk`. answers : int64 [N + 1]"""
    child = torch.full_like(answers, -1)
    for nodes in table.below.flip(1).unbind(1):
        equal = table.tokens[nodes.clamp(min=0)] == answers
        child = torch.where((nodes >= 0) & equal, nodes, child)
    return Settled(child, answers, None)


def settle_siblings(p: Tensor, soft: Tensor | None, probs: Tensor | None, table: TreeTable, mass: RowMass) -> Settled:
    """Verifies every row's children one after another; see `rules.multi_round`, and `rules.first_above` for rows of a relaxed rule that
    are certain.

    p : [N + 1, V]; soft : see `Rows`, with a relaxed rule, else None; probs : [N, V], the nodes' distributions; None: all were chosen
    """
    rest, child, chances = p, torch.full_like(table.last, -1, dtype=torch.int64), torch.zeros_like(table.last)
    certain = torch.zeros_like(child, dtype=torch.bool) if soft is None else p.amax(-1) >= SURE
    for nodes in table.below.unbind(1):
        at = nodes.clamp(min=0)
        x, live = table.tokens[at].clamp(min=0), (nodes >= 0) & (child < 0)
        q = torch.zeros_like(p).scatter_(1, x[:, None], 1.0) if probs is None else probs[at]
        ratio = (mass(rest, x) / probability_of(q, x)).double()
        if soft is not None:
            wins = (probability_of(p, x) > 0) | (mass(soft, x) > soft.amax(-1))
            ratio = torch.where(certain, wins.double(), ratio)
        accepted = live & (table.accept[at] < ratio)
        child, chances = torch.where(accepted, nodes, child), torch.where(live, ratio.clamp(max=1), chances)
        left = residual(rest, q)
        rest = torch.where((live & ~accepted & ~certain)[:, None], left / left.sum(-1, keepdim=True), rest)
    return Settled(child, draw(rest, table.last), chances)


def walk_there(child: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """The nodes of the path, int64 [levels], -1 after its end, and the rows along it, [levels + 1], the last one repeated."""
    at = torch.zeros(1, dtype=torch.int64, device=child.device)
    steps, along = [at[:0]], [at]
    for _ in range(levels):
        node = child.index_select(0, at)
        at = torch.where(node < 0, at, node + 1)
        steps.append(node)
        along.append(at)
    return torch.cat(steps), torch.cat(along)

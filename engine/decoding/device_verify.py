"""Verification of a draft tree on the device, with one read: the path, the token after it, and what the panels show of every node.

The host's walk (engine/decoding/trees.py) reads each verdict before it goes down. Here every row settles its own children, as if the path
came there: rows do not depend on each other, and the noise of a child depends on its node and level. Then the path follows the children
that were accepted. Siblings are verified one after another, all rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Rows
from engine.decoding.growth import Tree
from engine.decoding.verdict import verify_fused
from engine.noise import ACCEPT, DRAW, Noise
from engine.rules import RowMass, probability_of
from engine.sampling import draw, residual
from engine.tree import children, depths
from engine.verify.request import check_pair

SURE = 1 - 1e-9  # the least probability of a certain token


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


@dataclass(frozen=True)
class Settled:
    """The verdicts of all rows on their children. child : int64 [N + 1], the accepted one, -1: none; tokens : int64 [N + 1], the token
    after the path if it ends in this row; chances : float64 [N + 1], the acceptance probability of the last child verified, or None"""

    child: Tensor
    tokens: Tensor
    chances: Tensor | None


def verify_there(
    rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool, mass: RowMass | None = None, is_greedy: bool = False
) -> PathVerdict:  # fmt: skip
    """The verdict on a tree in a pass that a kernel verifies. mass : of a relaxed rule, or None; is_greedy : the temperature is 0"""
    level = [0, *depths(tree.parents)]  # of each row
    verdict = verify_fused(rows, NO_DRAFT.tokens, None, noise, [n + d for d in level], iteration, seeded)
    table = send_table(tree, noise, n, iteration, level, rows.p.device)
    if seeded or (tree.probs is None and mass is None):
        settled = settle_answers(verdict.answers if seeded else verdict.fresh, table)
    else:
        soft = None if mass is None else rows.soft if is_greedy else rows.p
        settled = settle_siblings(rows.p, soft, tree.probs, table, mass or probability_of)
    steps, along = walk_there(settled.child, max(level))
    p = rows.p[table.parents + 1].gather(1, table.tokens[:, None]).squeeze(1)
    q = torch.ones_like(p) if tree.probs is None else probability_of(tree.probs, table.tokens)
    token = torch.where(verdict.sound.index_select(0, along).all(), settled.tokens.index_select(0, along[-1:]), -1)
    chances = p[:0] if settled.chances is None else settled.chances.index_select(0, along[:-1])
    floats = torch.cat([each.double() for each in (p, q, chances)]).view(torch.int64)
    numbers = torch.cat([steps, token, floats]).tolist()  # the one read
    path = [node for node in numbers[: len(steps)] if node >= 0]
    check_pair(len(path), numbers[len(steps)])
    probs, odds, ratios = torch.tensor(numbers[len(steps) + 1 :]).view(torch.float64).split([len(p), len(p), len(chances)])
    known = None if settled.chances is None else ratios.tolist()[: len(path)]
    return PathVerdict(path, numbers[len(steps)], along, known, probs.tolist(), odds.tolist())


def send_table(tree: Tree, noise: Noise, n: int, iteration: int, level: list[int], device: torch.device) -> TreeTable:
    """Sends a tree as one tensor. level : of each row"""
    below = children(tree.parents)
    most = max(map(len, below))
    nodes = torch.tensor([[*each, *[-1] * (most - len(each))] for each in below], dtype=torch.int64).view(len(below), most)
    accept = [0.5, *(noise.host_uniform(ACCEPT, n + d - 1, 1, iteration, node).item() for node, d in enumerate(level[1:]))]
    last = noise.host_uniforms((DRAW,), torch.tensor([n + d for d in level]), iteration)[0]
    columns = [torch.tensor([-1, *tree.tokens]), torch.tensor([-1, *tree.parents])]
    columns += [each.view(torch.int64) for each in (torch.tensor(accept, dtype=torch.float64), last)]
    table = torch.cat([torch.stack(columns, 1), nodes], 1)
    there = (table.pin_memory() if device.type == "cuda" else table).to(device, non_blocking=True)
    accepts, lasts = (there[:, at].contiguous().view(torch.float64) for at in (2, 3))
    return TreeTable(there[1:, 0], there[1:, 1], accepts[1:], lasts, there[:, 4:])


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
    certain = torch.zeros_like(child, dtype=torch.bool) if soft is None else p.amax(-1) > SURE
    for nodes in table.below.unbind(1):
        at = nodes.clamp(min=0)
        x, live = table.tokens[at], (nodes >= 0) & (child < 0)
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

"""The loop of all tree methods: verify a tree, commit the accepted path, get the next shape from a schedule, grow a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from engine.core import NO_DRAFT, ChosenTokens, Knobs, Rows, Sequence, Step
from engine.decoding import neighbours
from engine.decoding.decisions import decisions
from engine.decoding.deviation import acceptance_uniforms
from engine.decoding.device_growth import DeviceGrowth, fits
from engine.decoding.device_verify import Call, PathVerdict, directly, verify_there
from engine.decoding.growth import NO_TREE, Tree, TreeSize, grow, one_hot_rows
from engine.decoding.policy import matches_seed, verifies_block
from engine.decoding.verdict import describe, is_fused, judge_block, levels_of, verify_fused
from engine.drafters.feature_draft import FeatureDraft
from engine.noise import ACCEPT, DRAW, Noise
from engine.rules import Mass, first_above, multi_round, probability, probability_of, walk
from engine.sampling import draw, draw_gumbel
from engine.trace import DeviationTrace, TreeTrace
from engine.tree import children, depths


@dataclass(frozen=True)
class Cycle:
    """The data of a finished cycle that a schedule may use: none of it depends on the next tree's draws.

    start : position of the first token that the tree drafted; levels, nodes : size of the tree as built; passes : drafter passes that it
    needed;
    accepted : number of drafts accepted; committed : number of tokens committed
    """

    start: int
    shape: TreeSize
    levels: int
    nodes: int
    passes: int
    accepted: int
    committed: int


class Schedule(Protocol):
    """Chooses the shape of the next tree from committed tokens and earlier cycles alone."""

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> TreeSize:
        """The shape of the tree after the committed tokens."""
        ...

    def observe(self, cycle: Cycle) -> None:
        """Called after every cycle that verified a tree."""
        ...


class FixedSchedule:
    """A schedule that always returns the shape set by the knobs."""

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> TreeSize:
        """The shape set by the knobs."""
        return TreeSize(knobs.depth, knobs.width, knobs.nodes)

    def observe(self, cycle: Cycle) -> None:
        """Does nothing."""


def tree_decoding(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: FeatureDraft, schedule: Schedule) -> Iterator[Step]:
    """The loop of all tree methods. State: the tree to be verified next, the drafter's growth, the deviation meter."""
    neighbours.check_start(knobs)
    growth = drafter.start(sequence)
    call = directly if sequence.workspace is None else sequence.workspace.replays.call
    there = DeviceGrowth(growth, sequence, call) if fits(growth, sequence) else None
    relaxed = neighbours.RelaxedRule(sequence)
    tree, iteration = NO_TREE, 0
    while not sequence.done:
        n = sequence.length
        seeded = matches_seed(knobs, neighbours.is_exact(knobs))
        rule = None if seeded or knobs.relax == "off" else relaxed
        rows = sequence.forward(tree.draft())
        is_due = rule is not None and relaxed.meter.begin(knobs, noise, n, iteration)
        verdict = verify_tree(rows, tree, noise, n, iteration, seeded, knobs, rule, is_due, call)
        path = verdict.path
        hidden = rows.hidden.index_select(1, verdict.rows[: len(path) + 1])
        committed = sequence.commit(path, verdict.token)
        if rule is not None:
            relaxed.meter.commit(len(committed))
        step = step_of(rows, tree, verdict, n, committed, None if rule is None else relaxed.meter.trace())
        if tree.shape is not None:
            levels = max(depths(tree.parents), default=0)
            schedule.observe(Cycle(n, tree.shape, levels, len(tree.tokens), tree.needed, len(path), len(committed)))
        iteration += 1
        tree = NO_TREE
        room = sequence.limit - sequence.length - 1
        if not sequence.done and room > 0:
            shape = schedule.next(sequence, knobs, noise, iteration)
            more = (shape, room, knobs.children, noise, iteration, seeded)
            tree = grow(growth, growth.root(hidden, committed), sequence, *more) if there is None else there.grow(hidden, committed, *more)
            step.draft_forwards = tree.passes
            positions = [sequence.length - 1 + d for d in depths(tree.parents)]
            step.draft = {"tokens": tree.tokens, "positions": positions, "parents": tree.parents, "status": "draft"}
        yield step


def verify_tree(
    rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool, knobs: Knobs | None = None,
    relaxed: neighbours.RelaxedRule | None = None, is_due: bool = False, call: Call = directly,
) -> PathVerdict:  # fmt: skip
    """The verdict on a tree, on the device if a kernel verifies its rows. call : see `verify_there`

    relaxed : a relaxed rule with its knobs, or None; is_due : its meter measures this pass, on the host
    """
    if relaxed is None and knobs is not None and verifies_block(knobs) and tree.is_chain:
        tokens = torch.tensor(tree.tokens)
        q = ChosenTokens(tokens, rows.p.shape[-1], rows.p.dtype) if tree.probs is None else tree.probs
        block = judge_block(rows, tokens, q, noise, n, iteration)
        p, q = (probability_of(each[: len(tokens)], block.tokens) for each in (rows.p, block.draft_probs))
        along = torch.arange(block.a + 1, device=p.device)
        return PathVerdict(list(range(block.a)), block.token, along, block.ratios[: block.a].tolist(), *torch.stack([p, q]).tolist())
    if is_fused(rows) and not is_due:
        relaxation = None if relaxed is None else relaxed.by_row(knobs)
        return verify_there(rows, tree, noise, n, iteration, seeded, relaxation, call)
    mass = None if relaxed is None else relaxed.mass(knobs)
    path, token, chances = verify(rows, tree, noise, n, iteration, seeded, mass, relaxed if is_due else None)
    p = rows.p[[parent + 1 for parent in tree.parents], tree.tokens]
    q = torch.ones_like(p) if tree.probs is None else tree.probs[list(range(len(tree.tokens))), tree.tokens]
    along = torch.tensor([0, *(node + 1 for node in path)], device=p.device)
    return PathVerdict(path, token, along, chances, *torch.stack([p, q]).tolist())  # one read


def verify(
    rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool, mass: Mass | None,
    metered: neighbours.RelaxedRule | None = None,
) -> tuple[list[int], int, list[float] | None]:  # fmt: skip
    """The accepted path, the token after it, and the acceptance probability of each node on the path; None: the node's p.

    metered : the rule that gives the mass, if its meter measures this pass
    """
    if seeded or (tree.probs is None and mass is None):
        path, token = walk(tree.parents, tree.tokens, answers(rows, tree, noise, n, iteration, seeded))
        return path, token, None
    below, path, chances, at = children(tree.parents), [], [], -1
    rest = probs_below(rows, at)
    while nodes := below[at + 1]:
        tokens = torch.tensor([tree.tokens[node] for node in nodes], device=rest.device)
        if mass is not None and neighbours.is_sure(rest):
            which, rest, ratios = first_above(rest, rows.soft[at + 1], tokens, mass)
            if metered is not None:  # p is one-hot: any other token deviates by 1
                other = float(which >= 0 and rest[tokens[which]].item() == 0)
                if acceptance_uniforms(noise, n + len(path), 1, iteration).item() >= metered.meter.share(other):
                    which, rest, ratios = first_above(rest, rest, tokens, probability)
        else:
            probs = one_hot_rows(tokens, rest) if tree.probs is None else tree.probs[nodes]
            u = [noise.host_uniform(ACCEPT, n + len(path), 1, iteration, node).item() for node in nodes]
            share = None if metered is None else partial(metered.share, mass)
            which, rest, ratios = multi_round(rest, tokens, probs, u, mass or probability, share)
        if which < 0:
            break
        at = nodes[which]
        path.append(at)
        chances.append(ratios[-1])
        rest = probs_below(rows, at)
    return path, draw(rest[None], noise.uniform(DRAW, n + len(path), 1, iteration)).item(), chances


def answers(rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool) -> list[int]:
    """The model's own draw in every row. Rows of the same depth share their noise, because a path contains only one of them."""
    depth = [0, *depths(tree.parents)]
    if is_fused(rows):
        verdict = verify_fused(rows, NO_DRAFT.tokens, None, noise, [n + d for d in depth], iteration, seeded)
        return (verdict.answers if seeded else verdict.fresh).tolist()
    at = torch.tensor(depth, device=rows.logits.device)
    if seeded:
        return draw_gumbel(rows.scores, noise.gumbel(n, max(depth) + 1)[at]).tolist()
    return draw(rows.p, noise.uniform(DRAW, n, max(depth) + 1, iteration)[at]).tolist()


def probs_below(rows: Rows, node: int) -> Tensor:
    """The model's distribution [V] of the children of a node; -1 is the prefix."""
    return rows.p[node + 1]


def step_of(rows: Rows, tree: Tree, verdict: PathVerdict, n: int, committed: list[int], deviation: DeviationTrace | None) -> Step:
    """The Step of a pass, with the verified tree. p and q of a node: its probability under the model given its path, and under the drafter
    when it was drawn."""
    path = verdict.path
    levels, width = max(depths(tree.parents), default=0), None if tree.shape is None else tree.shape.width
    chances = [verdict.p[node] for node in path] if verdict.chances is None else verdict.chances
    p, last = rows.p.index_select(0, verdict.rows[: len(path) + 1]), verdict.token if len(committed) > len(path) else None
    step = describe(
        n, committed, len(path), len(tree.tokens), p, chances,
        depth=levels_of(len(path), committed), parent=[-1, *path][: len(committed)], deviation=deviation,
        tree=TreeTrace(tree.tokens, tree.parents, path, verdict.p, verdict.q, levels, width),
    )  # fmt: skip
    step.decide = lambda: decisions(p[: len(committed)], last, torch.tensor([tree.tokens[node] for node in path][: len(committed)]))
    return step


def why(knobs: Knobs) -> str:
    """The sentence of the badge."""
    if not neighbours.is_exact(knobs):
        return neighbours.why(knobs)
    return "Exact: chosen children are accepted only by the model's own draws, drawn ones are verified against their distributions."

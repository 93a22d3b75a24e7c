"""EAGLE-2: a tree of guesses grown by a small drafter that extrapolates the model's features, verified in one pass.

Paper: EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees, Li et al., arXiv 2406.16858; for pictures with guidance
LANTERN (arXiv 2410.03355) and ADT-Tree, section III, equations 1 and 3 to 5.
Idea: the drafter grows a tree level by level, always behind the `width` nodes it believes in most, and the best `nodes` of all are
verified at once. The model's own law leads down the tree as long as it finds a child.
Exactness: always, unless a relaxed rule is on. Chosen children: the model's draw at a node does not depend on the tree, and a child that
equals it is only a pass saved. Sampled children: drawn without replacement from the drafter's law, asked one after the other
(`multi_round`). What may not be is a look at a drawn token that decides whether it stays. Here a drawn node's score is that of its place
(`turn`: how likely it comes to be asked and accepted, by the law behind its parent), never that of its token, and no descendant can move
it out; so re-ranking stays exact.
Deviations: the published trees have chosen children also above temperature 0, where a flat law finds none of them; `sampled` draws them,
and `auto` decides at every node by the drafter's law alone which kind is likelier to be accepted. Depth is the number of levels (the
public code makes one more than it says). The first pass of a run proposes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.accept import Mass, first_above, multi_round, probability, walk
from engine.core import NO_DRAFT, VERIFY, Case, Draft, Knob, Knobs, Method, Rows, Sequence, Step
from engine.drafters.feature_draft import FeatureDraft, FeatureGrowth
from engine.errors import BadKnob
from engine.methods import lantern
from engine.noise import ACCEPT, DRAFTER, DRAW, Noise
from engine.sampling import draw, draw_gumbel, entropy
from engine.tree import best, children, depths, restrict

DEPTH = Knob("depth", "d", 5, 1, 12, 1, help="Levels of the tree.")
WIDTH = Knob("width", "k", 10, 1, 40, 1, help="Nodes that are grown on at every level, and children of each.")
NODES = Knob("nodes", "N", 60, 1, 128, 1, help="How many nodes are verified in a pass: the best of those grown.")
CHILDREN = Knob(
    "children", "", "auto", choices=("auto", "sampled", "deterministic"),
    help="deterministic: the most probable children, as published. sampled: drawn ones. auto: at every node what is likelier to succeed.",
)  # fmt: skip

SURVIVAL = 0.6  # the assumed chance that a drawn token is accepted, where auto weighs drawn children against chosen ones
LATER = 0.7  # see `turn`


@dataclass(frozen=True)
class Shape:
    """How large the next tree may be.

    least_node, least_level : the chance of being accepted that a node must have, and that the nodes must have together behind which a
    further level is grown
    """

    depth: int
    width: int
    nodes: int
    least_node: float = 0.0
    least_level: float = 0.0


@dataclass(frozen=True)
class Cycle:
    """What a schedule may know of a cycle: all of it is committed history.

    start : position of the first token that the tree guessed; levels, nodes : of the tree as built; passes : of the drafter;
    accepted : guesses accepted; committed : tokens
    """

    start: int
    shape: Shape
    levels: int
    nodes: int
    passes: int
    accepted: int
    committed: int


class Schedule(Protocol):
    """Decides the shape of the next tree, from committed history alone."""

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> Shape:
        """The shape for the tree behind the committed tokens."""
        ...

    def saw(self, cycle: Cycle) -> None:
        """A cycle that proposed something is over."""
        ...


class Fixed:
    """The shape of the knobs, always."""

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> Shape:
        """The knobs."""
        return Shape(knobs.depth, knobs.width, knobs.nodes)

    def saw(self, cycle: Cycle) -> None:
        """Nothing to learn."""


@dataclass(frozen=True)
class Tree:
    """A tree of guesses. Siblings in the order in which they are asked.

    laws   : [N, V], the law of each guess given its path and its earlier siblings; None where all were chosen and none drawn
    drawn  : of each node whether it was drawn
    passes : of the drafter
    """

    tokens: list[int]
    parents: list[int]
    laws: Tensor | None
    drawn: list[bool]
    passes: int
    shape: Shape | None

    def draft(self, device: torch.device) -> Draft:
        """For the pass."""
        if not self.tokens:
            return NO_DRAFT
        return Draft(
            torch.tensor(self.tokens, dtype=torch.int64, device=device),
            parents=torch.tensor(self.parents, dtype=torch.int64, device=device),
            q=self.laws,
        )


NO_TREE = Tree([], [], None, [], 0, None)


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: FeatureDraft) -> Iterator[Step]:
    """Yields one Step a pass."""
    return tree_decoding(sequence, knobs, noise, drafter, Fixed())


def tree_decoding(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: FeatureDraft, schedule: Schedule) -> Iterator[Step]:
    """The loop of all tree methods. Locals: the tree that waits for verification, the drafter's growth, the deviation meter."""
    seeded = knobs.verify == "match seed"
    growth = drafter.start(sequence)
    relaxed = lantern.Relaxed(sequence)
    tree, iteration = NO_TREE, 0
    while not sequence.done:
        n = sequence.length
        mass = relaxed.mass(knobs)
        if seeded and mass is not None:
            raise BadKnob(f"match seed needs an exact rule; relax={knobs.relax} is not. Set relax=off, or verify=residual.")
        rows = sequence.forward(tree.draft(sequence.device))
        path, token, chances = verify(rows, tree, noise, n, iteration, seeded, mass)
        if mass is not None and tree.tokens and relaxed.meter.is_due(knobs, noise, n, iteration):
            siblings = children(tree.parents)[0]
            tokens = torch.tensor([tree.tokens[node] for node in siblings], device=sequence.device)
            relaxed.measure(rows, tokens, tree.laws[0] if tree.drawn[0] else None, mass)
        hidden = rows.hidden[:, [0, *(node + 1 for node in path)]]
        committed = sequence.commit(path, token)
        step = describe(rows, tree, path, chances, n, committed)
        if mass is not None:
            step.trace |= relaxed.meter.trace()
        if tree.shape is not None:
            levels = max(depths(tree.parents), default=0)
            schedule.saw(Cycle(n, tree.shape, levels, len(tree.tokens), tree.passes, len(path), len(committed)))
        iteration += 1
        tree = NO_TREE
        room = sequence.limit - sequence.length - 1
        if not sequence.done and room > 0:
            shape = schedule.next(sequence, knobs, noise, iteration)
            tree = grow(growth, growth.root(hidden, committed), sequence, shape, room, knobs.children, noise, iteration, seeded)
            step.draft_forwards = tree.passes
            positions = [sequence.length - 1 + d for d in depths(tree.parents)]
            step.draft = {"tokens": tree.tokens, "positions": positions, "parents": tree.parents, "status": "draft"}
        yield step


def verify(
    rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool, mass: Mass | None
) -> tuple[list[int], int, list[float]]:
    """The accepted path, the token behind it, and the chance that each one on the path had."""
    if seeded or (tree.laws is None and mass is None):
        path, token = walk(tree.parents, tree.tokens, answers(rows, tree, noise, n, iteration, seeded))
        p = rows.p
        return path, token, [p[at + 1, tree.tokens[then]].item() for at, then in zip([-1, *path], path, strict=False)]
    below, path, chances, at = children(tree.parents), [], [], -1
    left = law_behind(rows, at)
    while nodes := below[at + 1]:
        tokens = torch.tensor([tree.tokens[node] for node in nodes], device=left.device)
        if mass is not None and lantern.is_sure(left):
            which, left, asked = first_above(left, rows.soft[at + 1], tokens, mass)
        else:
            laws = certain(tokens, left) if tree.laws is None else tree.laws[nodes]
            u = [noise.uniform(ACCEPT, n + len(path), 1, iteration, node).item() for node in nodes]
            which, left, asked = multi_round(left, tokens, laws, u, mass or probability)
        if which < 0:
            break
        at = nodes[which]
        path.append(at)
        chances.append(asked[-1])
        left = law_behind(rows, at)
    return path, draw(left[None], noise.uniform(DRAW, n + len(path), 1, iteration)).item(), chances


def answers(rows: Rows, tree: Tree, noise: Noise, n: int, iteration: int, seeded: bool) -> list[int]:
    """The model's own draw in every row; rows of one depth share their noise, because a path meets only one of them."""
    depth = [0, *depths(tree.parents)]
    at = torch.tensor(depth, device=rows.logits.device)
    if seeded:
        return draw_gumbel(rows.scores, noise.gumbel(n, max(depth) + 1)[at]).tolist()
    return draw(rows.p, noise.uniform(DRAW, n, max(depth) + 1, iteration)[at]).tolist()


def law_behind(rows: Rows, node: int) -> Tensor:
    """The model's law [V] of the children of a node; -1 is the prefix."""
    return rows.p[node + 1]


def certain(tokens: Tensor, like: Tensor) -> Tensor:
    """One-hot laws [b, V] of chosen tokens, int64 [b]; `like` [V] gives the kind of number."""
    return like.new_zeros(len(tokens), len(like)).scatter_(1, tokens[:, None], 1.0)


def grow(
    growth: FeatureGrowth,
    logits: Tensor,
    sequence: Sequence,
    shape: Shape,
    room: int,
    kind: str,
    noise: Noise,
    iteration: int,
    seeded: bool,
) -> Tree:
    """Level by level, from the guided logits [V] behind the prefix: at most `room` levels, and the best `shape.nodes` nodes of all.

    A chosen child scores its parent's score plus log q of its token (equation 3); a drawn one plus the log of the chance that its turn
    comes and it is accepted, which does not look at the token.
    """
    tokens: list[int] = []
    parents: list[int] = []
    scores: list[float] = []
    drawn: list[bool] = []
    bases: list[Tensor] = []  # of each level [F, V]
    base_of: list[int] = []
    number = {-1: -1}  # the drafter's numbers of the nodes that were grown on
    frontier, levels, passes = [-1], min(shape.depth, room), 1
    logits = logits[None]
    for level in range(levels):
        if level:
            frontier = best_of_level(frontier, scores, shape)
            if sum(math.exp(scores[u]) for u in frontier) < shape.least_level or not frontier:
                break
            logits = growth.expand([number[parents[u]] for u in frontier], [tokens[u] for u in frontier])
            for u in frontier:
                number[u] = len(number) - 1
            passes += 1
        laws = laws_behind(sequence, logits, [path_of(tokens, parents, u) for u in frontier])
        luck = weights(noise, sequence.length + level, laws.shape, iteration, level, seeded)
        first, grown = sum(len(b) for b in bases), []
        bases.append(laws)
        for i, (u, family) in enumerate(zip(frontier, families(laws, logits, shape, kind, luck), strict=True)):
            behind = 0.0 if u < 0 else scores[u]
            for token, sampled, chance in family:
                grown.append(len(tokens))
                tokens.append(token)
                parents.append(u)
                drawn.append(sampled)
                base_of.append(first + i)
                scores.append(behind + math.log(max(chance, 1e-30)))
        frontier = grown
    kept = reranked(parents, scores, tokens, drawn, shape)
    tokens, drawn, base_of = ([x[node] for node in kept] for x in (tokens, drawn, base_of))
    parents = restrict(parents, kept)
    laws = sibling_laws(torch.cat(bases)[base_of], tokens, parents, drawn) if any(drawn) else None
    return Tree(tokens, parents, laws, drawn, passes, shape)


def families(laws: Tensor, logits: Tensor, shape: Shape, kind: str, luck: Callable[[], Tensor]) -> list[list[tuple[int, bool, float]]]:
    """What grows behind each node of a frontier, in order: tokens, whether they were drawn, and the chance that they are accepted once
    their parent was. laws, logits : [F, V]"""
    sampled, keys, gains = proposals(laws, logits, shape, kind, luck)
    found = keys.topk(min(shape.width, laws.shape[-1]), -1)
    rows = zip(laws.amax(-1).tolist(), sampled, found.indices.tolist(), found.values.tolist(), gains.gather(1, found.indices).tolist())
    return [
        [(token, drawn, min(turn(peak, j) if drawn else gain[j], 1.0)) for j, token in enumerate(tokens) if key[j] > 0]
        for peak, drawn, tokens, key, gain in rows
    ]


def path_of(tokens: list[int], parents: list[int], node: int) -> list[int]:
    """The tokens from the prefix down to a node."""
    found: list[int] = []
    while node >= 0:
        found.append(tokens[node])
        node = parents[node]
    return found[::-1]


def turn(peak: float, place: int) -> float:
    """The chance that the turn of a drawn sibling comes, counted from 0, and that it is accepted, if the drafter's greatest probability at
    its parent is `peak`. Measured on pictogram at temperatures 0.6 and 1, a first one is accepted about as often as this probability says,
    whatever was drawn, and a later one 0.7 times as often."""
    return peak if place == 0 else (1 - peak) * (1 - LATER * peak) ** (place - 1) * LATER * peak


def best_of_level(nodes: list[int], scores: list[float], shape: Shape) -> list[int]:
    """The nodes of a level that are grown on, in order of index."""
    worth = [node for node in nodes if math.exp(scores[node]) >= shape.least_node]
    return sorted(sorted(worth, key=lambda node: (-scores[node], node))[: shape.width])


def reranked(parents: list[int], scores: list[float], tokens: list[int], drawn: list[bool], shape: Shape) -> list[int]:
    """The nodes that are verified: the best of all by score (never by a drawn token), and never none."""
    found = best(parents, scores, shape.nodes)
    return [node for node in found if math.exp(scores[node]) >= shape.least_node] or found[:1]


def laws_behind(sequence: Sequence, logits: Tensor, paths: list[list[int]]) -> Tensor:
    """The laws [F, V] of guided logits [F, V], each behind a path of its own; paths that lead into one state of the grammar go together."""
    rows: dict[Hashable, list[int]] = {}
    for i, path in enumerate(paths):
        rows.setdefault(sequence.state(path), []).append(i)
    if len(rows) == 1:
        return sequence.law(logits, paths[0])
    found = torch.cat([sequence.law(logits[some], paths[some[0]]) for some in rows.values()])
    order = [i for some in rows.values() for i in some]
    return torch.empty_like(found).index_copy_(0, torch.tensor(order, device=found.device), found)


def weights(noise: Noise, position: int, shape: torch.Size, iteration: int, level: int, seeded: bool) -> Callable[[], Tensor]:
    """What the laws [F, V] of a level are multiplied with where children are drawn, made when asked for: 1 / E with E exponential. The
    greatest products, in order, are draws without replacement. Every node has noise of its own in this cycle; for match seed, that
    of the position, whose Gumbel numbers are the logarithms of such weights, so that the first child is the model's own draw where the
    laws agree."""
    if seeded:
        return lambda: noise.gumbel(position, 1).exp()
    return lambda: -1 / noise.uniform(DRAFTER, 0, shape.numel(), iteration, level + 1).log().view(shape).to(noise.dtype)


def proposals(laws: Tensor, logits: Tensor, shape: Shape, kind: str, luck: Callable[[], Tensor]) -> tuple[list[bool], Tensor, Tensor]:
    """For nodes with these laws and guided logits [F, V]: which draw their children, by which keys [F, V] the greatest are
    taken (0: impossible), and what a chosen child is worth [F, V]. luck : see `weights`."""
    worth = rank(laws, logits)
    sampled = drawn_at(laws, shape, kind)
    if not any(sampled):
        return sampled, worth, worth
    return sampled, torch.where(torch.tensor(sampled, device=laws.device)[:, None], laws * luck(), worth), worth


def rank(laws: Tensor, logits: Tensor) -> Tensor:
    """What chosen children are ranked by [F, V]: the law; at temperature 0, where it holds one token only, the softmax of the logits."""
    sure = (laws.amax(-1) >= 1) & (laws.argmax(-1) == logits.argmax(-1))
    return torch.where(sure[:, None], torch.softmax(logits, -1).to(laws.dtype), laws)


def drawn_at(laws: Tensor, shape: Shape, kind: str) -> list[bool]:
    """Which nodes draw their children. auto: where k draws are likelier to hold an accepted one than the k most probable tokens are to
    hold the model's own draw; both are estimated from the drafter's law, before anything is drawn."""
    if kind != "auto":
        return [kind == "sampled"] * len(laws)
    count = min(shape.width, laws.shape[-1])
    return (laws.topk(count, -1).values.sum(-1) < 1 - (1 - SURVIVAL) ** count).tolist()


def sibling_laws(laws: Tensor, tokens: list[int], parents: list[int], drawn: list[bool]) -> Tensor:
    """The law of every guess [N, V] from the drafter's law at its parent [N, V]: without the earlier siblings if drawn, else one-hot."""
    struck: list[tuple[int, int]] = []
    for siblings in children(parents):
        struck += [(node, tokens[earlier]) for i, node in enumerate(siblings) if drawn[node] for earlier in siblings[:i]]
    if struck:
        at, gone = zip(*struck, strict=True)
        laws[list(at), list(gone)] = 0
    fixed = [node for node in range(len(tokens)) if not drawn[node]]
    if fixed:
        laws[fixed] = certain(torch.tensor([tokens[node] for node in fixed], device=laws.device), laws[0])
    return laws / laws.sum(-1, keepdim=True)


def describe(rows: Rows, tree: Tree, path: list[int], chances: list[float], n: int, committed: list[int]) -> Step:
    """The Step of a pass: per token whether it was a guess, its chance, the entropy of its law, its depth in the tree."""
    k, a = len(committed), len(path)
    levels = max(depths(tree.parents), default=0)
    trace = {
        "accepted": ([True] * a + [False])[:k],
        "accept_probability": chances[:k],
        "entropy": entropy(rows.p[[0, *(node + 1 for node in path)]])[:k],
        "depth": [*range(1, a + 1), 0][:k],
        "parent": [-1, *path][:k],
        "tree": {"parents": tree.parents, "tokens": tree.tokens, "path": path, "levels": levels} | _chances(rows, tree),
    }
    if tree.shape is not None:
        trace |= {"tree_depth": levels, "tree_width": tree.shape.width}
    return Step(committed, list(range(n, n + k)), drafted=len(tree.tokens), trace=trace)


def _chances(rows: Rows, tree: Tree) -> dict[str, list[float]]:
    """p and q of every node: what the model gives it behind its path, and the drafter when it was drawn; q is 1 where it was chosen."""
    p = rows.p[[parent + 1 for parent in tree.parents], tree.tokens]
    q = torch.ones_like(p) if tree.laws is None else tree.laws[list(range(len(tree.tokens))), tree.tokens]
    return {"p": p.tolist(), "q": q.tolist()}


def why(knobs: Knobs) -> str:
    """The sentence of the badge."""
    if not lantern.exact(knobs):
        return lantern.why(knobs)
    return "Exact: chosen children are only walked by the model's own draws, drawn ones are verified against their laws."


KNOBS = (DEPTH, WIDTH, NODES, CHILDREN, *lantern.KNOBS, VERIFY)
_SMALL = {"depth": 2, "width": 2, "nodes": 5}
_LOAN_AT_0 = {"depth": 2, "width": 3, "nodes": 9, "relax": "additive", "added_mass": 0.0, "neighbour_share": 0.4}
_SQUARE = {"rows": 2, "columns": 2}
_FOUR = {"rows": 2, "columns": 2, "vocabulary": 4, "sharpness": 1.2}  # flat enough for auto to choose both kinds
_LINE = {"rows": 1, "columns": 3, "vocabulary": 5, "guidance": 1.0, "temperature": 0.7}


def _relaxed(rule: str, strength: float, kind: str) -> dict[str, float | str]:
    """Knobs of a relaxed tree of one level with three children; every token has two neighbours."""
    name = "added_mass" if rule == "additive" else "multiplied_mass"
    return {"children": kind, "depth": 1, "width": 3, "nodes": 3, "relax": rule, name: strength, "neighbour_share": 0.4}


METHOD = Method(
    name="eagle",
    title="EAGLE-2",
    decode=decode,
    knobs=KNOBS,
    paper="EAGLE-2, Li et al., arXiv 2406.16858; LANTERN, Jang et al., arXiv 2410.03355",
    exact=lantern.exact,
    why=why,
    needs=frozenset({"hidden", "feature_draft"}),
    drafter="feature_draft",
    common=_SMALL | {"children": "sampled"},
    cases=(
        Case(
            "TREE-EXACT deterministic", "same law", _SMALL | {"children": "deterministic"}, _SQUARE,
            mutants=("tree: parents missing", "keep one row more"),
        ),
        Case(
            "TREE-EXACT sampled", "same law", _SMALL | {"children": "sampled"}, _SQUARE,
            mutants=("tree: drawn nodes ranked by their tokens", "tree: siblings' laws not conditional", "tree: residual is p"),
        ),
        Case(
            "TREE-EXACT auto", "same law", _SMALL | {"children": "auto"}, _FOUR,
            mutants=("tree: chosen as if drawn", "tree: residual is p"),
        ),
        Case("TREE-T0", "same tokens", _SMALL, {"temperature": 0.0}, mutants=("tree: row of the parent",)),
        *(
            Case(
                f"SEED-EXACT {kind}", "same tokens", _SMALL | {"children": kind, "verify": "match seed"},
                mutants=("iteration in the noise",),
            )
            for kind in ("deterministic", "sampled")
        ),
        Case(
            "LAN-0", "same as unrelaxed", _SMALL | {"children": "sampled", "relax": "additive", "added_mass": 0.0, "neighbour_share": 0.4},
            mutants=("lantern: the nearest always counts",),
        ),
        Case(
            "LAN-0 T0", "same tokens", _LOAN_AT_0, {"temperature": 0.0, "vocabulary": 5, "sharpness": 0.6},
            mutants=("lantern: the nearest always counts",),
        ),
        *(
            Case(f"LAN-LAW {rule} {kind}", "closed form", _relaxed(rule, strength, kind), _LINE, mutants, "relaxed tree")
            for rule, strength, kind, mutants in (
                ("additive", 0.3, "sampled", ("lantern: counts one neighbour too many",)),
                ("additive", 0.3, "deterministic", ("lantern: refused neighbourhood struck", "lantern: refused table struck")),
                ("multiplicative", 1.0, "sampled", ("lantern: budget of the other rule",)),
            )
        ),
        Case("LANTERN", "not exact", _relaxed("additive", 0.4, "sampled"), _LINE),
    ),
)  # fmt: skip

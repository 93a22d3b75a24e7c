"""Mutants of the code that methods share: sampling, acceptance, trees, noise, the cache. See mutation.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine import noise, rules, run, sampling
from engine.decoding import growth, neighbours, trees, verdict, windows
from engine.decoding.deviation import Meter
from engine.methods import gsd
from research.exactness import chain, toy
from research.exactness.mutation import CallRecorder, Patch, Patches, substitute, wrap

# --- sampling and guidance --------------------------------------------------------------------------------------------


def _temperature_after_top_p(guided: Tensor, s: Any, allowed: Tensor | None = None) -> Tensor:
    return sampling.warp(guided, type(s)(1.0, s.top_k, s.top_p, s.guidance), allowed) / s.temperature


def _guidance_on_probabilities(logits: Tensor, scale: float) -> Tensor:
    c, u = torch.softmax(logits, -1)
    return (u + scale * (c - u)).clamp(min=1e-9).log()


def _p_itself(p: Tensor, q: Tensor) -> Tensor:
    """Replaces the residual."""
    return p


# --- speculative sampling ---------------------------------------------------------------------------------------------


def _one_hot_ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    r = p.gather(1, tokens[:, None]).squeeze(1)
    return u < r, r


def drawn_from(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a replacement of `draw` that first changes the distributions [N, V]."""
    return lambda p, u: sampling.draw(change(p), u)


def _impossible_accepted(right: Any, p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Also accepts what the target cannot draw, as a rule does that divides by a rounded probability."""
    accepted, ratios = right(p, q, tokens, u)
    return accepted | (ratios == 0), ratios


def replaced_by(number: Callable[[noise.Noise, int, int, Tensor], Tensor]) -> Patches:
    """Draws the residual with another number: a function of the noise, the position, the iteration and the residual [1, V]."""

    def correct(
        right: Any, rows: Any, draft_probs: Any, answers: Any, a: int, size: int, random: noise.Noise, n: int, iteration: int
    ) -> int:
        if answers is not None or a == size:
            return right(rows, draft_probs, answers, a, size, random, n, iteration)
        return number(random, n + a, iteration, sampling.residual(rows.p[a : a + 1], draft_probs[a : a + 1])).item()

    return wrap(correct, (verdict, "correct"))


def _residual_of_single_tokens(right: Any, p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Accepts a block, and replaces the draft after it as the rule of single tokens does."""
    length, reach, _ = right(p, q, tokens, u)
    return length, reach, torch.cat([(p[:-1] - q).clamp(min=0), p[-1:]])


def _residual_is_p(right: Any, p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Accepts a block, and draws the token after it from the target."""
    return *right(p, q, tokens, u)[:2], p


def _drafts_kept(window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
    """Keeps the drafts after a refusal with their distributions, which is exact for single tokens."""
    p, start = window.rows.p[-1:], window.start + len(window.tokens)
    newest = sampling.draw(p, window.noise.uniform(noise.DRAW, start, 1, window.iteration))
    return torch.cat([window.tokens[first:], newest]), torch.cat([window.draft_probs[first:], p])


# --- trees and relaxed rules ------------------------------------------------------------------------------------------


def _parents_missing(right: Any, self: growth.Tree) -> Any:
    return type(right(self))(torch.tensor(self.tokens, dtype=torch.int64), torch.full((len(self.tokens),), -1))


def _ranked_by_tokens() -> list[Patch]:
    """Ranks the nodes by their tokens and keeps the better half."""
    right = growth.best_nodes

    def by_token(nodes: Tensor, scores: Tensor, shape: growth.TreeSize) -> Tensor:
        least = (scores - 2.0 * nodes[0]).tolist()
        for node, parent in enumerate(nodes[1].tolist()):
            least[node] = min(least[node], least[parent] if parent >= 0 else 0.0)
        count = int((scores > -torch.inf).sum())
        return right(nodes, scores.new_tensor(least), replace(shape, nodes=min(shape.nodes, max(1, count // 2)), least_node=0.0))

    return [(growth, "best_nodes", by_token)]


def _controller_sees_the_draft(right: Any, *arguments: Any) -> growth.Tree:
    """Proposes nothing if the first draft would be token 0."""
    tree, shape = right(*arguments), arguments[3]
    return tree if not tree.tokens or tree.tokens[0] else growth.Tree([], [], None, [], tree.passes, shape)


def _level_pays_by_its_sum(parents: Tensor, scores: Tensor, shape: growth.TreeSize) -> Tensor:
    """Counts every node that would be expanded, so that nodes of low rank decide whether the next level displaces them."""
    return scores[growth.leaders(scores, shape.width)].exp().sum() >= shape.least_level


def _row_of_the_parent(right: Any, parents: list[int], tokens: list[int], answers: list[int]) -> tuple[list[int], int]:
    path, _ = right(parents, tokens, answers)
    return path, answers[path[-2] + 1 if len(path) > 1 else 0] if path else answers[0]


def _borrow_by(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Patches:
    """change : running sum of the neighbours' mass [m, k], p of the tokens [m], budget [m] -> borrowed mass [m]"""

    def borrowed_mass(p: Tensor, tokens: Tensor, neighbours: Tensor, most: Tensor) -> Tensor:
        return change(p[neighbours[tokens]].cumsum(-1), p[tokens], most)

    return substitute(borrowed_mass, (rules, "_borrowed_mass"))


def _remove_rejected_neighbours(whole: bool) -> Patches:
    """Returns the residual of the papers' code. whole : remove all neighbours of the table, else only those borrowed from (δ = 0.3)"""

    def patches() -> list[Patch]:
        tables: list[Tensor] = []
        right, table = trees.multi_round, neighbours.neighbours

        def record_table(*arguments: Any) -> Tensor:
            tables[:] = [table(*arguments)]
            return tables[0]

        def multi_round(
            p: Tensor, tokens: Tensor, draft_probs: Tensor, u: list[float], mass: Any, share: Any = None
        ) -> tuple[int, Tensor, list[float]]:
            for j in range(len(tokens)):
                which, residual, chances = right(p, tokens[j : j + 1], draft_probs[j : j + 1], u[j : j + 1], mass)
                if which == 0:
                    return j, residual, chances
                near = tables[0][tokens[j]]
                residual = residual.clone()
                residual[near if whole else near[p[near].cumsum(0) <= 0.3]] = 0
                p = residual / residual.sum() if residual.sum() > 0 else p
            return -1, p, chances

        return [(neighbours, "neighbours", CallRecorder(record_table)), (trees, "multi_round", multi_round)]

    return patches


# --- the budget of deviation ------------------------------------------------------------------------------------------


def _budget_ignored(self: Meter, deviation: float, again: bool = False) -> float:
    self._slots = self._slots if again else [*self._slots, 0.0]
    self._slots[-1] += deviation
    return 1.0


def _coin_of_the_verdict(random: noise.Noise, position: int, count: int, iteration: int) -> Tensor:
    """Chooses the rule by the random number that its verdict uses."""
    return random.host_uniform(noise.ACCEPT, position, count, iteration - 1)


# --- noise ------------------------------------------------------------------------------------------------------------


def _iteration_in_the_noise(self: noise.Noise, start: int, count: int) -> Tensor:
    self.calls = getattr(self, "calls", 0) + 1
    u = [self.uniform(noise.DRAW, start, count, self.calls, slot) for slot in range(self.vocabulary)]
    return -torch.log(-torch.log(torch.stack(u, -1)))


def _global_noise() -> list[Patch]:
    def gumbel(self: noise.Noise, start: int, count: int) -> Tensor:
        return -torch.log(-torch.log(torch.rand(count, self.vocabulary, dtype=torch.float64)))

    def uniform(self: noise.Noise, stream: int, start: int, count: int, iteration: int, slot: int = 0) -> Tensor:
        return torch.rand(count, dtype=torch.float64)

    return [(noise.Noise, "gumbel", gumbel), (noise.Noise, "uniform", uniform)]


# --- filters and grammar ----------------------------------------------------------------------------------------------


def _filters_of_some_rows(first_pass: bool) -> Patches:
    """Filters the first row of each pass alone. first_pass : of the first pass, as a rule does that knows the prompt alone"""

    def warp_some(right: Any, self: toy.ToySequence, logits: Tensor, allowed: Tensor | None, soft: bool = False) -> Tensor:
        filtered = right(self, logits, allowed, soft)
        kept = 0 if first_pass and self.tokens else 1
        return torch.cat([filtered[:kept], sampling.guide(logits, self.sampling.guidance)[kept:]])

    return wrap(warp_some, (toy.ToySequence, "_warp"))


# --- cache and end of sequence ----------------------------------------------------------------------------------------


def _keep_one_row_more(right: Any, self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
    new = right(self, nodes, token)
    extra = (nodes[-1] if nodes else -1) + 2
    if extra < len(self._added):
        self._cache = (*self._cache, *self._added[extra])
    return new


def newest_not_cached(right: Any, self: toy.ToySequence, *arguments: Any) -> Any:
    """Commits, and forgets the newest row of the cache."""
    new = right(self, *arguments)
    self._cache = self._cache[:-1]
    return new


def _keep_first_rows(right: Any, self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
    """Keeps the rows of the first nodes instead of those of the path."""
    added, self._added = self._added, [*self._added]
    for row, node in enumerate(nodes):
        self._added[node + 1] = added[row + 1]
    return right(self, nodes, token)


def _place_behind(right: Any, self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
    """Puts the newest token one position too far after a refusal."""
    new = right(self, nodes, token)
    if len(nodes) < len(self._draft) and not self.done:
        self.pending = [self.length]
    return new


def _end_ignored(inside_only: bool, right: Any, self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
    """Commits tokens after the end of the sequence. inside_only : an end at the end of a span still counts"""
    end, self.toy.end = self.toy.end, None
    new = right(self, nodes, token)
    self.toy.end = end
    self.done = self.done or (inside_only and new[-1] == end)
    return new


RATIOS, COMMIT = ((verdict, "ratio"), (neighbours, "ratio")), (toy.ToySequence, "commit")
TABLE: dict[str, Patches] = {
    "temperature after top-p": substitute(_temperature_after_top_p, (toy, "warp")),
    "guidance on probabilities": substitute(_guidance_on_probabilities, (toy, "guide")),
    "residual is p": substitute(_p_itself, (verdict, "residual")),
    "chain: residual is p": substitute(_p_itself, (chain, "residual")),
    "one-hot ratio for a uniform draw": substitute(_one_hot_ratio, *RATIOS),
    "chain: one-hot distribution": substitute(_one_hot_ratio, (chain, "ratio")),
    "impossible draft accepted": wrap(_impossible_accepted, *RATIOS),
    "one number for coin and residual": replaced_by(
        lambda random, position, iteration, rest: sampling.draw(rest, random.uniform(noise.ACCEPT, position, 1, iteration))
    ),
    "block: residual of single tokens": wrap(_residual_of_single_tokens, (verdict, "block")),
    "block: residual is p": wrap(_residual_is_p, (verdict, "block")),
    "block: drafts kept": substitute(_drafts_kept, (windows, "redraw")),
    "residual by the first number of the slot": replaced_by(
        lambda random, position, iteration, rest: sampling.draw(rest, random.uniform(noise.INITIAL, position, 1, iteration))
    ),
    "inverted ratio": wrap(lambda right, p, q, tokens, u: right(q, p.clamp(min=1e-12), tokens, u), (verdict, "ratio")),
    "chain: bonus from the row before": substitute(lambda p, a: p[max(0, a - 1) : max(1, a)], (chain, "bonus")),
    "chain: double temperature": substitute(drawn_from(lambda p: p * p), (chain, "draw")),
    "heads: one-hot distribution": substitute(_one_hot_ratio, *RATIOS),
    "tree: parents missing": wrap(_parents_missing, (growth.Tree, "draft")),
    "tree: drawn nodes ranked by their tokens": _ranked_by_tokens,
    "tree: controller sees the draft": wrap(_controller_sees_the_draft, (trees, "grow")),
    "tree: a level pays by the sum of its nodes": substitute(_level_pays_by_its_sum, (growth, "is_worth_expanding")),
    "tree: siblings' distributions not conditional": substitute(lambda bases, rows: bases[rows[4] + 1], (growth, "sibling_probs")),
    "tree: residual is p": substitute(_p_itself, (rules, "residual")),
    "tree: chosen as if drawn": wrap(
        lambda right, bases, rows: right(bases, torch.cat([rows[:3], torch.ones_like(rows[3:4]), rows[4:]])), (growth, "sibling_probs")
    ),
    "tree: row of the parent": wrap(_row_of_the_parent, (trees, "walk")),
    "lantern: the nearest always counts": _borrow_by(
        lambda run, own, most: torch.where(run <= most[:, None], run, 0).amax(-1).maximum(run[:, 0])
    ),
    "lantern: counts one neighbour too many": _borrow_by(
        lambda run, own, most: run.gather(1, (run <= most[:, None]).sum(1, keepdim=True).clamp(max=run.shape[1] - 1))[:, 0]
    ),
    "lantern: budget of the other rule": _borrow_by(lambda run, own, most: torch.where(run <= (most / own)[:, None], run, 0).amax(-1)),
    "lantern: refused neighbourhood struck": _remove_rejected_neighbours(False),
    "lantern: refused table struck": _remove_rejected_neighbours(True),
    "budget: ignored": substitute(_budget_ignored, (Meter, "share")),
    "budget: the coin is the verdict's": substitute(_coin_of_the_verdict, (neighbours, "acceptance_uniforms")),
    "gsd: one rank higher": substitute(lambda half: [0, *range(1 - half, 0), *range(1, half + 1)], (gsd, "group_offsets")),
    "gsd: the distribution of the draft alone": substitute(
        lambda above, below, chosen: (above * chosen).sum(-1) / below[:, 0], (gsd, "group_ratio")
    ),
    "iteration in the noise": substitute(_iteration_in_the_noise, (noise.Noise, "gumbel")),
    "noise without the iteration": wrap(
        lambda right, self, stream, start, count, iteration, slot=0: right(self, stream, start, count, 0, slot), (noise.Noise, "uniform")
    ),
    "global random numbers": _global_noise,
    "numbers of 8 bits from 0 to 1": wrap(lambda right, *arguments: (right(*arguments) * 256).round() / 256, (noise.Noise, "host_uniform")),
    "one seed for a batch": substitute(lambda seed, *rest: noise.Noise(seed >> 4 << 4, *rest), (run, "Noise")),
    "filters of the first row alone": _filters_of_some_rows(first_pass=False),
    "filters of the prompt alone": _filters_of_some_rows(first_pass=True),
    "keep the first rows": wrap(_keep_first_rows, COMMIT),
    "position off by one after a refusal": wrap(_place_behind, COMMIT),
    "keep one row more": wrap(_keep_one_row_more, COMMIT),
    "drop the last kept row": wrap(newest_not_cached, COMMIT),
    "end inside a span ignored": wrap(partial(_end_ignored, True), COMMIT),
    "never ends": wrap(partial(_end_ignored, False), COMMIT),
}

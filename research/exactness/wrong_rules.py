"""Mutants of the code that methods share: sampling, acceptance, trees, noise, the cache. See mutation.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine import noise, rules, sampling
from engine.decoding import growth, neighbours, trees, verdict
from engine.decoding.deviation import Meter
from engine.methods import gsd
from research.exactness import chain, toy
from research.exactness.mutation import Patch, Watcher

# --- sampling and guidance --------------------------------------------------------------------------------------------


def _temperature_after_top_p() -> list[Patch]:
    def warp(guided: Tensor, s: Any, allowed: Tensor | None = None) -> Tensor:
        cut = sampling.warp(guided, type(s)(1.0, s.top_k, s.top_p, s.guidance), allowed)
        return cut / s.temperature

    return [(toy, "warp", warp)]


def _guidance_on_probabilities() -> list[Patch]:
    def guide(logits: Tensor, scale: float) -> Tensor:
        c, u = torch.softmax(logits, -1)
        return (u + scale * (c - u)).clamp(min=1e-9).log()

    return [(toy, "guide", guide)]


def _residual_is_p(owner: Any) -> Callable[[], list[Patch]]:
    return lambda: [(owner, "residual", lambda p, q: p)]


# --- speculative sampling ---------------------------------------------------------------------------------------------


def _one_hot_ratio(*owners: Any) -> Callable[[], list[Patch]]:
    def ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        r = p.gather(1, tokens[:, None]).squeeze(1)
        return u < r, r

    return lambda: [(owner, "ratio", ratio) for owner in owners]


def _inverted_ratio() -> list[Patch]:
    right = verdict.ratio

    def ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return right(q, p.clamp(min=1e-12), tokens, u)

    return [(verdict, "ratio", ratio)]


def _bonus_from_the_row_before() -> list[Patch]:
    return [(chain, "bonus", lambda p, a: p[max(0, a - 1) : max(1, a)])]


def _double_temperature() -> list[Patch]:
    return [(chain, "draw", drawn_from(lambda p: p * p))]


def drawn_from(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a replacement of `draw` that first changes the distributions [N, V]."""
    return lambda p, u: sampling.draw(change(p), u)


# --- trees and relaxed rules ------------------------------------------------------------------------------------------


def _parents_missing() -> list[Patch]:
    def draft(self: growth.Tree) -> Any:
        return type(right(self))(torch.tensor(self.tokens, dtype=torch.int64), torch.full((len(self.tokens),), -1))

    right = growth.Tree.draft
    return [(growth.Tree, "draft", draft)]


def _ranked_by_tokens() -> list[Patch]:
    """Ranks the nodes by their tokens, and leaves out half of them by this rank."""
    families, best = growth.families, growth.best
    tokens: list[int] = []  # of the nodes of the tree that grows

    def remembering(*arguments: Any) -> list[list[tuple[int, bool, float]]]:
        grown = families(*arguments)
        tokens.extend(token for family in grown for token, _, _ in family)
        return grown

    def by_token(parents: list[int], scores: list[float], count: int) -> list[int]:
        liked = [score - 2.0 * token for score, token in zip(scores, tokens, strict=True)]
        tokens.clear()
        return best(parents, liked, max(1, len(parents) // 2))

    return [(growth, "families", Watcher(remembering)), (growth, "best", by_token)]


def _controller_sees_the_draft() -> list[Patch]:
    right = trees.grow

    def grow(*arguments: Any) -> growth.Tree:
        """Proposes nothing if the first draft would be token 0."""
        tree, shape = right(*arguments), arguments[3]
        return tree if not tree.tokens or tree.tokens[0] else growth.Tree([], [], None, [], tree.passes, shape)

    return [(trees, "grow", grow)]


def _level_pays_by_its_sum() -> list[Patch]:
    def pays(level: list[int], parents: list[int], scores: list[float], shape: growth.Shape) -> bool:
        """Counts every node that would be expanded, so that nodes of low rank decide whether the next level displaces them."""
        return sum(math.exp(scores[node]) for node in growth.best_of_level(level, scores, shape)) >= shape.least_level

    return [(growth, "pays", pays)]


def _unconditional_siblings() -> list[Patch]:
    return [(growth, "sibling_laws", lambda laws, tokens, parents, drawn: laws)]


def _chosen_as_if_drawn() -> list[Patch]:
    right = growth.sibling_laws
    return [
        (growth, "sibling_laws", lambda laws, tokens, parents, drawn: right(laws, tokens, parents, [True] * len(drawn))),
    ]


def _row_of_the_parent() -> list[Patch]:
    def walk(parents: list[int], tokens: list[int], answers: list[int]) -> tuple[list[int], int]:
        path, _ = right(parents, tokens, answers)
        return path, answers[path[-2] + 1 if len(path) > 1 else 0] if path else answers[0]

    right = trees.walk
    return [(trees, "walk", walk)]


def _borrowing(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Patch]:
    """change : running sum of the neighbours' mass [m, k], p of the tokens [m], budget [m] -> borrowed mass [m]"""

    def borrowed(p: Tensor, tokens: Tensor, neighbours: Tensor, most: Tensor) -> Tensor:
        return change(p[neighbours[tokens]].cumsum(-1), p[tokens], most)

    return [(rules, "_borrowed", borrowed)]


def _one_neighbour_too_many() -> list[Patch]:
    return _borrowing(lambda run, own, most: run.gather(1, (run <= most[:, None]).sum(1, keepdim=True).clamp(max=run.shape[1] - 1))[:, 0])


def _nearest_always() -> list[Patch]:
    return _borrowing(lambda run, own, most: torch.where(run <= most[:, None], run, 0).amax(-1).maximum(run[:, 0]))


def _budget_of_the_other_rule() -> list[Patch]:
    return _borrowing(lambda run, own, most: torch.where(run <= (most / own)[:, None], run, 0).amax(-1))


def _refused_neighbours_struck(whole: bool) -> Callable[[], list[Patch]]:
    """Returns the residual of the papers' code. whole : remove all neighbours of the table, else only those borrowed from (δ = 0.3)"""

    def patches() -> list[Patch]:
        tables: list[Tensor] = []
        right, table = trees.multi_round, neighbours.neighbours

        def remembered(*arguments: Any) -> Tensor:
            tables[:] = [table(*arguments)]
            return tables[0]

        def multi_round(
            p: Tensor, tokens: Tensor, laws: Tensor, u: list[float], mass: Any, share: Any = None
        ) -> tuple[int, Tensor, list[float]]:
            for j in range(len(tokens)):
                which, left, chances = right(p, tokens[j : j + 1], laws[j : j + 1], u[j : j + 1], mass)
                if which == 0:
                    return j, left, chances
                near = tables[0][tokens[j]]
                left = left.clone()
                left[near if whole else near[p[near].cumsum(0) <= 0.3]] = 0
                p = left / left.sum() if left.sum() > 0 else p
            return -1, p, chances

        return [(neighbours, "neighbours", Watcher(remembered)), (trees, "multi_round", multi_round)]

    return patches


# --- the budget of deviation ------------------------------------------------------------------------------------------


def _budget_ignored() -> list[Patch]:
    def share(self: Meter, away: float, again: bool = False) -> float:
        self._slots = self._slots if again else [*self._slots, 0.0]
        self._slots[-1] += away
        return 1.0

    return [(Meter, "share", share)]


def _coin_of_the_verdict() -> list[Patch]:
    """Chooses the rule by the number that its verdict uses."""

    def coins(made: noise.Noise, position: int, count: int, iteration: int) -> Tensor:
        return made.host_uniform(noise.ACCEPT, position, count, iteration - 1)

    return [(neighbours, "coins", coins)]


# --- groups -----------------------------------------------------------------------------------------------------------


def _one_rank_higher() -> list[Patch]:
    return [(gsd, "beside", lambda half: [0, *range(1 - half, 0), *range(1, half + 1)])]


def _law_of_the_draft_alone() -> list[Patch]:
    return [(gsd, "grouped", lambda above, below, chosen: (above * chosen).sum(-1) / below[:, 0])]


# --- noise ------------------------------------------------------------------------------------------------------------


def _iteration_in_the_noise() -> list[Patch]:
    def gumbel(self: noise.Noise, start: int, count: int) -> Tensor:
        self.asked = getattr(self, "asked", 0) + 1
        u = [self.uniform(noise.DRAW, start, count, self.asked, slot) for slot in range(self.vocabulary)]
        return -torch.log(-torch.log(torch.stack(u, -1)))

    return [(noise.Noise, "gumbel", gumbel)]


def _no_iteration_in_the_noise() -> list[Patch]:
    right = noise.Noise.uniform
    return [(noise.Noise, "uniform", lambda self, stream, start, count, iteration, slot=0: right(self, stream, start, count, 0, slot))]


def _global_noise() -> list[Patch]:
    def gumbel(self: noise.Noise, start: int, count: int) -> Tensor:
        return -torch.log(-torch.log(torch.rand(count, self.vocabulary, dtype=torch.float64)))

    def uniform(self: noise.Noise, stream: int, start: int, count: int, iteration: int, slot: int = 0) -> Tensor:
        return torch.rand(count, dtype=torch.float64)

    return [(noise.Noise, "gumbel", gumbel), (noise.Noise, "uniform", uniform)]


# --- cache and end of sequence ----------------------------------------------------------------------------------------


def _keep_one_row_more() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        new = right(self, nodes, token)
        extra = (nodes[-1] if nodes else -1) + 2
        if extra < len(self._fed):
            self._cache = (*self._cache, *self._fed[extra])
        return new

    return [(toy.ToySequence, "commit", commit)]


def _drop_the_last_kept_row() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        new = right(self, nodes, token)
        self._cache = self._cache[:-1]
        return new

    return [(toy.ToySequence, "commit", commit)]


def _end_inside_a_span_ignored() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        end, self.toy.end = self.toy.end, None
        new = right(self, nodes, token)
        self.toy.end = end
        self.done = self.done or new[-1] == end
        return new

    return [(toy.ToySequence, "commit", commit)]


def _never_ends() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        end, self.toy.end = self.toy.end, None
        new = right(self, nodes, token)
        self.toy.end = end
        return new

    return [(toy.ToySequence, "commit", commit)]


TABLE: dict[str, Callable[[], list[Patch]]] = {
    "temperature after top-p": _temperature_after_top_p,
    "guidance on probabilities": _guidance_on_probabilities,
    "residual is p": _residual_is_p(verdict),
    "chain: residual is p": _residual_is_p(chain),
    "one-hot ratio for a uniform draw": _one_hot_ratio(verdict, neighbours),
    "chain: one-hot law": _one_hot_ratio(chain),
    "inverted ratio": _inverted_ratio,
    "chain: bonus from the row before": _bonus_from_the_row_before,
    "chain: double temperature": _double_temperature,
    "heads: one-hot law": _one_hot_ratio(verdict, neighbours),
    "tree: parents missing": _parents_missing,
    "tree: drawn nodes ranked by their tokens": _ranked_by_tokens,
    "tree: controller sees the draft": _controller_sees_the_draft,
    "tree: a level pays by the sum of its nodes": _level_pays_by_its_sum,
    "tree: siblings' laws not conditional": _unconditional_siblings,
    "tree: residual is p": _residual_is_p(rules),
    "tree: chosen as if drawn": _chosen_as_if_drawn,
    "tree: row of the parent": _row_of_the_parent,
    "lantern: the nearest always counts": _nearest_always,
    "lantern: counts one neighbour too many": _one_neighbour_too_many,
    "lantern: budget of the other rule": _budget_of_the_other_rule,
    "lantern: refused neighbourhood struck": _refused_neighbours_struck(False),
    "lantern: refused table struck": _refused_neighbours_struck(True),
    "budget: ignored": _budget_ignored,
    "budget: the coin is the verdict's": _coin_of_the_verdict,
    "gsd: one rank higher": _one_rank_higher,
    "gsd: the law of the draft alone": _law_of_the_draft_alone,
    "iteration in the noise": _iteration_in_the_noise,
    "noise without the iteration": _no_iteration_in_the_noise,
    "global random numbers": _global_noise,
    "keep one row more": _keep_one_row_more,
    "drop the last kept row": _drop_the_last_kept_row,
    "end inside a span ignored": _end_inside_a_span_ignored,
    "never ends": _never_ends,
}

"""Broken functions that `verify` puts in place of the right ones: a claim of exactness that none of them can break proves nothing.

Each mutant is a list of (owner, attribute, wrong value). Owners are modules, classes or dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from engine import noise, sampling
from engine.backbones import toy
from engine.core import Draft
from engine.decoding import growth, neighbours, rules, trees, verdict
from engine.measure.verify import chain
from engine.methods import cross_regression, gsd, jacobi, lookup, mulo, sjd, sjdpp, xspecmesh, zipar

Patch = tuple[Any, str, Any]


@contextmanager
def applied(name: str | None) -> Iterator[None]:
    """The named mutant in force inside the block; None changes nothing."""
    patches = MUTANTS[name]() if name else []
    kept = [(owner, key, _get(owner, key)) for owner, key, _ in patches]
    try:
        for owner, key, value in patches:
            _set(owner, key, value)
        yield
    finally:
        for owner, key, value in kept:
            _set(owner, key, value)


def _get(owner: Any, key: str) -> Any:
    return owner[key] if isinstance(owner, dict) else getattr(owner, key)


def _set(owner: Any, key: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[key] = value
    else:
        setattr(owner, key, value)


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
    right = chain.tables
    return [(chain, "draw", _drawn_from(lambda p: p * p)), (chain, "tables", right)]


def _drawn_from(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p, u: sampling.draw(change(p), u)


# --- Jacobi windows ---------------------------------------------------------------------------------------------------


def _one_answer_more() -> list[Patch]:
    right = jacobi.leading
    return [(jacobi, "leading", lambda accepted: min(len(accepted), right(accepted) + 1))]


def _stale_law() -> list[Patch]:
    patches: list[Patch] = []
    for owner, key in ((sjd, "redraw"), (sjdpp.REFRESHES, "redraw"), (sjdpp.REFRESHES, "coupled gumbel")):
        right = _get(owner, key)

        def refresh(window: Any, first: int, knobs: Any, right: Any = right) -> tuple[Tensor, Tensor]:
            tokens, _ = right(window, first, knobs)
            return tokens, torch.cat([window.laws[first:], window.rows.p[-1:]])

        patches.append((owner, key, refresh))
    return patches


def _published_law() -> list[Patch]:
    return [(sjdpp.REFRESHES, "reuse mixture", sjdpp.reuse_published)]


def _law_of_the_first_draw() -> list[Patch]:
    def refresh(window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
        tokens, _ = sjdpp.reuse_published(window, first, knobs)
        return tokens, torch.cat([window.laws[first:], window.rows.p[-1:]])

    return [(sjdpp.REFRESHES, "reuse mixture", refresh)]


# --- heads and lookup -------------------------------------------------------------------------------------------------


def _full_law_of_a_cut_draw() -> list[Patch]:
    cut = xspecmesh.best_of
    return [
        (xspecmesh, "narrowed", lambda logits, sequence, path, knobs: sequence.law(logits[len(path) : len(path) + 1], path)),
        (xspecmesh, "draw", _drawn_from(lambda p: cut(p, 2))),
    ]


def _residual_behind_a_threshold() -> list[Patch]:
    right = xspecmesh.replacement

    def replacement(rows: Any, draft: Any, a: int, noise: noise.Noise, n: int) -> int:
        if a == len(draft.tokens):
            return right(rows, draft, a, noise, n)
        left = sampling.residual(rows.p[a : a + 1], draft.q[a : a + 1])
        return sampling.draw_gumbel(left.log(), noise.gumbel(n + a, 1)).item()

    return [(xspecmesh, "replacement", replacement)]


def _row_before() -> list[Patch]:
    return [(xspecmesh, "newest", lambda rows, a: rows.hidden[0, max(0, a - 1)])]


def _heads_shifted() -> list[Patch]:
    right = toy.TableHeads.guess
    return [(toy.TableHeads, "guess", lambda self, hidden, count: right(self, hidden, self.depth).roll(1, 0)[:count])]


def _grammar_of_the_prefix() -> list[Patch]:
    right = toy.ToySequence._allowed
    return [(toy.ToySequence, "_allowed", lambda self, newest: right(self, newest[:1] * len(newest)))]


def _first_draft_unverified() -> list[Patch]:
    right = lookup.leading
    return [(lookup, "leading", lambda accepted: max(right(accepted), min(1, len(accepted))))]


# --- trees and relaxed rules ------------------------------------------------------------------------------------------


def _parents_missing() -> list[Patch]:
    def draft(self: growth.Tree, device: torch.device) -> Any:
        return type(right(self, device))(torch.tensor(self.tokens, dtype=torch.int64), torch.full((len(self.tokens),), -1))

    right = growth.Tree.draft
    return [(growth.Tree, "draft", draft)]


def _ranked_by_tokens() -> list[Patch]:
    def reranked(parents: list[int], scores: list[float], tokens: list[int], drawn: list[bool], shape: growth.Shape) -> list[int]:
        liked = [score - 2.0 * token for score, token in zip(scores, tokens, strict=True)]
        return growth.best(parents, liked, max(1, len(parents) // 2))

    return [(growth, "reranked", reranked)]


def _controller_sees_the_draft() -> list[Patch]:
    right = trees.grow

    def grow(growth: Any, logits: Tensor, sequence: Any, shape: growth.Shape, *rest: Any) -> growth.Tree:
        tree = right(growth, logits, sequence, shape, *rest)
        return (
            tree if not tree.tokens or tree.tokens[0] else growth.Tree([], [], None, [], tree.passes, shape)
        )  # 0 first: nothing is proposed

    return [(trees, "grow", grow)]


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
    """change : run [m, k] of neighbours' mass, p of the tokens [m], budget [m] -> what is borrowed [m]"""

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
    """The residual of the papers' code. whole: all neighbours of the table, else only those that were borrowed from (δ = 0.3)."""

    def patches() -> list[Patch]:
        tables: list[Tensor] = []
        right, table = trees.multi_round, neighbours.neighbours

        def remembered(*arguments: Any) -> Tensor:
            tables[:] = [table(*arguments)]
            return tables[0]

        def multi_round(p: Tensor, tokens: Tensor, laws: Tensor, u: list[float], mass: Any) -> tuple[int, Tensor, list[float]]:
            for j in range(len(tokens)):
                which, left, chances = right(p, tokens[j : j + 1], laws[j : j + 1], u[j : j + 1], mass)
                if which == 0:
                    return j, left, chances
                near = tables[0][tokens[j]]
                left = left.clone()
                left[near if whole else near[p[near].cumsum(0) <= 0.3]] = 0
                p = left / left.sum() if left.sum() > 0 else p
            return -1, p, chances

        return [(neighbours, "neighbours", remembered), (trees, "multi_round", multi_round)]

    return patches


# --- groups -----------------------------------------------------------------------------------------------------------


def _one_rank_higher() -> list[Patch]:
    return [(gsd, "beside", lambda half: [0, *range(1 - half, 0), *range(1, half + 1)])]


def _law_of_the_draft_alone() -> list[Patch]:
    return [(gsd, "grouped", lambda above, below, chosen: (above * chosen).sum(-1) / below[:, 0])]


# --- wavefronts -------------------------------------------------------------------------------------------------------


def _law_of_another_warp() -> list[Patch]:
    patches: list[Patch] = []
    for key in ("coupled gumbel", "coupled maximal"):
        right = zipar.REFRESHES[key]

        def refresh(window: Any, first: int, knobs: Any, right: Any = right) -> tuple[Tensor, Tensor]:
            tokens, _ = right(window, first, knobs)
            return tokens, torch.softmax(2 * window.rows.scores[first:], -1)

        patches.append((zipar.REFRESHES, key, refresh))
    return patches


def _carried_with_a_new_law() -> list[Patch]:
    right = zipar.REFRESHES["carry"]
    return [(zipar.REFRESHES, "carry", lambda window, first, knobs: (right(window, first, knobs)[0], None))]


def _guesses_said_to_be_uniform() -> list[Patch]:
    right = zipar._guessed

    def guessed(window: Any, tokens: Tensor, laws: Tensor | None, more: int) -> tuple[Tensor, Tensor | None]:
        found, _ = right(window, tokens, laws, more)
        flat = torch.ones_like(window.rows.p[-1:]).expand(more, -1) / window.rows.p.shape[-1]
        return found, None if laws is None else torch.cat([laws, flat])

    return [(zipar, "_guessed", guessed)]


def _rows_do_not_wait() -> list[Patch]:
    return [(zipar, "lead", lambda window, columns: 1)]


def _newest_not_cached() -> list[Patch]:
    right = toy.ToySequence.commit_at

    def commit_at(self: toy.ToySequence, positions: list[int], tokens: list[int]) -> None:
        right(self, positions, tokens)
        self._cache = self._cache[:-1]

    return [(toy.ToySequence, "commit_at", commit_at)]


# --- scales -----------------------------------------------------------------------------------------------------------


def _stale_cache() -> list[Patch]:
    return [(mulo, "is_stale", lambda knobs: True)]


def _row_of_the_refused_draft() -> list[Patch]:
    right = mulo._draw
    return [(mulo, "_draw", lambda rows, row, position, noise: right(rows, min(row + 1, rows.logits.shape[1] - 1), position, noise))]


# --- two streams ------------------------------------------------------------------------------------------------------


def _literal_rule() -> list[Patch]:
    return [(cross_regression.RULES, "consistent", rules.LITERAL)]


def _tolerance_from_zero() -> list[Patch]:
    right = rules.ramp
    return [(rules, "ramp", lambda energies, horizon: (right(energies, horizon) ** 2 - 1 / horizon).clamp(min=0).sqrt())]


def _residual_of_a_fresh_law() -> list[Patch]:
    """Algorithm 1, lines 10 to 12 as printed: the residual is that of a law which the network gives after the rejection."""
    right, dual = cross_regression.correct, cross_regression.dual
    sequences: list[Any] = []

    def remembering(tokens: Tensor, ahead: int, sequence: Any, *rest: Any) -> Draft:
        sequences[:] = [sequence]
        return dual(tokens, ahead, sequence, *rest)

    def correct(rows: Any, laws: Tensor, answers: Any, a: int, size: int, made: noise.Noise, n: int, iteration: int) -> int:
        if a < size:
            newest = torch.tensor([([*sequences[0].tokens, *sequences[0]._draft[:a]])[-1]])
            fresh = Draft(newest, positions=torch.tensor([n + a - 1]), visible=torch.ones(2, 2, dtype=torch.bool))
            state = sequences[0].adapter.states(rows.hidden[:, a : a + 1], fresh)
            guided = sampling.guide(state @ sequences[0].adapter.out, sequences[0].sampling.guidance)
            laws = torch.cat([laws[:a], torch.softmax(guided, -1), laws[a + 1 :]])
        return right(rows, laws, answers, a, size, made, n, iteration)

    return [(cross_regression, "dual", remembering), (cross_regression, "correct", correct)]


def _new_law_of_a_carried_draft() -> list[Patch]:
    right = cross_regression.refill

    def refill(logits: Tensor, tokens: Tensor, laws: Tensor, sequence: Any, *rest: Any) -> tuple[Tensor, Tensor]:
        found, _ = right(logits, tokens, laws, sequence, *rest)
        return found, sequence.law(logits, [])

    return [(cross_regression, "refill", refill)]


def _new_drafts_verified_at_once() -> list[Patch]:
    """Algorithm 1, lines 3 to 6 as printed: control rows read noise behind the carried drafts, and judge what is drawn in its place."""
    refill, dual, energy = cross_regression.refill, cross_regression.dual, cross_regression.energy
    seen: dict[str, Any] = {"carried": 0}

    def buffered(logits: Tensor, tokens: Tensor, laws: Tensor, sequence: Any, *rest: Any) -> tuple[Tensor, Tensor]:
        found, new = refill(logits, tokens, laws, sequence, *rest)
        seen["carried"] = min(len(tokens), len(found))
        made, iteration = rest[1:3]
        u = made.uniform(noise.SCHEDULE, sequence.length, len(found), iteration)
        noisy = (u * sequence.vocabulary).long()
        noisy[: seen["carried"]] = found[: seen["carried"]]
        return noisy, new

    def remembering(tokens: Tensor, ahead: int, sequence: Any, made: noise.Noise, iteration: int, causal: bool) -> Draft:
        draft = dual(tokens, ahead, sequence, made, iteration, causal)
        seen.update(sequence=sequence, noise=made, iteration=iteration, draft=draft)
        return draft

    def judged(p: Tensor, laws: Tensor, tokens: Tensor, *rest: Any) -> Any:
        sequence, draft = seen["sequence"], seen["draft"]
        if draft.predictive is not None and len(tokens):
            logits = seen["read"](seen["rows"], len(tokens) + 1)
            for k in range(max(1, seen["carried"]), min(len(tokens), len(logits) + 1)):
                laws[k] = sequence.law(logits[k - 1 : k], [])[0]
                u = seen["noise"].uniform(noise.SCHEDULE, sequence.length + k, 1, seen["iteration"], 1)
                tokens[k] = sampling.draw(laws[k : k + 1], u)[0]
                sequence._draft[k] = int(tokens[k])
        return energy(p, laws, tokens, *rest)

    start, forward = toy.TableStream.start, toy.ToySequence.forward

    def started(self: toy.TableStream, sequence: Any) -> Any:
        seen["read"], seen["carried"] = start(self, sequence), 0
        return seen["read"]

    def watched(self: toy.ToySequence, draft: Draft) -> Any:
        seen["rows"] = forward(self, draft)
        return seen["rows"]

    return [
        (cross_regression, "refill", buffered),
        (cross_regression, "dual", remembering),
        (cross_regression, "energy", judged),
        (toy.TableStream, "start", started),
        (toy.ToySequence, "forward", watched),
    ]


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


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "temperature after top-p": _temperature_after_top_p,
    "guidance on probabilities": _guidance_on_probabilities,
    "residual is p": _residual_is_p(verdict),
    "chain: residual is p": _residual_is_p(chain),
    "one-hot ratio for a uniform draw": _one_hot_ratio(verdict, neighbours),
    "chain: one-hot law": _one_hot_ratio(chain),
    "inverted ratio": _inverted_ratio,
    "chain: bonus from the row before": _bonus_from_the_row_before,
    "chain: double temperature": _double_temperature,
    "commit one answer more": _one_answer_more,
    "stale law after refinement": _stale_law,
    "published law": _published_law,
    "law of the first draw": _law_of_the_first_draw,
    "heads: one-hot law": _one_hot_ratio(verdict, neighbours),
    "heads: full law": _full_law_of_a_cut_draw,
    "heads: residual behind a threshold": _residual_behind_a_threshold,
    "heads: row before": _row_before,
    "heads: shifted by one": _heads_shifted,
    "grammar of the prefix for every row": _grammar_of_the_prefix,
    "lookup: first draft unverified": _first_draft_unverified,
    "tree: parents missing": _parents_missing,
    "tree: drawn nodes ranked by their tokens": _ranked_by_tokens,
    "tree: controller sees the draft": _controller_sees_the_draft,
    "tree: siblings' laws not conditional": _unconditional_siblings,
    "tree: residual is p": _residual_is_p(rules),
    "tree: chosen as if drawn": _chosen_as_if_drawn,
    "tree: row of the parent": _row_of_the_parent,
    "lantern: the nearest always counts": _nearest_always,
    "lantern: counts one neighbour too many": _one_neighbour_too_many,
    "lantern: budget of the other rule": _budget_of_the_other_rule,
    "lantern: refused neighbourhood struck": _refused_neighbours_struck(False),
    "lantern: refused table struck": _refused_neighbours_struck(True),
    "gsd: one rank higher": _one_rank_higher,
    "gsd: the law of the draft alone": _law_of_the_draft_alone,
    "wavefront: law of another warp": _law_of_another_warp,
    "wavefront: carried with a new law": _carried_with_a_new_law,
    "wavefront: guesses said to be uniform": _guesses_said_to_be_uniform,
    "wavefront: rows do not wait": _rows_do_not_wait,
    "wavefront: the newest of a row is not cached": _newest_not_cached,
    "mulo: stale cache": _stale_cache,
    "mulo: row of the refused draft": _row_of_the_refused_draft,
    "stream: literal rule": _literal_rule,
    "stream: tolerance from zero": _tolerance_from_zero,
    "stream: residual of a fresh law": _residual_of_a_fresh_law,
    "stream: new law of a carried draft": _new_law_of_a_carried_draft,
    "stream: new drafts verified at once": _new_drafts_verified_at_once,
    "iteration in the noise": _iteration_in_the_noise,
    "noise without the iteration": _no_iteration_in_the_noise,
    "global random numbers": _global_noise,
    "keep one row more": _keep_one_row_more,
    "drop the last kept row": _drop_the_last_kept_row,
    "end inside a span ignored": _end_inside_a_span_ignored,
    "never ends": _never_ends,
}

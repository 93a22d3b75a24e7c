"""Mutants of single methods: windows, heads, wavefronts, scales and streams. See mutation.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine import noise, rules, sampling
from engine.core import Chosen, Draft, Knobs
from engine.decoding import head_drafts, verdict
from engine.decoding.foreseen import Foreseen
from engine.methods import cross_regression, jacobi, lookahead, mulo, sjd, sjdpp, spatial, xspecmesh, zipar
from research.exactness import toy
from research.exactness.mutation import Patch, Watcher, get
from research.exactness.wrong_rules import drawn_from

# --- Jacobi windows ---------------------------------------------------------------------------------------------------


def _one_answer_more() -> list[Patch]:
    right = jacobi.leading
    return [(jacobi, "leading", lambda accepted: min(len(accepted), right(accepted) + 1))]


def _stale_law() -> list[Patch]:
    patches: list[Patch] = []
    for owner, key in ((sjd, "redraw"), (sjdpp.REFRESHES, "redraw"), (sjdpp.REFRESHES, "coupled gumbel")):
        right = get(owner, key)

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


def _old_drafts_with_initial_laws() -> list[Patch]:
    """Keeps redrawn drafts, and says that they were drawn like the tokens of empty slots: here uniformly."""

    def refresh(window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
        tokens, _ = sjdpp.redraw(window, first, knobs)
        return tokens, torch.full_like(window.rows.p[first:], 1 / window.rows.p.shape[-1])

    return [(sjdpp.REFRESHES, "initialise", refresh)]


def _full_law_of_a_cut_draw() -> list[Patch]:
    cut = head_drafts.best_of
    return [
        (head_drafts, "best_of", lambda law, k: law),
        (head_drafts, "draw", drawn_from(lambda p: cut(p, 2))),
    ]


def _residual_behind_a_threshold() -> list[Patch]:
    right, forward = xspecmesh.replacement, toy.ToySequence.forward
    drafts: list[Draft] = []

    def remembering(self: toy.ToySequence, draft: Draft) -> Any:
        drafts[:] = [draft]
        return forward(self, draft)

    def replacement(rows: Any, a: int, noise: noise.Noise, n: int) -> int:
        draft = drafts[0]
        if a == len(draft.tokens):
            return right(rows, a, noise, n)
        left = sampling.residual(rows.p[a : a + 1], draft.q[a : a + 1])
        return sampling.draw_gumbel(left.log(), noise.gumbel(n + a, 1)).item()

    return [(xspecmesh, "replacement", replacement), (toy.ToySequence, "forward", Watcher(remembering))]


def _row_before() -> list[Patch]:
    """Gives the heads the state before the one that predicted the newest token."""
    right = toy.ToySequence.forward

    def forward(self: toy.ToySequence, draft: Draft) -> Any:
        rows = right(self, draft)
        rows.hidden = rows.hidden[:, [0, *range(rows.hidden.shape[1] - 1)]]
        return rows

    return [(toy.ToySequence, "forward", forward)]


def _heads_shifted() -> list[Patch]:
    right = toy.TableHeads.guess
    return [(toy.TableHeads, "guess", lambda self, hidden, count: right(self, hidden, self.depth).roll(1, 0)[:count])]


def _grammar_of_the_prefix() -> list[Patch]:
    right = toy.ToySequence._allowed
    return [(toy.ToySequence, "_allowed", lambda self, newest: right(self, newest[:1] * len(newest)))]


def _first_draft_unverified() -> list[Patch]:
    """Takes the first draft of every pass."""
    right = verdict.judge

    def judge(rows: Any, tokens: Any, laws: Any, noise: Any, n: int, iteration: int, seeded: bool, *more: Any) -> Any:
        window = right(rows, tokens, laws, noise, n, iteration, seeded, *more)
        if len(tokens) and not window.a:
            window.a, dense = 1, laws.dense() if isinstance(laws, Chosen) else laws
            window.token = verdict.correct(rows, dense, window.verdict.answers, 1, len(tokens), noise, n, iteration)
        return window

    return [(verdict, "judge", judge)]


def _first_node_unverified() -> list[Patch]:
    right = lookahead.verify

    def verify(rows: Any, tree: Any, *more: Any) -> Any:
        path, token, chances = right(rows, tree, *more)
        return ([0], token, chances) if tree.tokens and not path else (path, token, chances)

    return [(lookahead, "verify", verify)]


def _rows_of_the_other_branch() -> list[Patch]:
    """Puts the lookahead branch before the tree, and reads the tree's rows where they were."""
    right = lookahead.both

    def both(tree: Any, guesses: Any, wide: int) -> Draft:
        draft, m = right(tree, guesses, wide), len(tree.tokens)
        tokens, parents = torch.cat([draft.tokens[m:], draft.tokens[:m]]), draft.parents
        behind, shift = parents[m:], len(draft.tokens) - m
        moved = torch.cat([torch.where(behind < 0, -1, behind - m), torch.where(parents[:m] < 0, -1, parents[:m] + shift)])
        return Draft(tokens, parents=moved)

    return [(lookahead, "both", both)]


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


# --- row and column heads ---------------------------------------------------------------------------------------------


def _filled_with(law: Callable[[Any, range, Tensor, Tensor], Tensor]) -> Callable[[], list[Patch]]:
    """Fills new slots as ever, and says that they were drawn from `law`, which is given the filler, the slots, the drafts before them and
    their distributions."""
    right = Foreseen.fill

    def fill(self: Foreseen, tokens: Tensor, laws: Tensor | None, size: int, *rest: Any) -> tuple[Tensor, Tensor | None]:
        found, filled = right(self, tokens, laws, size, *rest)
        start = self.sequence.length
        slots = range(start + len(tokens), start + size)
        if laws is None or not slots or not start:
            return found, filled
        return found, torch.cat([laws, law(self, slots, tokens, filled[len(tokens) :])])

    return lambda: [(Foreseen, "fill", fill)]


def _law_of_one_direction(filler: Foreseen, slots: range, drafts: Tensor, laws: Tensor) -> Tensor:
    return filler.sequence.law(filler.heads.guess(slots, drafts, rows=True, columns=False), [])


def _reads_the_other_direction() -> list[Patch]:
    right = spatial.foreseen
    return [(spatial, "foreseen", lambda heads, sequence, slots, drafts, foresee: right(heads, sequence, slots, drafts, "rows"))]


def _law_of_the_first_guess() -> list[Patch]:
    right = spatial.corrected

    def corrected(p: Tensor, q: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        tokens, _, stayed = right(p, q, *rest)
        return tokens, q, stayed

    return [(spatial, "corrected", corrected)]


# --- scales -----------------------------------------------------------------------------------------------------------


def _stale_cache() -> list[Patch]:
    """Behaves as with `stale_kv` on, where it is off."""
    right = mulo._blocks

    def blocks(sequence: Any, coarser: Any, knobs: Knobs, noise: noise.Noise) -> Any:
        return right(sequence, coarser, Knobs(knobs.values | {"stale_kv": "on"}), noise)

    return [(mulo, "_blocks", blocks)]


def _row_of_the_refused_draft() -> list[Patch]:
    right = mulo._draw
    return [(mulo, "_draw", lambda rows, row, position, noise: right(rows, min(row + 1, rows.logits.shape[1] - 1), position, noise))]


# --- two streams ------------------------------------------------------------------------------------------------------


def _literal_rule() -> list[Patch]:
    return [(cross_regression, "CONSISTENT", rules.LITERAL)]


def _tolerance_from_zero() -> list[Patch]:
    right = rules.ramp
    return [(rules, "ramp", lambda energies, horizon: (right(energies, horizon) ** 2 - 1 / horizon).clamp(min=0).sqrt())]


def _residual_of_a_fresh_law() -> list[Patch]:
    """Algorithm 1, lines 10 to 12 as printed: the residual uses a distribution that the network computes after the rejection."""
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

    return [(cross_regression, "dual", Watcher(remembering)), (cross_regression, "correct", correct)]


def _new_law_of_a_carried_draft() -> list[Patch]:
    right = cross_regression.refill

    def refill(logits: Tensor, tokens: Tensor, laws: Tensor, sequence: Any, *rest: Any) -> tuple[Tensor, Tensor]:
        found, _ = right(logits, tokens, laws, sequence, *rest)
        return found, sequence.law(logits, [])

    return [(cross_regression, "refill", refill)]


def _new_drafts_verified_at_once() -> list[Patch]:
    """Algorithm 1, lines 3 to 6 as printed: control rows read noise after the carried drafts, and verify the drafts that replace it."""
    refill, dual, energy = cross_regression.refill, cross_regression.dual, cross_regression.energy_scan
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
        (cross_regression, "dual", Watcher(remembering)),
        (cross_regression, "energy_scan", judged),
        (toy.TableStream, "start", Watcher(started)),
        (toy.ToySequence, "forward", Watcher(watched)),
    ]


TABLE: dict[str, Callable[[], list[Patch]]] = {
    "commit one answer more": _one_answer_more,
    "stale law after refinement": _stale_law,
    "published law": _published_law,
    "law of the first draw": _law_of_the_first_draw,
    "old drafts with initial laws": _old_drafts_with_initial_laws,
    "heads: full law": _full_law_of_a_cut_draw,
    "heads: residual behind a threshold": _residual_behind_a_threshold,
    "heads: row before": _row_before,
    "heads: shifted by one": _heads_shifted,
    "grammar of the prefix for every row": _grammar_of_the_prefix,
    "lookup: first draft unverified": _first_draft_unverified,
    "surface: first draft unverified": _first_draft_unverified,
    "lookahead: first node unverified": _first_node_unverified,
    "lookahead: rows of the other branch": _rows_of_the_other_branch,
    "wavefront: law of another warp": _law_of_another_warp,
    "wavefront: carried with a new law": _carried_with_a_new_law,
    "wavefront: guesses said to be uniform": _guesses_said_to_be_uniform,
    "wavefront: rows do not wait": _rows_do_not_wait,
    "wavefront: the newest of a row is not cached": _newest_not_cached,
    "spatial: law of one direction": _filled_with(_law_of_one_direction),
    "spatial: said to be uniform": _filled_with(lambda filler, slots, drafts, laws: torch.full_like(laws, 1 / laws.shape[-1])),
    "spatial: reads the other direction": _reads_the_other_direction,
    "spatial: residual is p": lambda: [(spatial, "residual", lambda p, q: p)],
    "spatial: law of the first guess": _law_of_the_first_guess,
    "mulo: stale cache": _stale_cache,
    "mulo: redrawn rows do not wait": lambda: [(mulo, "lead", lambda window, columns: 1)],
    "mulo: row of the refused draft": _row_of_the_refused_draft,
    "stream: literal rule": _literal_rule,
    "stream: tolerance from zero": _tolerance_from_zero,
    "stream: residual of a fresh law": _residual_of_a_fresh_law,
    "stream: new law of a carried draft": _new_law_of_a_carried_draft,
    "stream: new drafts verified at once": _new_drafts_verified_at_once,
}

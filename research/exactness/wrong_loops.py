"""Mutants of single methods: windows, heads, wavefronts, scales and streams. See mutation.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine import noise, rules, sampling
from engine.core import ChosenTokens, Draft, Knobs
from engine.decoding import head_drafts, trees, verdict
from engine.decoding.foreseen import HeadInitializer
from engine.decoding.initializers import Initializer
from engine.methods import cross_regression, jacobi, lookahead, mulo, sjd, sjdpp, spatial, xspecmesh, zipar
from research.exactness import toy
from research.exactness.mutation import CallRecorder, Patch, Patches, substitute, wrap
from research.exactness.wrong_rules import drawn_from, newest_not_cached

# --- Jacobi windows ---------------------------------------------------------------------------------------------------


def _first_draft_unverified(
    right: Any, rows: Any, tokens: Any, draft_probs: Any, noise: Any, n: int, iteration: int, seeded: bool, *more: Any
) -> Any:
    """Accepts the first draft of every pass."""
    window = right(rows, tokens, draft_probs, noise, n, iteration, seeded, *more)
    if len(tokens) and not window.a:
        window.a, dense = 1, draft_probs.dense() if isinstance(draft_probs, ChosenTokens) else draft_probs
        window.token = verdict.correct(rows, dense, window.verdict.answers, 1, len(tokens), noise, n, iteration)
    return window


def _first_node_unverified(right: Any, rows: Any, tree: Any, *more: Any) -> Any:
    """Accepts the first node of every tree."""
    path, token, chances = right(rows, tree, *more)
    return ([0], token, chances) if tree.tokens and not path else (path, token, chances)


def _with_old_probs(right: Any, window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
    """Refreshes drafts, but reports the former distributions for those in the window."""
    return right(window, first, knobs)[0], torch.cat([window.draft_probs[first:], window.rows.p[-1:]])


def _with_initial_probs(right: Any, window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
    """Keeps redrawn drafts, but reports the distribution of empty slots for them, here a uniform one."""
    tokens, _ = sjdpp.redraw(window, first, knobs)
    return tokens, torch.full_like(window.rows.p[first:], 1 / window.rows.p.shape[-1])


def _with_probs_of_another_warp(right: Any, window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
    """Refreshes drafts, but reports distributions at half the temperature."""
    return right(window, first, knobs)[0], torch.softmax(2 * window.rows.scores[first:], -1)


def _with_unfiltered_probs(right: Any, window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
    """Refreshes drafts from the filtered distributions, but reports those before the filters and the grammar."""
    guided = sampling.guide(window.rows.logits[:, first:], 1.4)
    return right(window, first, knobs)[0], torch.softmax(guided, -1)


def _full_probs_of_a_cut_draw() -> list[Patch]:
    cut = head_drafts.best_of
    return [(head_drafts, "best_of", lambda probs, k: probs), (head_drafts, "draw", drawn_from(lambda p: cut(p, 2)))]


def _residual_behind_a_threshold() -> list[Patch]:
    right, forward = xspecmesh.replacement, toy.ToySequence.forward
    drafts: list[Draft] = []

    def record_draft(self: toy.ToySequence, draft: Draft) -> Any:
        drafts[:] = [draft]
        return forward(self, draft)

    def replacement(rows: Any, a: int, noise: noise.Noise, n: int) -> int:
        draft = drafts[0]
        if a == len(draft.tokens):
            return right(rows, a, noise, n)
        residual = sampling.residual(rows.p[a : a + 1], draft.q[a : a + 1])
        return sampling.draw_gumbel(residual.log(), noise.gumbel(n + a, 1)).item()

    return [(xspecmesh, "replacement", replacement), (toy.ToySequence, "forward", CallRecorder(record_draft))]


def _row_before(right: Any, self: toy.ToySequence, draft: Draft) -> Any:
    """Gives the heads the state before the one that predicted the newest token."""
    rows = right(self, draft)
    rows.hidden = rows.hidden[:, [0, *range(rows.hidden.shape[1] - 1)]]
    return rows


def _rows_of_the_other_branch(right: Any, tree: Any, guesses: Any, wide: int) -> Draft:
    """Puts the lookahead branch before the tree, and reads the tree's rows where they were."""
    draft, m = right(tree, guesses, wide), len(tree.tokens)
    tokens, parents = torch.cat([draft.tokens[m:], draft.tokens[:m]]), draft.parents
    behind, shift = parents[m:], len(draft.tokens) - m
    moved = torch.cat([torch.where(behind < 0, -1, behind - m), torch.where(parents[:m] < 0, -1, parents[:m] + shift)])
    return Draft(tokens, parents=moved)


# --- wavefronts -------------------------------------------------------------------------------------------------------


def _guesses_declared_uniform(
    right: Any, window: Any, tokens: Tensor, draft_probs: Tensor | None, more: int
) -> tuple[Tensor, Tensor | None]:
    filled, _ = right(window, tokens, draft_probs, more)
    flat = torch.ones_like(window.rows.p[-1:]).expand(more, -1) / window.rows.p.shape[-1]
    return filled, None if draft_probs is None else torch.cat([draft_probs, flat])


# --- row and column heads ---------------------------------------------------------------------------------------------


def _fill_with(probs: Callable[[Any, range, Tensor, Tensor], Tensor], filler: type[Initializer] = HeadInitializer) -> Patches:
    """Fills new slots correctly, but reports `probs` as their distributions: a function of the filler, the slots, the drafts before them
    and the true distributions."""

    def fill(
        right: Any, self: Initializer, tokens: Tensor, draft_probs: Tensor | None, size: int, *rest: Any
    ) -> tuple[Tensor, Tensor | None]:
        slot_tokens, filled = right(self, tokens, draft_probs, size, *rest)
        start = self.sequence.length
        slots = range(start + len(tokens), start + size)
        if draft_probs is None or not slots or not start:
            return slot_tokens, filled
        return slot_tokens, torch.cat([draft_probs, probs(self, slots, tokens, filled[len(tokens) :])])

    return wrap(fill, (filler, "fill"))


def _uniform(filler: Initializer, slots: range, drafts: Tensor, draft_probs: Tensor) -> Tensor:
    return torch.full_like(draft_probs, 1 / draft_probs.shape[-1])


def _probs_of_the_first_guess(right: Any, p: Tensor, q: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    tokens, _, stayed = right(p, q, *rest)
    return tokens, q, stayed


# --- two streams ------------------------------------------------------------------------------------------------------


def _residual_of_fresh_probs() -> list[Patch]:
    """Algorithm 1, lines 10 to 12 as printed: the residual uses a distribution that the network computes after the rejection."""
    right, dual = verdict.correct, cross_regression.dual_draft
    sequences: list[Any] = []

    def record_sequence(tokens: Tensor, ahead: int, sequence: Any, *rest: Any) -> Draft:
        sequences[:] = [sequence]
        return dual(tokens, ahead, sequence, *rest)

    def correct(rows: Any, draft_probs: Tensor, answers: Any, a: int, size: int, random: noise.Noise, n: int, iteration: int) -> int:
        if a < size:
            newest = torch.tensor([([*sequences[0].tokens, *sequences[0]._draft[:a]])[-1]])
            fresh = Draft(newest, positions=torch.tensor([n + a - 1]), visible=torch.ones(2, 2, dtype=torch.bool))
            state = sequences[0].adapter.states(rows.hidden[:, a : a + 1], fresh)
            guided = sampling.guide(state @ sequences[0].adapter.out, sequences[0].sampling.guidance)
            draft_probs = torch.cat([draft_probs[:a], torch.softmax(guided, -1), draft_probs[a + 1 :]])
        return right(rows, draft_probs, answers, a, size, random, n, iteration)

    return [(cross_regression, "dual_draft", CallRecorder(record_sequence)), (verdict, "correct", correct)]


def _new_drafts_verified_at_once() -> list[Patch]:
    """Algorithm 1, lines 3 to 6 as printed: control rows read noise after the carried drafts, and verify the drafts that replace it."""
    refill, dual, energy = cross_regression.refill, cross_regression.dual_draft, cross_regression.energy_scan
    state: dict[str, Any] = {"carried": 0}

    def refill_with_noise(logits: Tensor, tokens: Tensor, draft_probs: Tensor, sequence: Any, *rest: Any) -> tuple[Tensor, Tensor]:
        refilled, new = refill(logits, tokens, draft_probs, sequence, *rest)
        state["carried"] = min(len(tokens), len(refilled))
        random, iteration = rest[1:3]
        u = random.uniform(noise.SCHEDULE, sequence.length, len(refilled), iteration)
        noisy = (u * sequence.vocabulary).long()
        noisy[: state["carried"]] = refilled[: state["carried"]]
        return noisy, new

    def record_draft(tokens: Tensor, ahead: int, sequence: Any, random: noise.Noise, iteration: int, causal: bool) -> Draft:
        draft = dual(tokens, ahead, sequence, random, iteration, causal)
        state.update(sequence=sequence, noise=random, iteration=iteration, draft=draft)
        return draft

    def scan_new_drafts(p: Tensor, draft_probs: Tensor, tokens: Tensor, *rest: Any) -> Any:
        sequence, draft = state["sequence"], state["draft"]
        if draft.predictive is not None and len(tokens):
            logits = state["read"](state["rows"], len(tokens) + 1)
            for k in range(max(1, state["carried"]), min(len(tokens), len(logits) + 1)):
                draft_probs[k] = sequence.probs_after(logits[k - 1 : k], [])[0]
                u = state["noise"].uniform(noise.SCHEDULE, sequence.length + k, 1, state["iteration"], 1)
                tokens[k] = sampling.draw(draft_probs[k : k + 1], u)[0]
                sequence._draft[k] = int(tokens[k])
        return energy(p, draft_probs, tokens, *rest)

    start, forward = toy.TableStream.start, toy.ToySequence.forward

    def record_start(self: toy.TableStream, sequence: Any) -> Any:
        state["read"], state["carried"] = start(self, sequence), 0
        return state["read"]

    def record_forward(self: toy.ToySequence, draft: Draft) -> Any:
        state["rows"] = forward(self, draft)
        return state["rows"]

    return [
        (cross_regression, "refill", refill_with_noise),
        (cross_regression, "dual_draft", CallRecorder(record_draft)),
        (cross_regression, "energy_scan", scan_new_drafts),
        (toy.TableStream, "start", CallRecorder(record_start)),
        (toy.ToySequence, "forward", CallRecorder(record_forward)),
    ]


STREAM, WINDOWS, WAVES = cross_regression, sjdpp.REFRESHES, zipar.REFRESHES
FORWARD, COMMIT_AT = (toy.ToySequence, "forward"), (toy.ToySequence, "commit_at")
TABLE: dict[str, Patches] = {
    "commit one answer more": wrap(lambda right, accepted: min(len(accepted), right(accepted) + 1), (jacobi, "leading")),
    "stale distribution after refinement": wrap(_with_old_probs, (sjd, "redraw"), (WINDOWS, "redraw"), (WINDOWS, "coupled gumbel")),
    "draft distribution before the filters": wrap(
        _with_unfiltered_probs, (sjd, "redraw"), (WINDOWS, "redraw"), (WINDOWS, "coupled gumbel")
    ),
    "published distribution": substitute(sjdpp.reuse_published, (WINDOWS, "reuse mixture")),
    "distribution of the first draw": substitute(partial(_with_old_probs, sjdpp.reuse_published), (WINDOWS, "reuse mixture")),
    "old drafts with initial distributions": wrap(_with_initial_probs, (WINDOWS, "initialise")),
    "heads: full distribution": _full_probs_of_a_cut_draw,
    "heads: residual behind a threshold": _residual_behind_a_threshold,
    "heads: row before": wrap(_row_before, FORWARD),
    "heads: shifted by one": wrap(
        lambda right, self, hidden, count: right(self, hidden, self.depth).roll(1, 0)[:count], (toy.TableHeads, "guess")
    ),
    "grammar of the prefix for every row": wrap(
        lambda right, self, newest: right(self, newest[:1] * len(newest)), (toy.ToySequence, "_grammar_mask")
    ),
    "lookup: first draft unverified": wrap(_first_draft_unverified, (verdict, "judge")),
    "surface: first draft unverified": wrap(_first_draft_unverified, (verdict, "judge")),
    "lookahead: first node unverified": wrap(_first_node_unverified, (trees, "verify")),
    "lookahead: rows of the other branch": wrap(_rows_of_the_other_branch, (lookahead, "draft_of")),
    "wavefront: q of another warp": wrap(_with_probs_of_another_warp, (WAVES, "coupled gumbel"), (WAVES, "coupled maximal")),
    "wavefront: carried with new q": wrap(lambda right, *arguments: (right(*arguments)[0], None), (WAVES, "carry")),
    "wavefront: guesses said to be uniform": wrap(_guesses_declared_uniform, (zipar, "_add_guesses")),
    "wavefront: rows do not wait": substitute(lambda window, columns: 1, (zipar, "lead")),
    "wavefront: the newest of a row is not cached": wrap(newest_not_cached, COMMIT_AT),
    "spatial: q of one direction": _fill_with(
        lambda filler, slots, drafts, draft_probs: filler.sequence.probs_after(
            filler.heads.guess(slots, drafts, rows=True, columns=False), []
        )
    ),
    "spatial: said to be uniform": _fill_with(_uniform),
    "small picture: said to be uniform": _fill_with(_uniform, Initializer),
    "spatial: reads the other direction": wrap(lambda right, *arguments: right(*arguments[:-1], "rows"), (spatial, "predicted_probs")),
    "spatial: residual is p": substitute(lambda p, q: p, (spatial, "residual")),
    "spatial: q of the first guess": wrap(_probs_of_the_first_guess, (spatial, "correct_each")),
    "mulo: stale cache": wrap(  # decodes as if `stale_kv` were on
        lambda right, sequence, coarser, knobs, noise: right(sequence, coarser, Knobs(knobs.values | {"stale_kv": "on"}), noise),
        (mulo, "_blocks"),
    ),
    "mulo: redrawn rows do not wait": substitute(lambda window, columns: 1, (mulo, "lead")),
    "mulo: row of the refused draft": wrap(
        lambda right, rows, row, *rest: right(rows, min(row + 1, rows.logits.shape[1] - 1), *rest), (mulo, "_draw")
    ),
    "stream: literal rule": substitute(rules.LITERAL, (STREAM, "CONSISTENT")),
    "stream: tolerance from zero": wrap(
        lambda right, energies, horizon: (right(energies, horizon) ** 2 - 1 / horizon).clamp(min=0).sqrt(), (rules, "ramp")
    ),
    "stream: residual of a fresh distribution": _residual_of_fresh_probs,
    "stream: new distribution of a carried draft": wrap(
        lambda right, logits, tokens, draft_probs, sequence, *rest: (
            right(logits, tokens, draft_probs, sequence, *rest)[0],
            sequence.probs_after(logits, []),
        ),
        (STREAM, "refill"),
    ),
    "stream: new drafts verified at once": _new_drafts_verified_at_once,
}

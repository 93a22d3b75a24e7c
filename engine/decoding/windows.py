"""The window of the Jacobi methods: its loop, and the ways to refresh drafts that were not reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import torch
from torch import Tensor

from engine.core import Draft, Knobs, Sequence, Step
from engine.decoding.initializers import Initializer
from engine.decoding.policy import matches_seed, verifies_block
from engine.decoding.verdict import Rule, WindowState, has_probs, shown_draft, step_over, window_decisions
from engine.noise import DRAW, RESIDUAL, Noise
from engine.sampling import draw, draw_gumbel, residual
from engine.trace import DecisionTrace

# (window, first, knobs) -> the new tokens from `first` on, and their distributions; None = the distributions that the pass just computed
Refresh = Callable[[WindowState, int, Knobs], tuple[Tensor, Tensor | None]]


def redraw(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Equation 6: every later position is redrawn from the distribution just computed."""
    if (fresh := window.verdict.fresh) is not None:
        return fresh[first:], None
    p = window.rows.p[first:]
    return draw(p, window.noise.uniform(DRAW, window.start + first, len(p), window.iteration)), None


def coupled_gumbel(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Redraws with the position's own noise, so that a token changes only if its distribution changes enough (MC-SJD)."""
    if (answers := window.verdict.answers) is not None:
        return answers[first:], None
    scores = window.rows.scores[first:]
    return draw_gumbel(scores, window.noise.gumbel(window.start + first, len(scores))), None


class CarriedProbs:
    """The distributions of the drafts that the last pass redrew, kept for the records alone: under match seed the method needs none."""

    probs: Tensor | None = None

    def decide(self, window: WindowState, k: int, redrawn: int) -> DecisionTrace | None:
        """The record of the `k` committed tokens of a window. redrawn : number of drafts after them that the refresh left"""
        if not has_probs(window.rows):
            return None
        carried, self.probs = self.probs, window.rows.p[window.a + 1 :][:redrawn]
        return window_decisions(window, k, self.probs[:0] if carried is None else carried)


def speculative_jacobi(
    sequence: Sequence,
    knobs: Knobs,
    noise: Noise,
    refresh: Refresh,
    needs_probs: bool = False,
    rule: Callable[[Knobs], Rule | None] = lambda knobs: None,
    exact: Callable[[Knobs], bool] = lambda knobs: True,
    filler: Initializer | None = None,
) -> Iterator[Step]:
    """The loop of SJD, SJD++ and GSD. State: the window's tokens and the distributions they were drawn from (None if not needed).

    needs_probs : the refresh needs the distributions
    rule       : the acceptance rule under given knobs; None: speculative sampling, which a GPU verifies in the pass
    exact      : True if the rule is exact under given knobs
    filler     : fills new slots; None: from neighbours, as `knobs.init` says
    A block needs drafts that are independent of earlier passes, so it replaces the refresh by `redraw`.
    """
    as_block = verifies_block(knobs)
    refresh = redraw if as_block else refresh
    tokens = torch.empty(0, dtype=torch.int64, device=sequence.device)
    no_probs = torch.empty(0, sequence.vocabulary, device=sequence.device, dtype=noise.dtype)
    draft_probs: Tensor | None = no_probs
    iteration, carried = 0, CarriedProbs()
    with closing(filler or Initializer(sequence, noise)) as initializer:
        while not sequence.done:
            n, init = sequence.length, "sample left" if filler else knobs.init
            is_exact = exact(knobs)
            seeded = matches_seed(knobs, is_exact)
            keep_probs = needs_probs or not seeded
            if keep_probs and draft_probs is None:  # the seed is no longer matched: drafts without distributions cannot be verified
                tokens, draft_probs = tokens[:0], no_probs
            size = min(knobs.window - 1, sequence.limit - n - 1)
            if tokens.shape[0] > size:  # the window has shrunk
                tokens, draft_probs = tokens[:size], draft_probs[:size] if keep_probs else None
            tokens, filled = initializer.fill(tokens, draft_probs if keep_probs else None, size, init, iteration, seeded)
            draft_probs = filled if keep_probs else None
            store = keep_probs or init.startswith("sample") or sequence.layout.small > 0
            # eq. 2: the distributions of iteration j given the window of j - 1
            draft = Draft(tokens, q=draft_probs)
            window, step = step_over(sequence, draft, noise, iteration, seeded, rule(knobs), store, levels=False, as_block=as_block)
            initializer.observe(n, window.rows)
            step.draft_forwards, a = initializer.take_pass_count(), window.a
            if a < size:
                tokens, draft_probs = refresh(window, a + 1, knobs)
                draft_probs = window.rows.p[a + 1 :] if keep_probs and draft_probs is None else draft_probs
            else:
                tokens, draft_probs = tokens[:0], draft_probs[:0] if keep_probs else None
            if draft_probs is None:
                step.decide = partial(carried.decide, window, len(step.tokens), len(tokens))
            step.draft = shown_draft(sequence, tokens)
            iteration += 1
            yield step


def coupled_maximal(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Keeps a draft with probability min(1, p/q), else draws from the residual. Its distribution becomes p, and no coupling keeps more
    drafts (lemma d)."""
    if (replacements := window.verdict.drawn) is not None:
        accepted, replacements = window.accepted[first:], replacements[first:]
        return torch.cat([torch.where(accepted, window.tokens[first:], replacements[:-1]), replacements[-1:]]), None
    p, start, iteration = window.rows.p[first:], window.start + first, window.iteration
    rest = torch.cat([residual(p[:-1], window.draft_probs[first:]), p[-1:]])
    replacements = draw(rest, window.noise.uniform(RESIDUAL, start, len(p), iteration))
    return torch.cat([torch.where(window.accepted[first:], window.tokens[first:], replacements[:-1]), replacements[-1:]]), None

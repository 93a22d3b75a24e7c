"""Speculative Jacobi decoding (SJD): the window's tokens are draws with known laws, so the same model can verify them.

Paper: Accelerating Auto-regressive Text-to-Image Generation with Training-free Speculative Jacobi Decoding, Teng et al.,
arXiv 2410.01699; SJD++ paper section 4, equations 2, 3 and 6.
Idea: every draft was drawn in the pass before from a law that is kept. The next pass of the same network gives the target
law; speculative sampling between the two passes accepts a prefix, the first rejected token is drawn from the residual, and all later
drafts are drawn anew from the laws just computed.
Exactness: always. Each draft has a known law that does not depend on its value, so acceptance by p/q and residual draws give p
(`Verified` gives the argument). Shown by distribution with failing mutants. With `match seed` the redraw uses the position's own
noise, and the output is plain decoding's, token for token.
Deviations: the public code initialises with one-hot laws even where it draws uniformly, which is exact but rejects nearly all of
these; here every initial token carries the law it was really drawn from. The window is clipped at the end of the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.accept import leading, matches, probability_of, ratio
from engine.core import VERIFY, Case, Draft, Knobs, Method, Rows, Sequence, Step
from engine.methods.windows import INIT, WINDOW, Initializer
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.sampling import draw, draw_gumbel, entropy, residual


@dataclass
class Verified:
    """What a refresh may look at after a pass: the old window and its verdict.

    Why carrying drafts is exact. Suppose the draft x of a position has law q given everything that happened at earlier positions.
    (a) Accepting it with probability min(1, p(x)/q(x)) and drawing from the residual otherwise gives a token with law p.
    (b) Kept without a look at its value, x still has law q. (c) Kept with probability k(x) and else redrawn from r, it has law
    q k + (1 - sum q k) r, and this law must be carried. (d) With k = min(1, r/q) and a redraw from r's residual, that law is r itself.

    tokens : int64 [m]; laws : [m, V] or None (match seed keeps none unless the refresh needs them); ratios : p/q [m] or None
    rows   : of the pass, row i is the law of position start+i, i = 0..m
    accepted : bool [m], each verdict on its own (meaningful behind the first rejection too)
    """

    start: int
    tokens: Tensor
    laws: Tensor | None
    ratios: Tensor | None
    accepted: Tensor
    rows: Rows
    noise: Noise
    iteration: int


# (window, first, knobs) -> the new tokens from `first` on, and their laws; None = the laws that the pass just computed
Refresh = Callable[[Verified, int, Knobs], tuple[Tensor, Tensor | None]]


def redraw(window: Verified, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Equation 6: every later position is drawn afresh from the law just computed."""
    p = window.rows.p[first:]
    return draw(p, window.noise.uniform(DRAW, window.start + first, len(p), window.iteration)), None


def coupled_gumbel(window: Verified, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Drawn anew under the position's own noise, so that a token changes only as far as its law does (MC-SJD)."""
    scores = window.rows.scores[first:]
    return draw_gumbel(scores, window.noise.gumbel(window.start + first, len(scores))), None


# (p [m, V], q [m, V], tokens int64 [m], u [m]) -> accepted bool [m] and what u was compared with [m]
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def speculative_jacobi(
    sequence: Sequence, knobs: Knobs, noise: Noise, refresh: Refresh, needs_laws: bool = False, rule: Rule | None = None
) -> Iterator[Step]:
    """The loop of SJD, SJD++ and GSD, which brings a `rule` of its own. Locals: the window's tokens and the laws they were drawn from."""
    seeded = knobs.verify == "match seed"
    keep_laws = needs_laws or not seeded
    tokens = torch.empty(0, dtype=torch.int64, device=sequence.device)
    laws = torch.empty(0, sequence.vocabulary, device=sequence.device, dtype=noise.dtype) if keep_laws else None
    iteration = 0
    with closing(Initializer(sequence, noise, seeded)) as initializer:
        while not sequence.done:
            n = sequence.length
            size = min(knobs.window - 1, sequence.limit - n - 1)
            tokens, filled = initializer.fill(tokens[:size], laws[:size] if keep_laws else None, size, knobs.init, iteration)
            laws = filled if keep_laws else None
            rows = sequence.forward(Draft(tokens, q=laws))  # eq. 2: the laws of iteration j given the window of iteration j - 1
            initializer.saw(n, rows)
            accepted, ratios, answers = verify(rows, tokens, laws, noise, n, iteration, seeded, rule)
            a = leading(accepted)
            token = correct(rows, laws, answers, a, size, noise, n, iteration)
            window = Verified(n, tokens, laws, ratios, accepted, rows, noise, iteration)
            committed = sequence.commit(list(range(a)), token)
            step = describe(window, a, committed, size)
            step.draft_forwards = initializer.counted()
            if a < size:
                tokens, laws = refresh(window, a + 1, knobs)
                laws = rows.p[a + 1 :] if keep_laws and laws is None else laws
            else:
                tokens, laws = tokens[:0], laws[:0] if keep_laws else None
            step.draft = {"tokens": tokens, "positions": list(range(n + a + 1, n + a + 1 + len(tokens))), "status": "draft"}
            iteration += 1
            yield step


def verify(
    rows: Rows, tokens: Tensor, laws: Tensor | None, noise: Noise, n: int, iteration: int, seeded: bool, rule: Rule | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Verdicts bool [m], ratios [m] or None, and the seeded answers [m+1] or None; without a rule, speculative sampling's."""
    size = len(tokens)
    answers = draw_gumbel(rows.scores, noise.gumbel(n, size + 1)) if seeded else None
    if laws is None:
        return matches(tokens, answers[:size]), None, answers
    accepted, ratios = (rule or ratio)(rows.p[:size], laws, tokens, noise.uniform(ACCEPT, n, size, iteration))  # eq. 3
    return (matches(tokens, answers[:size]) if seeded else accepted), ratios, answers


def correct(rows: Rows, laws: Tensor | None, answers: Tensor | None, a: int, size: int, noise: Noise, n: int, iteration: int) -> int:
    """The token behind the accepted prefix: the seeded answer, a draw from the residual, or a free one from the last row."""
    if answers is not None:
        return answers[a].item()
    if a == size:
        return draw(rows.p[size:], noise.uniform(DRAW, n + size, 1, iteration)).item()
    left = residual(rows.p[a : a + 1], laws[a : a + 1])
    return draw(left, noise.uniform(RESIDUAL, n + a, 1, iteration)).item()


def describe(window: Verified, a: int, committed: list[int], size: int) -> Step:
    """The Step of a pass: per committed token whether it was a draft, how probable its acceptance was, and the law's entropy."""
    k = len(committed)
    drafted = min(k, size)
    if window.ratios is None:
        chance = probability_of(window.rows.law(0, drafted), window.tokens[:drafted])
    else:
        chance = window.ratios[:drafted].clamp(max=1)
    trace = {
        "accepted": ([True] * a + [False])[:k],
        "accept_probability": chance,
        "entropy": entropy(window.rows.law(0, k)),
    }
    return Step(committed, list(range(window.start, window.start + k)), drafted=size, trace=trace)


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step a pass."""
    refresh = coupled_gumbel if knobs.verify == "match seed" else redraw
    return speculative_jacobi(sequence, knobs, noise, refresh)


def _case(init: str, *mutants: str) -> Case:
    return Case(f"SJD-EXACT {init}", "same law", {"window": 6, "init": init}, mutants=mutants)


METHOD = Method(
    name="sjd",
    title="SJD",
    decode=decode,
    knobs=(WINDOW, INIT, VERIFY),
    paper="SJD, Teng et al., arXiv 2410.01699",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: every draft is verified against the law it was drawn from (speculative sampling).",
    common={"window": 4},
    cases=(
        _case("random", "one-hot ratio for a uniform draw", "residual is p"),
        _case("repeat left", "residual is p"),
        _case("repeat above", "inverted ratio"),
        _case("sample left", "stale law after refinement"),
        _case("sample above", "residual is p"),
        _case("up-sampled", "one-hot ratio for a uniform draw"),
        Case("SEED-EXACT", "same tokens", {"window": 6, "verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)

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

from collections.abc import Iterator
from typing import Any

from engine.core import VERIFY, Case, Knobs, Method, Sequence, Step
from engine.decoding.initializers import INIT, WINDOW
from engine.decoding.policy import matches_seed
from engine.decoding.windows import coupled_gumbel, redraw, speculative_jacobi
from engine.noise import Noise


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step a pass."""
    refresh = coupled_gumbel if matches_seed(knobs, exact=True) else redraw
    return speculative_jacobi(sequence, knobs, noise, refresh)


def _case(init: str, *mutants: str) -> Case:
    """The window is shorter than the sequence: slots that an initialisation fills come up behind the first pass only."""
    return Case(f"SJD-EXACT {init}", "same law", {"window": 3, "init": init}, mutants=mutants)


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

"""Speculative Jacobi decoding (SJD): the window's tokens are draws from known distributions, so the same model can verify them.

Paper: Accelerating Auto-regressive Text-to-Image Generation with Training-free Speculative Jacobi Decoding, Teng et al.,
arXiv 2410.01699; SJD++ paper section 4, equations 2, 3 and 6.
Idea: every draft was drawn in the previous pass from a distribution that is kept. The next pass of the same network gives the target
distribution; speculative sampling between the two passes accepts a prefix, the first rejected token is replaced from the residual, and
all later drafts are redrawn from the distributions just computed. `verify=block` accepts a prefix as a whole (arXiv 2403.10444).
Exactness: always. Each draft has a known distribution that does not depend on its value, so acceptance by p/q and residual draws give p
(`WindowState` gives the argument). A block is exact in every pass as well, because every redraw has new noise (`decoding/policy.py`).
`verify` tests the output distribution, with mutants that fail. With `match seed` the redraw uses the position's own noise, and the output
is plain decoding's, token for token.
Deviations: the public code initialises with one-hot distributions even where it draws uniformly, which is exact but rejects nearly all of
these drafts; here every initial token carries the distribution it was drawn from. The window is clipped at the end of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.core import VERIFY_BLOCK, Case, Knobs, Method, Sequence, Step
from engine.decoding.initializers import INIT, WINDOW
from engine.decoding.policy import matches_seed
from engine.decoding.windows import coupled_gumbel, redraw, speculative_jacobi
from engine.noise import Noise


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass."""
    refresh = coupled_gumbel if matches_seed(knobs, exact=True) else redraw
    return speculative_jacobi(sequence, knobs, noise, refresh)


def _case(init: str, *mutants: str) -> Case:
    """A case whose window is shorter than the sequence: only then are slots initialised after the first pass."""
    return Case(f"SJD-EXACT {init}", "same distribution", {"window": 3, "init": init}, mutants=mutants)


_BLOCK = {"window": 4, "init": "random", "verify": "block"}
_LINE = {"rows": 1, "columns": 4, "sharpness": 0.8}
_FILTERS = {"rows": 2, "columns": 2, "vocabulary": 5, "grammar": True, "top_k": 3, "top_p": 0.9}

METHOD = Method(
    name="sjd",
    title="SJD",
    about="Draws a window of tokens at once and keeps each draw with the model's own probability.",
    decode=decode,
    knobs=(WINDOW, INIT, VERIFY_BLOCK),
    paper="SJD, Teng et al., arXiv 2410.01699",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: every draft is verified against the distribution it was drawn from (speculative sampling).",
    common={"window": 4},
    cases=(
        _case("random", "one-hot ratio for a uniform draw", "residual is p"),
        _case("repeat left", "position off by one after a refusal"),
        _case("repeat above", "inverted ratio"),
        _case("sample left", "stale distribution after refinement"),
        _case("sample above", "residual is p"),
        _case("up-sampled", "one-hot ratio for a uniform draw"),
        Case("BLOCK-EXACT", "same distribution", _BLOCK, _LINE, ("block: drafts kept", "block: residual is p")),
        Case("BLOCK-EXACT filters", "same distribution", _BLOCK | {"init": "sample left"}, _FILTERS, ("block: residual is p",)),
        Case("SEED-EXACT", "same tokens", {"window": 6, "verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)

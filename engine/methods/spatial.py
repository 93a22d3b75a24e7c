"""Spatially speculative decoding: small heads predict the rest of a row from the row above and from its newest token.

Paper: SSD: Spatially Speculative Decoding Accelerates Autoregressive Image Generation, Xiang et al., arXiv 2606.20543.
Idea: heads on the frozen model (engine/drafters/spatial_heads.py) draft a whole row at once, because what is above a token says nearly as
much about it as what is to its left. As published, a few passes correct the row: each pass tests every draft by speculative sampling,
whatever happened to the drafts before it, and replaces a refused draft from its residual; then the row is final. Verified, the heads fill
the new slots of a window that continues into the rows below, in raster order. Drafts that were not reached stay in the window, redrawn as
in SJD++.
Exactness: verified, always. A draft's distribution depends only on the tokens before it, whether a head or the last pass drew it, so
speculative sampling against it is exact (`WindowState` has the argument). With `verify=block` drafts that were not reached are redrawn with
new noise, whatever `refresh` says (`decoding/policy.py`). As published it is not exact: a draft is accepted by the distribution after
drafts that were refused. With as many passes as a row has tokens it would be exact, because each pass makes one more token right.
Deviations: the first token of a block is drawn from the model's own distribution, which the pass before it has computed. The first row is
drafted in blocks of `depth`, which one pass corrects. Rows are drafted one at a time, not two. As published, the heads read the row above
alone, or the newest token alone in the first row; `foresee` lets them read both.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.core import NO_DRAFT, VERIFY_BLOCK, Case, Draft, Knob, Knobs, Method, Preset, Rows, Sequence, Step
from engine.decoding.foreseen import BOTH, HeadInitializer, predicted_probs
from engine.decoding.initializers import WINDOW
from engine.decoding.policy import check_start, matches_seed, not_exact
from engine.decoding.windows import Refresh, coupled_gumbel, coupled_maximal, redraw, speculative_jacobi
from engine.drafters.spatial_heads import SpatialDrafter
from engine.noise import ACCEPT, DRAW, INITIAL, RESIDUAL, Noise
from engine.rules import ratio
from engine.sampling import draw, entropy, residual
from engine.trace import Trace

MODE = Knob(
    "mode", "", "verified", choices=("verified", "published"), live=False,
    help="verified: drafts in a window, and the output has plain decoding's distribution. published: a row is final after some passes.",
)  # fmt: skip
FORESEE = Knob(
    "foresee", "", BOTH, choices=(BOTH, "rows", "columns"),
    help="What the heads read. rows: the newest token of the row. columns: the row above. The first row always uses its newest token.",
    label="Look ahead along",
)  # fmt: skip
REFRESHES: dict[str, Refresh] = {"coupled gumbel": coupled_gumbel, "coupled maximal": coupled_maximal, "redraw": redraw}
REFRESH = Knob(
    "refresh", "", "coupled gumbel", choices=tuple(REFRESHES), live=False, when=("mode", "verified"),
    help="Drafts after the first rejection. coupled: redrawn with as few changes as possible. redraw: redrawn.",
    label="Leftover guesses",
    words={"coupled gumbel": "same dice again", "coupled maximal": "keep where possible", "redraw": "guess again"},
)  # fmt: skip
ROUNDS = Knob("rounds", "r", 2, 0, 8, 1, help="Passes that correct a row before it is final.", when=("mode", "published"))
DEPTH = Knob("depth", "k_h", 5, 1, 8, 1, help="Drafts per pass in the first row.", when=("mode", "published"))


# --- verified ---------------------------------------------------------------------------------------------------------


def decode_verified(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: SpatialDrafter) -> Iterator[Step]:
    """The window of SJD++, whose new slots the heads fill."""
    name = "coupled gumbel" if matches_seed(knobs, exact=True) else knobs.refresh
    filler = HeadInitializer(sequence, noise, drafter.start(sequence), knobs)
    return speculative_jacobi(sequence, knobs, noise, REFRESHES[name], name == "coupled maximal", filler=filler)


# --- as published -----------------------------------------------------------------------------------------------------


def decode_published(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: SpatialDrafter) -> Iterator[Step]:
    """Drafts a row, corrects it in some passes, and commits it in one more; each step is a row, or a part of the first one."""
    heads = drafter.start(sequence)
    rows, columns, iteration = sequence.forward(NO_DRAFT), sequence.layout.reach, 1
    heads.observe(0, rows)
    yield _final_step(sequence, rows, [], noise, 1)
    while not sequence.done:
        n = sequence.length
        stop = min(n + knobs.depth, columns) if n < columns else columns * (n // columns + 1)
        slots, none = range(n, stop), torch.empty(0, dtype=torch.int64, device=sequence.device)
        draft_probs = predicted_probs(heads, sequence, slots, none, knobs.foresee).to(noise.dtype) if slots else rows.p[:0]
        tokens = draw(draft_probs, noise.uniform(INITIAL, n, len(slots), iteration)) if slots else none
        rounds = min(1, knobs.rounds) if n < columns else knobs.rounds
        stayed = torch.ones(len(slots), dtype=torch.bool, device=sequence.device)
        for _ in range(rounds if slots else 0):
            rows = sequence.forward(Draft(tokens, q=draft_probs))
            tokens, draft_probs, stayed = correct_each(rows.p[:-1], draft_probs, tokens, noise, n, iteration)
            iteration += 1
        rows = sequence.forward(Draft(tokens, q=draft_probs))
        heads.observe(n, rows)
        yield _final_step(sequence, rows, stayed.tolist(), noise, 1 + (rounds if slots else 0))
        iteration += 1


def correct_each(p: Tensor, q: Tensor, tokens: Tensor, noise: Noise, n: int, iteration: int) -> tuple[Tensor, Tensor, Tensor]:
    """Speculative sampling of each draft int64 [m] independently: the tokens that stay or replace drafts, their distributions p [m, V], and
    which drafts stayed, bool [m]."""
    count = len(tokens)
    stayed, _ = ratio(p, q, tokens, noise.uniform(ACCEPT, n, count, iteration))
    replacements = draw(residual(p, q), noise.uniform(RESIDUAL, n, count, iteration))
    return torch.where(stayed, tokens, replacements), p, stayed


def _final_step(sequence: Sequence, rows: Rows, stayed: list[bool], noise: Noise, passes: int) -> Step:
    """The step of a pass over final tokens: commits them, and a draw from the distribution after them."""
    n, size = sequence.length, len(stayed)
    token = draw(rows.p[size:], noise.uniform(DRAW, n + size, 1, 0)).item()
    committed = sequence.commit(list(range(size)), token)
    k = len(committed)
    trace = Trace([*stayed, False][:k], entropy=entropy(rows.p[:k]))
    return Step(committed, list(range(n, n + k)), drafted=size, forwards=passes, trace=trace)


# --- the method -------------------------------------------------------------------------------------------------------


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: SpatialDrafter) -> Iterator[Step]:
    """Yields one Step per pass if verified, else one per row."""
    if is_exact(knobs):
        return decode_verified(sequence, knobs, noise, drafter)
    check_start(knobs, False, "mode=published", "mode=verified")
    return decode_published(sequence, knobs, noise, drafter)


def is_exact(knobs: Knobs) -> bool:
    """True if verified."""
    return knobs.mode == "verified"


def why(knobs: Knobs) -> str:
    """The badge's sentence."""
    if is_exact(knobs):
        return "Exact: every draft is verified in raster order against the distribution that it was drawn from."
    return not_exact(knobs, "a token is accepted by the distribution after drafts that were themselves refused.")


_SMALL = {"window": 5}
_ROWS = {"mode": "published", "depth": 1}

METHOD = Method(
    name="spatial",
    title="SSD",
    about="Small heads predict a row from the row above; the model checks the window.",
    decode=decode,
    forks=False,  # its heads read states of all rows, which a prefix lacks
    knobs=(MODE, WINDOW, FORESEE, REFRESH, ROUNDS, DEPTH, VERIFY_BLOCK),
    paper="SSD, Xiang et al., arXiv 2606.20543; verified: ours",
    exact=is_exact,
    why=why,
    needs=frozenset({"raster", "hidden", "spatial_heads"}),
    drafters=("spatial_heads",),
    common=_SMALL,
    presets=(
        Preset(
            "spatial_published", "Predicts a whole row from the row above and corrects it in two passes.",
            {"mode": "published", "foresee": "columns"},
        ),
    ),
    candidates=lambda backbone: [("spatial", {"window": window}) for window in (4, 8, 16)],
    cases=(
        Case("SSD-EXACT coupled gumbel", "same distribution", {"window": 3}, mutants=("spatial: q of one direction", "residual is p")),
        Case(
            "SSD-EXACT coupled maximal", "same distribution", _SMALL | {"refresh": "coupled maximal"}, {"rows": 3, "columns": 2},
            mutants=("noise without the iteration",),
        ),
        Case("SSD-EXACT redraw", "same distribution", {"window": 3, "refresh": "redraw", "foresee": "columns"}, mutants=("residual is p",)),
        Case("SSD-EXACT rows", "same distribution", {"window": 3, "foresee": "rows"}, mutants=("spatial: said to be uniform",)),
        Case(
            "BLOCK-EXACT", "same distribution", {"window": 3, "verify": "block"}, {"rows": 2, "columns": 2, "vocabulary": 4},
            mutants=("block: residual is p",),
        ),
        Case("SEED-EXACT", "same tokens", _SMALL | {"verify": "match seed"}, mutants=("iteration in the noise",)),
        Case("SSD-ROUNDS", "same distribution", _ROWS | {"rounds": 3}, mutants=("spatial: residual is p", "spatial: q of the first guess")),
        *(
            Case(
                f"SSD-LAW {rounds}", "closed form", _ROWS | {"rounds": rounds, "foresee": "columns"}, {},
                ("spatial: residual is p",) if rounds else ("spatial: reads the other direction",), "rows corrected",
            )
            for rounds in (0, 1)
        ),
        Case("published", "not exact", _ROWS | {"rounds": 0}),
    ),
)  # fmt: skip

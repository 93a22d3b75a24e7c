"""SJD++: speculative Jacobi decoding that keeps drafts it has not reached, with exact ways of keeping them.

Paper: SJD++: Improved Speculative Jacobi Decoding for Training-free Acceleration of Discrete Auto-regressive Text-to-Image
Generation, Teng et al., equations 4 and 5. The coupled refresh: MC-SJD, arXiv 2510.24211.
Idea: SJD redraws every draft behind the first rejection, so most of the window is new in every pass. SJD++ keeps a draft whose
likelihood ratio between two passes exceeds a threshold. Coupling does better: it redraws from the new law, but in the way that leaves
the token as it was as often as possible.
Exactness: with `redraw`, `reuse mixture`, `coupled maximal` and `coupled gumbel` always; with `reuse published` only under `match seed`.
The published rule keeps a token because of its value and goes on as if it were a fresh draw, which sharpens the law; the table of
`verify` finds it. `reuse mixture` keeps the same tokens and carries the law they really have.
Deviations: the paper's rule is one click away and labelled not exact; the default refresh couples by Gumbel
noise, which serves both verification modes; maximal coupling was within a tenth of its speed, either way, at windows up to 24.
LANTERN's rule (`relax`) may take the place of speculative sampling's, with the refreshes that ask no verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.core import VERIFY, Case, Knob, Knobs, Method, Sequence, Step
from engine.decoding import neighbours
from engine.decoding.initializers import INIT, WINDOW
from engine.decoding.policy import MATCH, matches_seed, not_exact
from engine.decoding.verdict import Verified
from engine.decoding.windows import Refresh, coupled_gumbel, coupled_maximal, redraw, speculative_jacobi
from engine.errors import BadKnob
from engine.noise import Noise


def reuse_published(window: Verified, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Equations 4 and 5 as printed: keep where p/q > threshold, else redraw; the law is taken to be p, which it is not."""
    fresh, _ = redraw(window, first, knobs)
    kept = window.ratios[first:] > knobs.reuse_ratio
    return torch.cat([torch.where(kept, window.tokens[first:], fresh[:-1]), fresh[-1:]]), None


def reuse_mixture(window: Verified, first: int, knobs: Knobs) -> tuple[Tensor, Tensor]:
    """The same tokens with the law they have: q on the kept values, plus p times the mass that is redrawn (lemma c)."""
    tokens, _ = reuse_published(window, first, knobs)
    p, q = window.rows.p[first:], window.laws[first:]
    kept = torch.where(p[:-1] > knobs.reuse_ratio * q, q, 0.0)
    mixed = kept + (1 - kept.sum(-1, keepdim=True)) * p[:-1]
    return tokens, torch.cat([mixed, p[-1:]])


REFRESHES: dict[str, Refresh] = {
    "redraw": redraw,
    "reuse published": reuse_published,
    "reuse mixture": reuse_mixture,
    "coupled maximal": coupled_maximal,
    "coupled gumbel": coupled_gumbel,
}
REFRESH = Knob(
    "refresh", "", "coupled gumbel", choices=tuple(REFRESHES), live=False,
    help="What becomes of drafts behind the first rejection: drawn anew, kept by the paper's ratio rule (its law as published, which is "
    "not exact, or as it is), or redrawn from the new law so that they change as little as possible.",
)  # fmt: skip
REUSE_RATIO = Knob(
    "reuse_ratio", "τ", 0.5, 0.0, 2.0, 0.05, help="Keep a draft whose p/q exceeds this.",
    when=("refresh", "reuse published", "reuse mixture"),
)  # fmt: skip


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step a pass."""
    name = "coupled gumbel" if matches_seed(knobs, exact=True) and knobs.refresh == "redraw" else knobs.refresh
    needs_laws = name.startswith("reuse") or name == "coupled maximal"
    neighbours.check_start(knobs)
    if needs_laws and not neighbours.exact(knobs):
        raise BadKnob(f"relax={knobs.relax} does not go with refresh={knobs.refresh}. Set refresh=coupled gumbel, or redraw.")

    def refresh(window: Verified, first: int, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
        """A refresh that looks at the verdicts needs exact ones: it stands aside while a rule is relaxed."""
        return REFRESHES["coupled gumbel" if needs_laws and not neighbours.exact(knobs) else name](window, first, knobs)

    relaxed = neighbours.RelaxedWindow(sequence, knobs, noise)
    for step in speculative_jacobi(sequence, knobs, noise, refresh, needs_laws, relaxed.ratio, neighbours.exact):
        if not neighbours.exact(knobs):
            step.trace = replace(step.trace, deviation=relaxed.relaxed.meter.trace())
        yield step


def is_exact(knobs: Knobs) -> bool:
    """False for the published reuse rule, unless tokens are verified by equality with the seed's own, and for relaxed rules."""
    return neighbours.exact(knobs) and (knobs.refresh != "reuse published" or knobs.verify == MATCH)


def why(knobs: Knobs) -> str:
    """The badge's sentence."""
    if not neighbours.exact(knobs):
        return neighbours.why(knobs)
    if knobs.verify == MATCH:
        return "Exact: every token equals plain decoding's token for this seed."
    if knobs.refresh == "reuse published":
        return not_exact(knobs, "a draft is kept because of its value but verified as if it were a fresh draw, which sharpens the law.")
    return "Exact: kept drafts carry the law they really have, and are verified against it."


def _case(refresh: str, *mutants: str, claim: str = "same law", name: str = "MC-EXACT") -> Case:
    label = name if name == "published" else f"{name} {refresh}"
    return Case(label, claim, {"window": 6, "init": "random", "refresh": refresh}, mutants=mutants)


_LENDING = {"window": 2, "init": "random", "relax": "additive", "added_mass": 0.3, "neighbour_share": 0.4}
_LINE = {"rows": 1, "columns": 3, "vocabulary": 5, "guidance": 1.0}

METHOD = Method(
    name="sjdpp",
    title="SJD++",
    decode=decode,
    knobs=(WINDOW, INIT, REFRESH, REUSE_RATIO, *neighbours.KNOBS, VERIFY),
    paper="SJD++, Teng et al.; coupling: MC-SJD, arXiv 2510.24211",
    exact=is_exact,
    why=why,
    common={"window": 4},
    cases=(
        _case("reuse mixture", "published law", "law of the first draw", name="SJDPP-MIX"),
        _case("coupled maximal", "noise without the iteration", "residual is p"),
        _case("coupled gumbel", "stale law after refinement", "residual is p"),
        _case("redraw", "stale law after refinement"),
        _case("reuse published", claim="not exact", name="published"),
        Case(
            "MULTI-SCALE",
            "same law",
            {"window": 6, "init": "up-sampled"},
            {"rows": 3, "columns": 2},
            mutants=("one-hot ratio for a uniform draw",),
        ),
        Case(
            "LAN-LAW window", "closed form", _LENDING, _LINE,
            ("lantern: counts one neighbour too many", "residual is p"), "relaxed window",
        ),
        Case(
            "LAN-0 window", "same as unrelaxed", _LENDING | {"window": 6, "added_mass": 0.0},
            mutants=("lantern: the nearest always counts",),
        ),
        Case("SEED-EXACT", "same tokens", {"window": 6, "verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)  # fmt: skip

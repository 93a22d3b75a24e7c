"""SJD++: speculative Jacobi decoding that keeps drafts it has not reached, as published and in exact ways.

Paper: SJD++: Improved Speculative Jacobi Decoding for Training-free Acceleration of Discrete Auto-regressive Text-to-Image
Generation, Teng et al., equations 4 and 5. The coupled refresh: MC-SJD, arXiv 2510.24211.
Idea: SJD redraws every draft after the first rejection, so most of the window is new in every pass. SJD++ keeps a draft whose
likelihood ratio between two passes exceeds a threshold. Coupling is better: it redraws from the new distribution in the way that keeps
the old token as often as possible.
Exactness: with `redraw`, `reuse mixture`, `coupled maximal`, `coupled gumbel` and `initialise` always; with `reuse published` only under
`match seed`. The published rule keeps a token because of its value, then treats it as a fresh draw, which sharpens the distribution;
`verify` detects this. `reuse mixture` keeps the same tokens and carries their true distribution.
Deviations: the paper's rule is the choice `reuse published`, labelled not exact. The default refresh couples by Gumbel noise, which works
in both verification modes; maximal coupling was within 10 % of its speed at windows up to 24. LANTERN's rule (`relax`)
can replace the acceptance rule of speculative sampling, with the refreshes that do not use verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.core import VERIFY, Case, Knob, Knobs, Method, Preset, Sequence, Step
from engine.decoding import neighbours
from engine.decoding.initializers import INIT, WINDOW
from engine.decoding.policy import MATCH, matches_seed, not_exact
from engine.decoding.verdict import WindowState
from engine.decoding.windows import Refresh, coupled_gumbel, coupled_maximal, redraw, speculative_jacobi
from engine.errors import BadKnob
from engine.noise import Noise


def reuse_published(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, None]:
    """Equations 4 and 5 as printed: keep where p/q > threshold, else redraw. The distribution is taken to be p, which it is not."""
    fresh, _ = redraw(window, first, knobs)
    reused = window.ratios[first:] > knobs.reuse_ratio
    return torch.cat([torch.where(reused, window.tokens[first:], fresh[:-1]), fresh[-1:]]), None


def reuse_mixture(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, Tensor]:
    """The same tokens with their true distribution: q on the kept values, plus p times the mass that is redrawn (lemma c)."""
    tokens, _ = reuse_published(window, first, knobs)
    p, q = window.rows.p[first:], window.draft_probs[first:]
    reused = torch.where(p[:-1] > knobs.reuse_ratio * q, q, 0.0)
    mixed = reused + (1 - reused.sum(-1, keepdim=True)) * p[:-1]
    return tokens, torch.cat([mixed, p[-1:]])


def initialise(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
    """No refinement (figure 12): nothing is kept, so the next pass verifies tokens drawn as for empty slots."""
    return window.tokens[:0], None if window.draft_probs is None else window.draft_probs[:0]


REFRESHES: dict[str, Refresh] = {
    "redraw": redraw,
    "reuse published": reuse_published,
    "reuse mixture": reuse_mixture,
    "coupled maximal": coupled_maximal,
    "coupled gumbel": coupled_gumbel,
    "initialise": initialise,
}
REFRESH = Knob(
    "refresh", "", "coupled gumbel", choices=tuple(REFRESHES), live=False,
    help="Drafts after the first rejection. redraw: redrawn. reuse: kept by the paper's ratio rule (published: not exact; mixture: with "
    "their true distribution). coupled: redrawn with as few changes as possible. initialise: filled like empty slots, without refinement.",
    label="Leftover guesses",
    words={
        "redraw": "guess again", "reuse published": "the paper's rule", "reuse mixture": "keep at the true odds",
        "coupled maximal": "keep where possible", "coupled gumbel": "same dice again", "initialise": "like empty places",
    },
)  # fmt: skip
REUSE_RATIO = Knob(
    "reuse_ratio", "τ", 0.5, 0.0, 2.0, 0.05, help="Keep a draft if its p/q exceeds this.",
    when=("refresh", "reuse published", "reuse mixture"),
    label="Keep a guess above",
)  # fmt: skip


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass."""
    name = "coupled gumbel" if matches_seed(knobs, exact=True) and knobs.refresh == "redraw" else knobs.refresh
    needs_probs = name.startswith("reuse") or name == "coupled maximal"
    neighbours.check_start(knobs)
    if needs_probs and not neighbours.is_exact(knobs):
        raise BadKnob(f"relax={knobs.relax} does not work with refresh={knobs.refresh}. Set refresh=coupled gumbel, or redraw.")

    def refresh(window: WindowState, first: int, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
        """The chosen refresh; while a rule is relaxed, coupled gumbel replaces a refresh that needs exact verdicts."""
        return REFRESHES["coupled gumbel" if needs_probs and not neighbours.is_exact(knobs) else name](window, first, knobs)

    relaxed = neighbours.RelaxedWindow(sequence, knobs, noise)
    for step in speculative_jacobi(sequence, knobs, noise, refresh, needs_probs, relaxed.rule, neighbours.is_exact):
        if not neighbours.is_exact(knobs):
            relaxed.relaxed.meter.commit(len(step.tokens))
            step.trace = replace(step.trace, deviation=relaxed.relaxed.meter.trace())
        yield step


def is_exact(knobs: Knobs) -> bool:
    """False for relaxed rules, and for the published reuse rule unless the seed is matched."""
    return neighbours.is_exact(knobs) and (knobs.refresh != "reuse published" or knobs.verify == MATCH)


def why(knobs: Knobs) -> str:
    """The badge's sentence."""
    if not neighbours.is_exact(knobs):
        return neighbours.why(knobs)
    if knobs.verify == MATCH:
        return "Exact: every token equals plain decoding's token for this seed."
    if knobs.refresh == "reuse published":
        return not_exact(knobs, "drafts are kept because of their value but verified as fresh draws, which sharpens the distribution.")
    return "Exact: kept drafts carry their true distribution and are verified against it."


def _case(refresh: str, *mutants: str, claim: str = "same distribution", name: str = "MC-EXACT") -> Case:
    label = name if name == "published" else f"{name} {refresh}"
    return Case(label, claim, {"window": 6, "init": "random", "refresh": refresh}, mutants=mutants)


_LENDING = {"window": 2, "init": "random", "relax": "additive", "added_mass": 0.3, "neighbour_share": 0.4}
_SMALL_FIRST = {"rows": 3, "columns": 2, "small": 2}  # 2 x 2 tokens, then 1 x 2
_LINE = {"rows": 1, "columns": 3, "vocabulary": 5, "guidance": 1.0}

WINDOWS, SHORT = (4, 8, 12, 16, 24, 32, 48, 64), (4,)  # windows that auto tries: for pictures, and for meshes
METHOD = Method(
    name="sjdpp",
    title="SJD++",
    about="Like SJD, but tokens after a refused one stay in the window wherever they can.",
    decode=decode,
    knobs=(WINDOW, INIT, REFRESH, REUSE_RATIO, *neighbours.KNOBS, VERIFY),
    paper="SJD++, Teng et al.; coupling: MC-SJD, arXiv 2510.24211",
    exact=is_exact,
    why=why,
    common={"window": 4},
    presets=(
        Preset(
            "sjdpp_published", "SJD++ with the paper's own rule, which keeps some tokens too often.",
            {"refresh": "reuse published", "reuse_ratio": 0.5},
        ),
        Preset(
            "mulo_jacobi", "The window of SJD++ starts from an enlarged small picture; the model checks every token.",
            {"init": "up-sampled", "window": 32}, title="MuLo-SD with SJD++", needs=frozenset({"raster", "at_scale"}),
        ),
    ),
    candidates=lambda backbone: [("sjdpp", {"window": window}) for window in (WINDOWS if "raster" in backbone.capabilities else SHORT)],
    unmeasured="sjdpp",
    cases=(
        _case("reuse mixture", "published distribution", "distribution of the first draw", name="SJDPP-MIX"),
        _case("coupled maximal", "noise without the iteration", "residual is p"),
        _case("coupled gumbel", "stale distribution after refinement", "one number for coin and residual"),
        _case("redraw", "stale distribution after refinement"),
        _case("initialise", "old drafts with initial distributions", "residual by the first number of the slot"),
        _case("reuse published", claim="not exact", name="published"),
        Case(
            "MULTI-SCALE",
            "same distribution",
            {"window": 6, "init": "up-sampled"},
            {"rows": 3, "columns": 2},
            mutants=("one-hot ratio for a uniform draw",),
        ),
        Case("SMALL-FIRST", "same distribution", {"window": 4, "init": "up-sampled"}, _SMALL_FIRST, ("small picture: said to be uniform",)),
        Case(
            "LAN-LAW window", "closed form", _LENDING | {"added_mass": 0.1}, _LINE,
            ("lantern: counts one neighbour too many", "residual is p"), "relaxed window",
        ),
        Case(
            "BUDGET window", "closed form", _LENDING | {"added_mass": 0.6, "allowed_deviation": 0.08}, _LINE,
            ("budget: ignored", "budget: the coin is the verdict's"), "relaxed window",
        ),
        Case(
            "LAN-0 window", "same as unrelaxed", _LENDING | {"window": 6, "added_mass": 0.0},
            mutants=("lantern: the nearest always counts",),
        ),
        Case("SEED-EXACT", "same tokens", {"window": 6, "verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)  # fmt: skip

"""LANTERN and LANTERN++: a draft may borrow the probability of similar codes. An acceptance rule of other methods, not a method.

Paper: LANTERN, Jang et al., arXiv 2410.03355 (additive, δ); LANTERN++, Park et al., arXiv 2502.06352 (multiplicative, λ).
Idea: codes that are close in the codebook look nearly the same. A draft x is accepted with probability min(1, mass(x) / q(x)). Its mass
is p(x) plus the probability of its nearest neighbours, limited to δ in all, or to λ p(x). At temperature 0 it is accepted if
this mass makes it the most probable token.
Exactness: none. δ bounds what one x borrows, not the deviation of the output, because every x borrows the same mass; on flat
distributions a δ of 0.05 already accepts nearly everything. λ is a bound per token: none is accepted more than (1 + λ) times too often.
The deviation meter measures the effect of a setting during the run, and `allowed_deviation` limits it (engine/decoding/deviation.py).
Deviations: at temperature 0 the first child that wins is taken; the papers' code takes the longest path of winners. After a refusal
the token is drawn from the exact residual; the papers' code removes all k neighbours, and falls back to a uniform distribution over all
ids if nothing is left. Two knobs instead of one with a hidden switch at 1. The neighbourhood is a share of the vocabulary, because the
papers' 1,000 neighbours are for 16,384 codes. In a Jacobi window (`RelaxedWindow`, ours) nothing is borrowed at temperature 0.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Knob, Knobs, Sequence
from engine.decoding import policy
from engine.decoding.deviation import ALLOWED, Meter, acceptance_uniforms, chain_verdicts, limit_of
from engine.decoding.device_verify import Relaxation
from engine.decoding.verdict import Rule
from engine.dispatch.choice import choose
from engine.errors import NotSupported
from engine.kernels.pooled_mass import pooled_mass
from engine.noise import Noise
from engine.rules import (
    Mass,
    additive_mass,
    after_one_draw,
    deviation,
    multiplicative_mass,
    probability_of,
    ratio,
)

RELAX = Knob(
    "relax", "", "off", choices=("off", "additive", "multiplicative"),
    help="off: exact. additive: a draft may borrow up to δ of probability from similar codes. multiplicative: up to λ times its own.",
    label="Tolerance", words={"additive": "by an amount", "multiplicative": "by a factor"},
)  # fmt: skip
ADDED = Knob("added_mass", "δ", 0.1, 0, 1, 0.01, help="The most probability a draft may borrow.", label="Borrowed probability")
MULTIPLIED = Knob(
    "multiplied_mass", "λ", 0.5, 0, 5, 0.1, help="The most a draft may borrow, as a multiple of its own probability.",
    label="Tolerance factor",
)  # fmt: skip
SHARE = Knob(
    "neighbour_share", "k / V", 0.062, 0.001, 0.5, 0.001, "log", "Share of the codebook that counts as similar to a code.",
    label="Similar codes counted",
)  # fmt: skip
DISTANCE = Knob("distance", "", "raw", choices=("raw", "cosine"), help="Distance measure between codes.", label="Similarity of codes")
KNOBS = (
    RELAX,
    replace(ADDED, when=("relax", "additive")),
    replace(MULTIPLIED, when=("relax", "multiplicative")),
    *(replace(knob, when=("relax", "additive", "multiplicative")) for knob in (SHARE, DISTANCE, ALLOWED)),
)

CHUNK = 1024  # rows of the codebook per block of distances


def is_exact(knobs: Knobs) -> bool:
    """True if nothing may be borrowed."""
    return knobs.relax == "off" or strength(knobs) == 0 or knobs.allowed_deviation == 0


def strength(knobs: Knobs) -> float:
    """δ or λ, whichever the rule uses."""
    return knobs.added_mass if knobs.relax == "additive" else knobs.multiplied_mass


def why(knobs: Knobs) -> str:
    """The sentence of the badge while a relaxed rule is on."""
    amount = f"δ = {knobs.added_mass:g} of" if knobs.relax == "additive" else f"λ = {knobs.multiplied_mass:g} times its own"
    return policy.not_exact(knobs, f"a draft may borrow {amount} probability from similar codes{limit_of(knobs)}.")


def check_start(knobs: Knobs) -> None:
    """Raises BadKnob if a run would begin with a relaxed rule and match seed."""
    policy.check_start(knobs, is_exact(knobs), f"relax={knobs.relax}", "relax=off")


def neighbours(codebook: Tensor, count: int, distance: str, tokens: Tensor | None = None) -> Tensor:
    """The nearest codes of each code, nearest first, without itself: codebook [V, e] -> int64 [V, count], or [N, count] for N tokens."""
    places = codebook.float() if codebook.dtype != torch.float64 else codebook
    if distance == "cosine":
        places = F.normalize(places, dim=-1)  # on the sphere, distances and cosines give the same order
    ids = []
    for some in (torch.arange(len(places), device=places.device) if tokens is None else tokens).split(CHUNK):
        far = torch.cdist(places[some], places)
        far[range(len(far)), some] = torch.inf
        ids.append(far.topk(count, -1, largest=False).indices)
    return torch.cat(ids)


class RelaxedRule:
    """The relaxed rule of one run: its neighbour tables, and the deviation meter."""

    def __init__(self, sequence: Sequence):
        self.codebook: Tensor | None = sequence.codebook
        self.vocabulary, self.device, self.is_greedy = sequence.vocabulary, sequence.device, sequence.sampling.temperature == 0
        self.tables: dict[tuple[int, str], Tensor] = {}
        self.meter, self._workspace = Meter(), sequence.workspace

    def mass(self, knobs: Knobs) -> Mass | None:
        """The mass function of the next pass under these knobs; None = p(x), the exact rule."""
        if knobs.relax == "off":
            return None
        table, most = self._table(knobs), strength(knobs)
        rule = additive_mass if knobs.relax == "additive" else multiplicative_mass
        if not choose(self.device).is_triton:
            return lambda p, tokens: rule(p, tokens, table, most)
        return lambda p, tokens: borrowed_mass(p[None], tokens, table, most, rule is multiplicative_mass)

    def by_row(self, knobs: Knobs) -> Relaxation:
        """The rule under these knobs for one token after each of several distributions."""
        table, most, multiplied = self._table(knobs), strength(knobs), knobs.relax == "multiplicative"
        return Relaxation(
            lambda p, tokens: borrowed_mass(p, tokens, table, most, multiplied), self.is_greedy, (table.shape, most, multiplied)
        )

    def _table(self, knobs: Knobs) -> Tensor:
        if self.codebook is None or len(self.codebook) != self.vocabulary:
            raise NotSupported(f"relax={knobs.relax} needs a codebook to find similar tokens, and this model has none. Set relax=off.")
        key = min(self.vocabulary - 1, max(1, round(knobs.neighbour_share * self.vocabulary))), knobs.distance
        if key not in self.tables:
            table = neighbours(self.codebook.to(self.device), *key)
            self.tables = {key: table if self._workspace is None else self._workspace.hold("neighbours", table)}
        return self.tables[key]

    def share(self, mass: Mass, p: Tensor, probs: Tensor, place: int) -> float:
        """The rule's share in the verification of a sibling drawn from `probs` [V]; place : the number of siblings refused before it."""
        return self.meter.share(total_variation(p, probs, mass), again=place > 0)


def total_variation(p: Tensor, q: Tensor, mass: Mass) -> float:
    """The deviation of the rule's output from p [V], if one draft is drawn from q [V] (one-hot for a chosen draft)."""
    support = q.nonzero().flatten()
    masses = torch.zeros_like(p).index_copy_(0, support, mass(p, support).to(p))
    return deviation(p, after_one_draw(p, q, masses)).item()


def borrowed_mass(p: Tensor, tokens: Tensor, table: Tensor, most: float, multiplied: bool) -> Tensor:
    """The mass [m] of tokens int64 [m] under distributions [m or 1, V], by the kernel: the additive or the multiplicative rule."""
    own = probability_of(p.expand(len(tokens), -1), tokens)
    return pooled_mass(p, tokens, table[tokens], most * own if multiplied else torch.full_like(own, most))


class RelaxedWindow:
    """The relaxed rule for a Jacobi window, whose drafts are draws from known distributions. In one run it replaces the acceptance rule of
    speculative sampling; the residual stays exact."""

    def __init__(self, sequence: Sequence, knobs: Knobs, noise: Noise):
        self.sequence, self.knobs, self.noise = sequence, knobs, noise
        self.relaxed, self.iteration = RelaxedRule(sequence), 0

    def rule(self, knobs: Knobs) -> Rule | None:
        """`ratio` while a rule is relaxed; None: speculative sampling."""
        return None if knobs.relax == "off" else self.ratio

    def ratio(self, p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """p, q [m, V], tokens int64 [m], u [m] -> accepted bool [m] and mass(x) / q(x) [m]."""
        mass, meter, n = self.relaxed.mass(self.knobs), self.relaxed.meter, self.sequence.length
        self.iteration += 1
        is_due = meter.begin(self.knobs, self.noise, n, self.iteration)
        if mass is None or not len(tokens):
            return ratio(p, q, tokens, u)
        credited = torch.cat([mass(row, token[None]) for row, token in zip(p, tokens, strict=True)])
        ratios = credited / probability_of(q, tokens)
        lenient = u.to(p.device) < ratios
        if not is_due:
            return lenient, ratios
        strict, own = ratio(p, q, tokens, u)
        chosen = acceptance_uniforms(self.noise, n, len(tokens), self.iteration)
        accepted, by = chain_verdicts(*meter.decide(lenient, strict, lambda i: total_variation(p[i], q[i], mass), chosen), lenient)
        return accepted, torch.where(by, ratios, own)


def is_sure(p: Tensor) -> bool:
    """True if a distribution [V] is one-hot: at temperature 0, or if the grammar allows one token only."""
    return p.max().item() > 1 - 1e-9

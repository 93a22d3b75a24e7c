"""GSD, grouped speculative decoding: a draft is verified together with tokens of similar appearance and probability.

Paper: Grouped Speculative Decoding for Autoregressive Image Generation, arXiv 2508.07747; the public code.
Idea: SJD with another acceptance ratio: P(G) / Q(G), the group's probability under the model divided by its probability under the draft
distribution. Of the tokens next to the draft in the model's ranking, the group G contains those with a probability and a code close to
the draft's.
Exactness: none, unless the group is the draft alone. Groups overlap and depend on p, and after a refusal the residual is taken from single
tokens, so no bound is known. The output of one draft has a closed form, q min(1, P(G) / Q(G)) plus the residual for the rest, and
`verify` tests it. The deviation meter measures the deviation, and `allowed_deviation` limits it (engine/decoding/deviation.py).
Deviations: the window of ranks is cut at both ends of the ranking; the public code falls back to the plain ratio at one of them. For ids
above 10,000 the public code silently ignores the distance; here all ids are picture tokens. The distance is one minus the cosine, 0 to 2,
which fits the paper's threshold; the text does not define the distance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import VERIFY, Case, Knob, Knobs, Method, Sequence, Step
from engine.decoding.deviation import ALLOWED, Meter, acceptance_uniforms, chain_verdicts, limit_of
from engine.decoding.initializers import INIT, WINDOW
from engine.decoding.policy import check_start, not_exact
from engine.decoding.windows import redraw, speculative_jacobi
from engine.dispatch.choice import choose
from engine.errors import NotSupported
from engine.kernels.pooled_mass import rank_neighbours
from engine.machine import widest_float
from engine.noise import Noise
from engine.rules import after_one_draw, deviation, ratio

HALF = Knob(
    "half_width", "G / 2", 7, 0, 50, 1, help="Ranks on either side of the draft that belong to its group (one less above).",
    label="Neighbours on either side",
)  # fmt: skip
GAP = Knob("probability_gap", "", 0.15, 0, 1, 0.01, help="Limit on the difference in probability between the draft and its group.")
FAR = Knob(
    "code_distance", "", 0.5, 0, 2, 0.05, help="Limit on the code distance (one minus cosine) between the draft and its group.",
    label="Farthest similar code",
)  # fmt: skip


def group_offsets(half: int) -> list[int]:
    """The ranks of a group as offsets from the draft's rank, the draft first: half below it and half - 1 above, as in the public code."""
    return [0, *range(-half, 0), *range(1, half)]


def group(p: Tensor, order: Tensor, ranks: Tensor, codes: Tensor, half: int, gap: float, far: float) -> tuple[Tensor, Tensor]:
    """The tokens next to each draft in the ranking of its row, int64 [m, k], the draft first, and which are in its group, bool [m, k].

    p, order : [m or 1, V], a distribution and its tokens, least probable first; ranks : int64 [m], of the drafts
    codes    : [V, e], unit vectors. The draft is always in its group.
    """
    count, vocabulary = len(ranks), p.shape[-1]
    at = ranks[:, None] + torch.tensor(group_offsets(half), device=p.device)
    inside = (at >= 0) & (at < vocabulary)
    members = order.expand(count, -1).gather(1, at.clamp(0, vocabulary - 1))
    return members, group_mask(p, members, inside, codes, gap, far)


def group_mask(p: Tensor, members: Tensor, inside: Tensor, codes: Tensor, gap: float, far: float) -> Tensor:
    """True for the tokens next to each draft, int64 [m, k], that are in its group, bool [m, k]; inside : True where they exist, bool [m,
    k]."""
    count = len(members)
    chances = p.expand(count, -1).gather(1, members)
    close = (chances - chances[:, :1]).abs() < gap
    alike = 1 - (codes[members] * codes[members[:, :1]]).sum(-1) < far
    chosen = inside & close & alike
    chosen[:, 0] = True
    return chosen


def group_ratio(above: Tensor, below: Tensor, chosen: Tensor) -> Tensor:
    """P(G) / Q(G) [m], from the members' probabilities [m, k] under p and q."""
    return (above * chosen).sum(-1) / (below * chosen).sum(-1)


class GroupRule:
    """The rule of one run: the codes, and the deviation meter."""

    def __init__(self, sequence: Sequence, knobs: Knobs, noise: Noise):
        if sequence.codebook is None or len(sequence.codebook) != sequence.vocabulary:
            raise NotSupported("gsd needs a codebook to find similar tokens, and this model has none. Choose sjd.")
        self.sequence, self.knobs, self.noise = sequence, knobs, noise
        self.codes = F.normalize(sequence.codebook.to(sequence.device), dim=-1)
        self.meter, self.iteration = Meter(), 0

    def ratio(self, p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The acceptance rule: p, q [m, V], tokens int64 [m], u [m] -> accepted bool [m], ratios [m]."""
        if choose(p.device, p.dtype).is_triton and self.knobs.half_width:
            ratios = self._ranked_ratios(p, q, tokens)
        else:
            order = p.argsort(dim=-1, stable=True)
            ranks = (order == tokens[:, None]).long().argmax(-1)
            ratios = self._ratios(p, q, order, ranks)
        lenient, n = u.to(p.device, widest_float(p.device)) < ratios, self.sequence.length
        self.iteration += 1
        if not self.meter.begin(self.knobs, self.noise, n, self.iteration) or not len(tokens):
            return lenient, ratios
        strict, own = ratio(p, q, tokens, u)
        decided = self.meter.decide(
            lenient,
            strict,
            lambda i: self.total_variation(p[i : i + 1], q[i : i + 1]),
            acceptance_uniforms(self.noise, n, len(tokens), self.iteration),
        )
        accepted, by = chain_verdicts(*decided, lenient)
        return accepted, torch.where(by, ratios, own)

    def _ratios(self, p: Tensor, q: Tensor, order: Tensor, ranks: Tensor) -> Tensor:
        """P(G) / Q(G) [m], for the tokens of these ranks [m] in distributions [m or 1, V]."""
        k = self.knobs
        members, chosen = group(p, order, ranks, self.codes, k.half_width, k.probability_gap, k.code_distance)
        return self._of_groups(p, q, members, chosen)

    def _ranked_ratios(self, p: Tensor, q: Tensor, tokens: Tensor) -> Tensor:
        """The same for drafts int64 [m] of distributions [m, V], by a kernel that finds their neighbours in rank without sorting."""
        half = int(self.knobs.half_width)
        near = rank_neighbours(p, tokens, half)
        near = torch.cat([near[:, half : half + 1], near[:, :half], near[:, half + 1 :]], 1)  # the draft first
        members = near.clamp(min=0)
        chosen = group_mask(p, members, near >= 0, self.codes, self.knobs.probability_gap, self.knobs.code_distance)
        return self._of_groups(p, q, members, chosen)

    def _of_groups(self, p: Tensor, q: Tensor, members: Tensor, chosen: Tensor) -> Tensor:
        above, below = (probs.expand(len(members), -1).gather(1, members) for probs in (p, q))
        return group_ratio(above, below, chosen)

    def total_variation(self, p: Tensor, q: Tensor) -> float:
        """TV(output of one draft, p), exact, for distributions [1, V]: summed over every token that could have been drawn."""
        order = p.argsort(dim=-1, stable=True)
        ratios = self._ratios(p, q, order, torch.arange(p.shape[-1], device=p.device))
        ratios = torch.zeros_like(ratios).index_copy_(0, order[0], ratios)
        return deviation(p[0], after_one_draw(p[0], q[0], torch.where(q[0] > 0, q[0] * ratios.clamp(max=1), 0))).item()


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass: SJD's loop with another ratio."""
    check_start(knobs, is_exact(knobs), f"half_width={knobs.half_width}", "half_width=0")
    groups = GroupRule(sequence, knobs, noise)
    for step in speculative_jacobi(sequence, knobs, noise, redraw, rule=lambda knobs: groups.ratio, exact=is_exact):
        groups.meter.commit(len(step.tokens))
        step.trace = replace(step.trace, deviation=groups.meter.trace())
        yield step


def is_exact(knobs: Knobs) -> bool:
    """True if every group is its draft alone."""
    return 0 in (knobs.half_width, knobs.probability_gap, knobs.code_distance, knobs.allowed_deviation)


def why(knobs: Knobs) -> str:
    """The sentence of the badge."""
    if is_exact(knobs):
        return "Exact: every group is the draft alone, which is speculative Jacobi decoding."
    return not_exact(knobs, f"a draft is verified together with up to {2 * knobs.half_width - 1} similar tokens{limit_of(knobs)}.")


_GROUPS = {"window": 2, "init": "random", "half_width": 2, "probability_gap": 0.6, "code_distance": 1.9}
_LINE = {"rows": 1, "columns": 3, "vocabulary": 5, "guidance": 1.0}

METHOD = Method(
    name="gsd",
    title="GSD",
    about="Accepts a token if the model finds a group of similar ones likely enough.",
    decode=decode,
    knobs=(WINDOW, INIT, HALF, GAP, FAR, ALLOWED, VERIFY),
    paper="GSD, arXiv 2508.07747",
    exact=is_exact,
    why=why,
    needs=frozenset({"codebook"}),
    common={"window": 4, "half_width": 0},
    cases=(
        Case("GSD-0", "same distribution", {"window": 3, "half_width": 0}, _LINE, ("residual is p",)),
        Case(
            "GSD-LAW", "closed form", _GROUPS, _LINE, ("gsd: one rank higher", "gsd: the distribution of the draft alone"), "grouped window"
        ),
        Case("BUDGET", "closed form", _GROUPS | {"allowed_deviation": 0.01}, _LINE, ("budget: ignored",), "grouped window"),
    ),
)

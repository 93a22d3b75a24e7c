"""XSpecMesh: several heads draft the next tokens of a mesh at once, and the backbone verifies them in one pass.

Paper: XSpecMesh: Quality-Preserving Auto-Regressive Mesh Generation Acceleration via Multi-Head Speculative Decoding, Chen et al.,
arXiv 2507.23777, algorithm 1 and equation 3.
Idea: D heads take the hidden state that predicted the newest token and attend to the point cloud; each drafts one of the D tokens after
it. A pass over these drafts gives the backbone's distributions; the first refused draft is replaced by the backbone's own draw.
Exactness: with the rule `residual`, always: head d's distribution is known when its token is drawn and does not depend on it, so
speculative sampling applies. Not with the others: `threshold` accepts any token more probable than δ, which sharpens the distribution (for
δ >= 1/2 by at most 1 - δ in total variation per position); `top k` and `typical` are other heuristics from the literature.
`allowed_deviation` limits their effect (engine/decoding/deviation.py); without a limit it is not measured, because the fast verdict does
not compute distributions.
Deviations: the paper's random first window is omitted (the first pass proposes nothing); heads run on one row instead of all; the
update of s missing in algorithm 1 is added; drafts obey the grammar of the sequence along their own path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from engine.core import NO_DRAFT, VERIFY, Backbone, Candidate, Case, Draft, Knob, Knobs, Method, Preset, Rows, Sequence, Step
from engine.decoding import policy
from engine.decoding.deviation import ALLOWED, Meter, acceptance_uniforms, chain_verdicts, is_limited, limit_of
from engine.decoding.head_drafts import HEADS, DrawsAhead, propose
from engine.decoding.verdict import (
    JointRead,
    WindowState,
    commit_window,
    correct,
    dense,
    is_fused,
    plain_answer,
    screen,
    shown_draft,
    step_over,
)  # fmt: skip
from engine.noise import ACCEPT, Noise
from engine.rules import deviation, leading, more_probable_than, ratio, top_of, typical
from engine.verify.request import Criterion, Verdict

DEPTH = Knob("depth", "D", 4, 1, 8, 1, help="Number of tokens the heads draft per pass, at most the number of trained heads.")
RULE = Knob(
    "accept", "", "threshold", choices=("threshold", "residual", "top k", "typical"),
    help="threshold: the paper's rule. residual: speculative sampling, exact. top k: the K most probable tokens. typical: Medusa's rule.",
    label="Accept a guess",
    words={"threshold": "likely enough", "residual": "the same chances", "top k": "among the best", "typical": "unsurprising"},
)  # fmt: skip
THRESHOLD = Knob(
    "accept_probability", "δ", 0.5, 0.05, 0.95, 0.01, help="A draft is accepted if its probability under the backbone exceeds this.",
    when=("accept", "threshold"),
    label="Accept above",
)  # fmt: skip
JUDGE = Knob(
    "judge", "", "raw", choices=("raw", "warped"),
    when=("accept", "threshold", "top k", "typical"),
    help="Distribution that the rule uses. raw: the softmax of the logits (equation 3). warped: the one that tokens are sampled from.",
    label="Probabilities used",
)  # fmt: skip
TOP = Knob(
    "accept_top", "Kₐ", 1, 1, 10, 1, help="Number of most probable tokens that are accepted.", when=("accept", "top k"),
    label="Accept the top few",
)  # fmt: skip
FLOOR = Knob(
    "typical_floor", "ε", 0.3, 0.01, 0.9, 0.01, help="A token more probable than this is always accepted.", when=("accept", "typical")
)
DRAFTS = Knob(
    "drafts", "", "independent", choices=("independent", "most probable", "tree", "tree pruned"),
    help="How drafts are drawn: independently from each head, the most probable token of each, or a path of the tree of each head's Kₛ "
    "best tokens.",
    label="Guesses of the heads",
)  # fmt: skip
BUDGET = replace(ALLOWED, when=("accept", "threshold", "top k", "typical"))
TREE_TOP = Knob("tree_top", "Kₛ", 3, 1, 4, 1, help="Number of tokens per head in the tree.", when=("drafts", "tree", "tree pruned"))

TYPICAL_SCALE = 0.09  # α of Medusa's code


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass."""
    policy.check_start(knobs, is_exact(knobs), f"accept={knobs.accept}", "accept=residual")
    heads = drafter.of(knobs.heads)
    guess = heads.start(sequence)
    draft, meter, iteration = NO_DRAFT, Meter(), 0
    while not sequence.done:
        n, exact = sequence.length, is_exact(knobs)
        seeded = policy.matches_seed(knobs, exact)
        also = DrawsAhead(sequence, knobs, noise, iteration + 1, seeded, min(heads.depth, knobs.depth))
        if exact:
            window, step = step_over(sequence, draft, noise, iteration, seeded, also=also)
        elif is_limited(knobs):
            meter.begin(knobs, noise, n, iteration)
            window, step = commit_window(sequence, within_budget(sequence.forward(draft), draft, knobs, meter, noise, n, iteration))
            meter.commit(len(step.tokens))
            step.trace = replace(step.trace, deviation=meter.trace())
        else:
            window, step = commit_window(sequence, judge_relaxed(sequence.forward(draft), draft.tokens, knobs, noise, n, iteration, also))
        rows = window.rows
        iteration += 1
        if not sequence.done:
            count = min(heads.depth, knobs.depth, sequence.limit - sequence.length - 1)
            # the row that predicted the token after the accepted drafts: h at s* - 1 in the paper
            draft = NO_DRAFT
            if count > 0 and also.drawn is not None:
                draft = also.draft(count)
            elif count > 0:
                draft = propose(guess(rows, window.a, count), sequence, knobs, noise, iteration, seeded, rows.host is not None)
            step.draft = shown_draft(sequence, draft.tokens)
        yield step


def replacement(rows: Rows, a: int, noise: Noise, n: int) -> int:
    """The token after the accepted drafts if the rule is not exact: drawn from p itself, not from a residual (algorithm 1, line 9)."""
    return plain_answer(rows, a, noise, n + a)


def judged_probs(rows: Rows, size: int, is_raw: bool) -> Tensor:
    """The distributions [size, V] that a rule uses: softmax of the raw logits (eq. 3), or those that tokens are sampled from."""
    return torch.softmax(rows.logits[0, :size].float(), -1) if is_raw else rows.probs(0, size)


def judge_relaxed(rows: Rows, tokens: Tensor, knobs: Knobs, noise: Noise, n: int, iteration: int, also: JointRead) -> WindowState:
    """Judges drafts int64 [m] by a rule that is not exact; the window has only the rows that are still needed. also : see `judge`"""
    accepts, limit = RULES[knobs.accept]
    criterion = Criterion(accepts, float(knobs.values[limit]), knobs.judge == "raw")
    if is_fused(rows):
        return screen(rows, tokens, criterion, noise, n, iteration, also)
    p = judged_probs(rows, len(tokens), criterion.raw)
    verdict = Verdict(accepts(p, tokens.to(p.device), torch.tensor(criterion.limit, dtype=torch.float64)))
    a = leading(verdict.accepted)
    rows = rows.first(a + 1)
    return WindowState(rows, tokens, None, noise, n, iteration, verdict, a, replacement(rows, a, noise, n))


def within_budget(rows: Rows, draft: Draft, knobs: Knobs, meter: Meter, noise: Noise, n: int, iteration: int) -> WindowState:
    """Judges a draft by the rule as far as the budget allows, else by speculative sampling; each has its own replacement."""
    size = len(draft.tokens)
    tokens, p = draft.tokens.to(rows.place[0]), rows.p
    draft_probs = p[:0] if not size else dense(draft.q, p.device)
    accepts, limit = RULES[knobs.accept]
    least, rule_probs = torch.tensor(float(knobs.values[limit]), dtype=torch.float64), judged_probs(rows, size, knobs.judge == "raw")
    lenient = accepts(rule_probs, tokens, least)
    strict, ratios = ratio(p[:size], draft_probs, tokens, noise.uniform(ACCEPT, n, size, iteration))
    by, a = meter.decide(
        lenient,
        strict,
        lambda i: total_variation(p[i], draft_probs[i], rule_probs[i], accepts, least),
        acceptance_uniforms(noise, n, size, iteration),
    )
    verdicts, relaxed = chain_verdicts(by, a, lenient)
    if a < len(by) and not by[a]:
        token = correct(rows, draft_probs, None, a, size, noise, n, iteration)
    else:
        token = replacement(rows, a, noise, n)
    verdict = Verdict(verdicts, torch.where(relaxed, lenient.to(ratios), ratios))
    return WindowState(rows, tokens, draft_probs, noise, n, iteration, verdict, a, token)


def total_variation(p: Tensor, q: Tensor, rule_probs: Tensor, accepts: Callable[[Tensor, Tensor, Tensor], Tensor], least: Tensor) -> float:
    """The deviation from p [V] if a draft from q [V] is accepted by the rule under `rule_probs` [V], else replaced by a draw from p."""
    support = q.nonzero().flatten()
    accepted = accepts(rule_probs.expand(len(support), -1), support, least).to(q) * q[support]
    probs = (1 - accepted.sum()) * p.to(q)
    return deviation(p, probs.index_add(0, support, accepted)).item()


def medusa_typical(p: Tensor, tokens: Tensor, floor: Tensor) -> Tensor:
    """Medusa's rule with its scale; shapes as in `typical`."""
    return typical(p, tokens, floor, TYPICAL_SCALE)


# distributions [m, V], drafts int64 [m], a number [] -> accepted bool [m]; and the knob that is the number
RULES: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], str]] = {
    "threshold": (more_probable_than, "accept_probability"),
    "top k": (top_of, "accept_top"),
    "typical": (medusa_typical, "typical_floor"),
}


def is_exact(knobs: Knobs) -> bool:
    """True for speculative sampling, and where the budget allows nothing else."""
    return knobs.accept == "residual" or knobs.allowed_deviation == 0


def _why(knobs: Knobs) -> str:
    if is_exact(knobs):
        return "Exact: every draft is verified against the distribution it was drawn from (speculative sampling)."
    if knobs.accept == "threshold":
        least = f"δ = {knobs.accept_probability:g}"
        return policy.not_exact(
            knobs, f"every draft above {least} is accepted, however it was drawn; this favours probable tokens{limit_of(knobs)}."
        )
    return policy.not_exact(knobs, f"the rule '{knobs.accept}' accepts probable drafts, however they were drawn{limit_of(knobs)}.")


_EXACT = {"accept": "residual"}
_LINE = {"rows": 1, "columns": 3, "vocabulary": 4, "guidance": 1.0, "temperature": 0.7}


def candidates(backbone: Backbone) -> list[Candidate]:
    """The exact preset, with each kind of heads that the model has."""
    kinds = backbone.drafter("mesh_heads").kinds
    return [("xspecmesh_exact", {"heads": kind, "depth": depth}) for kind in kinds for depth in (2, 3, 4, 5, 6)]


METHOD = Method(
    name="xspecmesh",
    title="XSpecMesh",
    about="Small extra heads guess the next tokens of a mesh; the model keeps the likely ones.",
    decode=decode,
    knobs=(DEPTH, RULE, THRESHOLD, JUDGE, BUDGET, HEADS, DRAFTS, TREE_TOP, TOP, FLOOR, VERIFY),
    paper="XSpecMesh, Chen et al., arXiv 2507.23777",
    exact=is_exact,
    why=_why,
    needs=frozenset({"mesh_heads"}),
    drafters=("mesh_heads",),
    common=_EXACT,
    presets=(
        Preset(
            "xspecmesh_exact", "The same heads, checked so that every mesh is as likely as with plain decoding.",
            {"accept": "residual", "drafts": "most probable"},
        ),
    ),
    candidates=candidates,
    unmeasured="xspecmesh_exact",
    cases=(
        Case("HEADS-EXACT independent", "same distribution", _EXACT, mutants=("residual is p", "heads: one-hot distribution")),
        Case("HEADS-EXACT most probable", "same distribution", _EXACT | {"drafts": "most probable"}, mutants=("residual is p",)),
        Case("HEADS-EXACT tree", "same distribution", _EXACT | {"drafts": "tree", "tree_top": 2}, mutants=("heads: full distribution",)),
        Case("HEADS-EXACT tree pruned", "same distribution", _EXACT | {"drafts": "tree pruned", "tree_top": 2}, mutants=("residual is p",)),
        Case("SEED-EXACT", "same tokens", _EXACT | {"verify": "match seed"}, mutants=("iteration in the noise",)),
        *(
            Case(
                f"THR-LAW {least}", "closed form", {"accept_probability": least}, _LINE,
                ("heads: residual behind a threshold",), "threshold",
            )
            for least in (0.3, 0.5, 0.8)
        ),
        Case(
            "BUDGET", "closed form", {"accept_probability": 0.2, "allowed_deviation": 0.05}, _LINE, ("budget: ignored",), "threshold"
        ),
        Case(
            "SCR-PERFECT", "full spans", {"accept_probability": 0.5}, {"rows": 1, "columns": 13, "vocabulary": 5, "counting": True},
            mutants=("heads: row before", "heads: shifted by one"),
        ),
        Case("THRESHOLD", "not exact", {"accept_probability": 0.5}),
    ),
)  # fmt: skip

"""Cross-Regression: each pass runs two streams of one network; the control stream verifies drafts, the predictive stream proposes them.

Paper: Unifying Autoregressive and Discrete Diffusion Language Modeling via Cross-Regressive Decoding, Abulkhanov et al., algorithms 1, 2.
Idea: a pass has control rows (the pending token and the drafts, frozen weights), which give the distribution p of every draft, and
predictive rows (the same weights with an adapter), which read the drafts followed by noise and give distributions q of later positions.
A prefix of the drafts is accepted by log ratios. Drafts that were not reached are carried or redrawn, and are the next pass's input.
Exactness: at Θ = 0 and β = 0 with the consistent rule, always: every draft keeps the full distribution it was drawn from, which depends on
earlier positions only, and the residual is taken from it (speculative sampling). Θ > 0 accepts with min(1, exp(Θ sqrt(k/γ)) p/q), which
changes the distribution; β > 0 mixes in the energies of earlier drafts. The paper's literal rule is not exact at any setting. With
`verify=block` drafts that were not reached are redrawn, whatever `refresh` says (`decoding/policy.py`).
Deviations: u is uniform in (0, 1) and Θ = -τ is a tolerance, the only reading in which 0 is exact and larger values accept more, as in the
paper's tables. A pass verifies only drafts that it has read (algorithm 1 also verifies the new ones, whose rows read the old buffer).
Residuals use the cached distribution, not a new one. A full acceptance adds a token from the last row. A pass has γ predictive rows, so
after `a` acceptances γ - a positions are drafted. `redraw` and `coupled` are ours: they refine drafts as a Jacobi window does. Sequential
mode also takes a token from its drafting pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from engine.core import NO_DRAFT, VERIFY_BLOCK, Case, Draft, Knob, Knobs, Method, Rows, Sequence, Step
from engine.decoding import policy
from engine.decoding.deviation import ALLOWED, Meter, acceptance_uniforms, chain_verdicts, limit_of
from engine.decoding.masked_draws import MaskedDraws, draw_under_masks
from engine.decoding.verdict import commit_window, is_fused, judge, judge_block, shown_draft
from engine.errors import NotSupported
from engine.kernels.energy_scan import energy_scan
from engine.machine import widest_float
from engine.noise import DRAFTER, INITIAL, Noise
from engine.rules import CONSISTENT, LITERAL, EnergyRule, after_energy, deviation, ramp, ratio
from engine.sampling import best_of, draw, draw_gumbel
from engine.trace import RoundTrace, Trace

HORIZON = Knob(
    "horizon", "γ", 16, 1, 64, 1, "log", "Number of predictive rows per pass, and the most drafts pending after it.", label="Tokens ahead"
)
MODE = Knob(
    "mode", "", "joint", choices=("joint", "sequential"), live=False,
    help="joint: every pass verifies drafts and makes new ones. sequential: one pass drafts, the next one verifies.",
)  # fmt: skip
REFRESH = Knob(
    "refresh", "", "coupled", choices=("carry", "redraw", "coupled"), live=False, when=("mode", "joint"),
    help="Drafts that were not reached. carry: kept with their distribution, as in the paper. redraw: redrawn from the newest "
    "distribution. coupled: redrawn with as few changes as possible.",
    label="Leftover guesses", words={"carry": "keep", "redraw": "guess again", "coupled": "few changes"},
)  # fmt: skip
RULE = Knob(
    "rule", "", "consistent", choices=("consistent", "paper"),
    help="consistent: log u - Θ sqrt(k/γ), exact at Θ = 0. paper: algorithm 2 as printed, never exact.",
    label="Rule", words={"consistent": "exact at 0", "paper": "as printed"},
)  # fmt: skip
TOLERANCE = Knob(
    "energy_tolerance", "Θ", 0.0, 0.0, 16.0, 0.25, help="Tolerated shortfall of a draft's log p below log q, in nats.",
    label="Tolerated shortfall",
)  # fmt: skip
SMOOTHING = Knob(
    "energy_smoothing", "β", 0.0, 0.0, 0.9, 0.05, help="Weight of earlier drafts in the moving average of energies.",
    label="Memory of the rule",
)  # fmt: skip

MASK = Knob(
    "mask", "", "causal", choices=("causal", "both ways"), live=False,
    help="Which predictive rows each of them sees. causal: earlier ones, with the model's adapter. both ways: all, with the adapter "
    "trained for this, if the model has one.",
)  # fmt: skip

RULES: dict[str, EnergyRule] = {"consistent": CONSISTENT, "paper": LITERAL}


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass. State: the drafts with the distributions they were drawn from, and the deviation meter."""
    drafter = with_mask(drafter, knobs)
    if knobs.refresh == "coupled" and knobs.mode == "joint" and not drafter.causal:  # a draft would influence its own next distribution
        raise NotSupported("refresh=coupled needs a causal drafter, and this one is bidirectional. Set refresh=redraw.")
    read = drafter.start(sequence)
    tokens = torch.empty(0, dtype=torch.int64, device=sequence.device)
    draft_probs = torch.empty(0, sequence.vocabulary, dtype=noise.dtype, device=sequence.device)
    meter, iteration = Meter(), 0
    while not sequence.done:
        seeded = policy.matches_seed(knobs, is_unrelaxed(knobs))
        n = sequence.length
        tokens, draft_probs = tokens[: knobs.horizon], draft_probs[: knobs.horizon]
        m = len(tokens)
        drafts = knobs.mode == "joint" or m == 0
        ahead = max(0, min(knobs.horizon, sequence.limit - n - 2)) if drafts else 0
        rows = sequence.forward(dual_draft(tokens, ahead, sequence, noise, iteration, drafter.causal))  # algorithm 1, line 3
        control = rows.first(m + 1)
        energies = Energies(meter, knobs, noise, n, iteration)
        fused = is_unrelaxed(knobs) and is_fused(control)  # the kernel's rule is that of Θ = β = 0
        draws = PredictedDraws(lambda rows=rows, m=m: read(rows, m + 1), sequence, noise, n + 1, iteration + 1, is_coupled(knobs, seeded))
        as_block = policy.verifies_block(knobs) and is_unrelaxed(knobs)
        if as_block:
            window = judge_block(control, tokens, draft_probs, noise, n, iteration, draws if fused else None)
        else:
            rule = None if fused else energies.accept
            window = judge(control, tokens, draft_probs, noise, n, iteration, seeded, rule, also=draws)  # lines 6 to 12
        if fused or as_block:
            energies.take(window.ratios, window.coins)
        window, step = commit_window(sequence, window)
        a, step.trace = window.a, energies.record(step.trace, window.a, sequence.length - n)
        iteration += 1
        if not sequence.done:
            tokens, draft_probs = refill(
                read(rows, m + 1)[a:], tokens[a + 1 :], draft_probs[a + 1 :], sequence, knobs, noise, iteration, seeded, draws.drawn
            )
            step.draft = shown_draft(sequence, tokens)
        yield step


def with_mask(drafter: Any, knobs: Knobs) -> Any:
    """The stream with the visibility that the knob `mask` sets; raises NotSupported if the model has none."""
    if knobs.mask == "causal" or not drafter.causal:  # a model's only adapter may be the one that sees both ways
        return drafter
    if drafter.both_ways is None:
        raise NotSupported("mask=both ways needs its own adapter. Train it: python launch.py train predictive-stream --both-ways.")
    return drafter.both_ways


def dual_draft(tokens: Tensor, ahead: int, sequence: Sequence, noise: Noise, iteration: int, causal: bool) -> Draft:
    """The Draft of a pass of both streams: the drafts int64 [m] as control rows, then `ahead` predictive rows that read them and noise.

    A control row attends to earlier control rows. A predictive row attends to committed tokens and to earlier (or all) predictive rows.
    The row at position i gives the distribution of position i + 1. The Draft has no q, because noise has none.
    """
    if ahead == 0:
        return Draft(tokens) if len(tokens) else NO_DRAFT
    n, m = sequence.length, len(tokens)
    if ahead <= m:
        nodes = [tokens, tokens[:ahead]]
    else:
        uniform = noise.uniform if tokens.device == sequence.device else noise.host_uniform
        rest = uniform(INITIAL, n + m, ahead - m, iteration)
        nodes = [tokens, tokens, (rest * sequence.vocabulary).long().to(tokens.device)]
    parents, after, visible, predictive = shape_of(m, ahead, causal)
    shared_rows = min(m, ahead) if causal else 0
    return Draft(torch.cat(nodes), parents, positions=after + n, visible=visible, predictive=predictive, shared_rows=shared_rows)


@lru_cache(maxsize=256)
def shape_of(m: int, ahead: int, causal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The shape of a pass of both streams: parents, positions after the committed tokens, visibility, and which rows are predictive.
    Passes of one shape share these tensors, because nothing changes them."""
    with torch.inference_mode(False):
        visible = torch.zeros(1 + m + ahead, 1 + m + ahead, dtype=torch.bool)
        visible[:, 0] = True
        visible[: m + 1, : m + 1] = torch.ones(m + 1, m + 1, dtype=torch.bool).tril()
        among = torch.ones(ahead, ahead, dtype=torch.bool)
        visible[m + 1 :, m + 1 :] = among.tril() if causal else among
        parents, places = torch.tensor([*range(-1, m - 1), *[-1] * ahead]), torch.tensor([*range(m), *range(ahead)])
        return parents, places, visible, torch.arange(m + ahead) >= m


def refill(
    logits: Tensor, tokens: Tensor, draft_probs: Tensor, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int, seeded: bool,
    drawn: MaskedDraws | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The next drafts int64 [k] and their distributions [k, V]: unreached drafts, kept or redrawn, then new ones.

    logits : [k, V], guided, of the positions after the committed tokens; tokens [j], draft_probs [j, V] : the drafts not reached, j <= k.
    drawn : draws under every mask for the same positions, which come last; then the drafts are on the host
    """
    n, count = sequence.length, len(logits)
    carries = knobs.mode == "joint" and knobs.refresh == "carry" and not policy.verifies_block(knobs)
    reused = min(count, len(tokens)) if carries else 0
    coupled = is_coupled(knobs, seeded)
    # lemma b: a draft kept regardless of its value has the distribution it was drawn from
    new = [draft_probs[:reused]] if reused else []
    if drawn is not None:
        kept, total = tokens[:reused].tolist(), len(drawn.probs)
        path, probs = drawn.follow(sequence, kept, total - count + reused, total)
        return torch.tensor([*kept, *path], dtype=torch.int64), torch.cat([*new, probs])
    if sequence.state([]) is None:  # no draft changes the distributions of later ones, so nothing is read
        probs = sequence.probs_after(logits[reused:], [])
        some = tokens[:0] if reused == count else redraw(probs, noise, n + reused, iteration, coupled)
        return torch.cat([tokens[:reused], some]), torch.cat([*new, probs]) if new else probs
    u = noise.uniform(DRAFTER, n, count, iteration)
    path_tokens: list[int] = tokens[:reused].tolist()
    guess = best_of(logits).tolist()  # earlier drafts change a distribution through the grammar state, which these predict
    while (start := len(path_tokens)) < count:
        paths = [path_tokens + guess[start:j] for j in range(start, count)]
        probs = sequence.probs_after(logits[start:], *paths)
        some = draw_gumbel(probs.log(), noise.gumbel(n + start, len(probs))) if coupled else draw(probs, u[start:])
        for token, path in zip(some.tolist(), paths, strict=True):
            if path_tokens != path and sequence.state(path_tokens) != sequence.state(path):
                break  # the remaining distributions need another state
            path_tokens.append(token)
        new.append(probs[: len(path_tokens) - start])
    drafts = torch.tensor(path_tokens, dtype=torch.int64, device=sequence.device)
    return drafts, new[0] if len(new) == 1 else torch.cat([draft_probs[:0], *new])


def is_coupled(knobs: Knobs, seeded: bool) -> bool:
    """True if drafts are drawn with the noise of their position."""
    return seeded or (knobs.mode == "joint" and knobs.refresh == "coupled" and not policy.verifies_block(knobs))


def redraw(probs: Tensor, noise: Noise, start: int, iteration: int, coupled: bool) -> Tensor:
    """Draws of consecutive positions from `start` on, int64 [k], from distributions [k, V]."""
    if coupled:
        return draw_gumbel(probs.log(), noise.gumbel(start, len(probs)))
    return draw(probs, noise.uniform(DRAFTER, start, len(probs), iteration))


class PredictedDraws:
    """Draws from all predictive rows of a pass under every mask of the grammar, which the host reads with the verdict. They need not wait
    for it: a row's position does not depend on it. drawn : None without masks, or if the verdict is not fused"""

    def __init__(self, guess: Callable[[], Tensor], sequence: Sequence, noise: Noise, start: int, iteration: int, coupled: bool):
        """guess : guided logits [k, V] of positions from `start` on"""
        self.guess, self.sequence, self.noise, self.start, self.iteration, self.coupled = guess, sequence, noise, start, iteration, coupled
        self.drawn: MaskedDraws | None = None

    def compute(self, rows: Rows, pair: Tensor) -> Tensor | None:
        """See `JointRead`."""
        if self.sequence.masks is None:
            return None
        probs = self.sequence.probs_by_mask(self.guess())
        gumbel = self.noise.gumbel(self.start, len(probs)) if self.coupled else None
        self.drawn = draw_under_masks(probs, self.noise.uniform(DRAFTER, self.start, len(probs), self.iteration), gumbel)
        return self.drawn.tokens.flatten()

    def take(self, numbers: list[int]) -> None:
        """See `JointRead`."""
        self.drawn.take(numbers)


class Energies:
    """Algorithm 2 on the drafts of one pass, as far as the budget allows; then the fields of the trace.

    levels, least : the smoothed energies [m] and the thresholds [m]
    """

    def __init__(self, meter: Meter, knobs: Knobs, noise: Noise, position: int, iteration: int):
        self.meter, self.knobs, self.noise, self.position, self.iteration = meter, knobs, noise, position, iteration

    def accept(self, p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """The verdicts bool [m] on drafts and their acceptance probabilities [m]; arguments as in `decoding.verdict.Rule`."""
        rule, m = rule_of(self.knobs), len(tokens)
        accepted, self.levels, self.least = energy_scan(p, q, tokens, u, *rule)
        _, tolerance, horizon, form = rule
        chance = form.chance(self.levels, ramp(self.levels, horizon), tolerance)
        if is_unrelaxed(self.knobs):
            return accepted, chance
        self.meter.begin(self.knobs, self.noise, self.position, self.iteration, always=True)
        away = deviation(p, after_energy(p, q, tokens, self.levels, *rule)).tolist()
        exact, _ = ratio(p, q, tokens, u)
        uniforms = acceptance_uniforms(self.noise, self.position, m, self.iteration)
        return chain_verdicts(*self.meter.decide(accepted, exact, away.__getitem__, uniforms), accepted)[0], chance

    def take(self, ratios: Tensor, coins: Tensor) -> None:
        """Takes the ratios [m] of a verdict by speculative sampling, or the probabilities [m] with which a block reaches the drafts.

        coins : the uniform numbers of the drafts [m]
        """
        self.levels, self.least = ratios.to(widest_float(ratios.device)).log().clamp(min=-30), coins.log()

    def record(self, trace: Trace, a: int, count: int) -> Trace:
        """The trace of a pass that accepted `a` drafts and committed `count` tokens, with its energies, thresholds and deviation."""
        verified = min(count, len(self.levels))
        trace = replace(trace, energy=self.levels[:verified], threshold=self.least[:verified], round=RoundTrace(self.levels, self.least, a))
        if is_unrelaxed(self.knobs):
            return trace
        self.meter.commit(count)
        return replace(trace, deviation=self.meter.trace())


def rule_of(knobs: Knobs) -> tuple[float, float, int, EnergyRule]:
    """β, Θ, γ and the form of the rule; speculative sampling if no deviation is allowed."""
    if is_unrelaxed(knobs):
        return 0.0, 0.0, knobs.horizon, CONSISTENT
    return knobs.energy_smoothing, knobs.energy_tolerance, knobs.horizon, RULES[knobs.rule]


def is_unrelaxed(knobs: Knobs) -> bool:
    """True if the rule is speculative sampling, or has no budget to deviate from it."""
    if knobs.allowed_deviation == 0:
        return True
    return knobs.rule == "consistent" and knobs.energy_tolerance == 0 and knobs.energy_smoothing == 0


def why(knobs: Knobs) -> str:
    """The sentence of the badge."""
    if is_unrelaxed(knobs):
        return "Exact: every draft is verified against the distribution it was drawn from, and replaced from the residual if refused."
    if knobs.rule == "paper":
        reason = "the rule as printed accepts where p >= q, or nearly so, and the residual does not restore the lost probability"
    elif knobs.energy_tolerance > 0:
        reason = f"a draft is accepted even if its log p is up to Θ = {knobs.energy_tolerance:g} nats below log q"
    else:
        reason = f"with β = {knobs.energy_smoothing:g} the energies of earlier drafts influence the acceptance of a draft"
    return policy.not_exact(knobs, f"{reason}{limit_of(knobs)}.")


_SMALL = {"horizon": 3}
_LINE = {"rows": 1, "columns": 5}
_FOUR = {"rows": 1, "columns": 4}

METHOD = Method(
    name="cross_regression",
    title="Cross-Regression",
    about="The model itself predicts tokens further ahead; an energy decides how many to keep.",
    decode=decode,
    knobs=(HORIZON, TOLERANCE, SMOOTHING, MODE, REFRESH, MASK, RULE, ALLOWED, VERIFY_BLOCK),
    paper="Cross-Regression, Abulkhanov et al.",
    exact=is_unrelaxed,
    why=why,
    needs=frozenset({"predictive_stream"}),
    drafters=("predictive_stream",),
    common=_SMALL,
    candidates=lambda backbone: [("cross_regression", {"horizon": horizon}) for horizon in (4, 16)],
    cases=(
        Case(
            "CR-EXACT carry", "same distribution", _SMALL | {"refresh": "carry"}, _LINE,
            mutants=("stream: literal rule", "stream: residual of a fresh distribution", "stream: new drafts verified at once",
                     "stream: new distribution of a carried draft"),
        ),
        Case(
            "CR-EXACT both ways", "same distribution", _SMALL | {"refresh": "redraw"}, _LINE | {"bidirectional": True},
            mutants=("residual is p",),
        ),
        Case(
            "CR-EXACT mask", "same distribution", _SMALL | {"refresh": "redraw", "mask": "both ways"}, _LINE, mutants=("residual is p",),
        ),
        Case("CR-EXACT coupled", "same distribution", _SMALL | {"refresh": "coupled"}, _LINE, mutants=("residual is p",)),
        *(
            Case(
                f"BLOCK-EXACT {mode}", "same distribution", _SMALL | {"verify": "block", "mode": mode}, _FOUR,
                mutants=("block: residual is p",),
            )
            for mode in ("joint", "sequential")
        ),
        Case("CR-EXACT sequential", "same distribution", _SMALL | {"mode": "sequential"}, _FOUR, mutants=("residual is p",)),
        Case(
            "CR-LAW", "closed form", {"horizon": 2, "refresh": "carry", "energy_tolerance": 1.0}, _FOUR,
            mutants=("stream: tolerance from zero",), closed_form="energy tolerance",
        ),
        Case(
            "BUDGET", "closed form", {"horizon": 2, "refresh": "carry", "energy_tolerance": 2.0, "allowed_deviation": 0.05}, _FOUR,
            mutants=("budget: ignored",), closed_form="energy tolerance",
        ),
        Case("LITERAL", "not exact", _SMALL | {"refresh": "carry", "rule": "paper"}, _LINE),
        Case("SEED-EXACT", "same tokens", _SMALL | {"verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)  # fmt: skip

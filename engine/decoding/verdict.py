"""The verification of a window after a pass: verdicts, the corrected token, and the Step that records both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Chosen, Rows, Step
from engine.kernels import verify as kernel
from engine.kernels.cpu.verdict import Window
from engine.kernels.fixed_verdict import Criterion, Question
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.rules import leading, matches, probability_of, ratio
from engine.sampling import draw, draw_gumbel, entropy, residual
from engine.trace import Trace, Values


@dataclass
class Outcome:
    """Verdicts on drafts. accepted : bool [m]; ratios : p/q [m] or None"""

    accepted: Tensor
    ratios: Tensor | None

    @property
    def fused(self) -> kernel.Verdicts | Window | None:
        """The kernel's verdicts; None if it has not made them."""
        return None


@dataclass(slots=True)
class Verified:
    """The input of a refresh after a pass: the old window and its verdicts.

    Why carrying drafts is exact. Let the draft x of a position have distribution q given everything that happened at earlier positions.
    (a) Accepting it with probability min(1, p(x)/q(x)), and drawing from the residual otherwise, gives a token with distribution p.
    (b) Kept regardless of its value, x still has distribution q. (c) Kept with probability k(x), else redrawn from r, it has distribution
    q k + (1 - sum q k) r, which must then be carried. (d) With k = min(1, r/q) and a redraw from r's residual, that distribution is r.

    tokens : int64 [m]; laws : [m, V] or None (match seed keeps none unless the refresh needs them)
    outcome : independent verdicts (also meaningful after the first rejection), and what a kernel has drawn for every row already
    rows   : of the pass; row i is the distribution of position start+i, i = 0..m
    """

    start: int
    tokens: Tensor
    laws: Tensor | None
    outcome: Outcome
    rows: Rows
    noise: Noise
    iteration: int

    @property
    def accepted(self) -> Tensor:
        """bool [m]"""
        return self.outcome.accepted

    @property
    def ratios(self) -> Tensor | None:
        """p/q [m] or None"""
        return self.outcome.ratios

    @property
    def fused(self) -> kernel.Verdicts | Window | None:
        """The kernel's verdicts, if it has verified the window."""
        return self.outcome.fused


# (p [m, V], q [m, V], tokens int64 [m], u [m]) -> accepted bool [m] and what u was compared with [m]
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def verify(
    rows: Rows, tokens: Tensor, laws: Tensor | None, noise: Noise, n: int, iteration: int, seeded: bool, rule: Rule | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Verdicts bool [m], ratios [m] or None, and the seeded answers [m+1] or None. Default rule: speculative sampling."""
    size = len(tokens)
    answers = draw_gumbel(rows.scores, noise.gumbel(n, size + 1)) if seeded else None
    if laws is None:
        return matches(tokens, answers[:size]), None, answers
    accepted, ratios = (rule or ratio)(rows.p[:size], laws, tokens, noise.uniform(ACCEPT, n, size, iteration))  # eq. 3
    return (matches(tokens, answers[:size]) if seeded else accepted), ratios, answers


def correct(rows: Rows, laws: Tensor | None, answers: Tensor | None, a: int, size: int, noise: Noise, n: int, iteration: int) -> int:
    """The token after the accepted prefix: the seeded answer, a draw from the residual, or a draw from the last row."""
    if answers is not None:
        return answers[a].item()
    if a == size:
        return draw(rows.p[size:], noise.uniform(DRAW, n + size, 1, iteration)).item()
    left = residual(rows.p[a : a + 1], laws[a : a + 1])
    return draw(left, noise.uniform(RESIDUAL, n + a, 1, iteration)).item()


@dataclass
class Judged(Outcome):
    """What a pass decided: its verdicts, the length `a` of the accepted prefix, and the token after it.

    answers : the seeded ones [m+1] or None
    chances : the acceptance probability of each draft [m]; entropies : [m+1], in nats; both None where they have not been computed
    """

    answers: Tensor | None
    a: int
    token: int
    chances: Values | None = None
    entropies: Values | None = None
    fused: kernel.Verdicts | Window | None = None

    @property
    def top(self) -> Values | None:
        """The probability of each row's most probable token [m+1]; None where it has not been found."""
        return None if self.fused is None else self.fused.top

    @property
    def probable(self) -> Values | None:
        """The probability of each draft [m] under the model; None where it has not been found."""
        return None if self.fused is None else self.fused.chances


class Settled(Judged):
    """The same of a window that the function for CPUs has settled. Verdicts are made on first use, and what a step records are lists, up to
    the token after the accepted drafts: both cost less than tensors."""

    top: Values = ()  # not the properties of `Judged`
    probable: Values = ()

    def __init__(self, window: Window, seeded: bool):
        """Raises FloatingPointError for a row that cannot be drawn from."""
        self.fused, self.seeded = window, seeded
        self.a, self.token = kernel.checked(*window.settled)
        self.entropies, self.probable, self.top, self.chances = window.listed()

    @property
    def accepted(self) -> Tensor:
        """As in `Judged`."""
        return self.fused.accepted

    @property
    def ratios(self) -> Tensor | None:
        """As in `Judged`."""
        return self.fused.ratios

    @property
    def answers(self) -> Tensor | None:
        """As in `Judged`."""
        return self.fused.answers if self.seeded else None


def judge(
    rows: Rows,
    tokens: Tensor,
    laws: Tensor | Chosen | None,
    noise: Noise,
    n: int,
    iteration: int,
    seeded: bool,
    rule: Rule | None = None,
    store: bool = True,
    brief: bool = False,
) -> Judged:
    """Verifies a window and finds the token after the accepted prefix: on a GPU in one kernel, with one read: two numbers and the drafts.
    On a CPU the same is done in one compiled function.

    store : whether the distributions will be needed; if not, a kernel does not write them
    brief : nothing will be asked about the rows after the first refusal, so they may be left out
    """
    if rule is None and (window := windowed(rows, tokens, laws, noise, n, iteration, seeded, store, brief)) is not None:
        return Settled(window, seeded)
    size, laws = len(tokens), laws.dense() if isinstance(laws, Chosen) else laws
    if not is_fused(rows):
        tokens = tokens.to(rows.place[0])
        accepted, ratios, answers = verify(rows, tokens, laws, noise, n, iteration, seeded, rule)
        a = leading(accepted)
        return Judged(accepted, ratios, answers, a, correct(rows, laws, answers, a, size, noise, n, iteration))
    found = fused(rows, tokens, laws, noise, list(range(n, n + size + 1)), iteration, seeded, store or rule is not None)
    accepted, ratios, pair = found.accepted, found.ratios, found.pair
    if rule is not None and laws is not None:
        relaxed, ratios = rule(rows.p[:size], laws, tokens, noise.uniform(ACCEPT, n, size, iteration))
        accepted, pair = (accepted, pair) if seeded else (relaxed, None)
    a, token = kernel.settled(kernel.settle(found, accepted, seeded) if pair is None else pair, rows.drafted)
    chance = found.chances if ratios is None else ratios.clamp(max=1)
    return Judged(accepted, ratios, found.answers if seeded else None, a, token, chance, found.entropy, found)


def screen(rows: Rows, tokens: Tensor, criterion: Criterion, noise: Noise, n: int, iteration: int) -> Judged:
    """The same by a rule that looks at the model's distributions alone, for rows that the kernel verifies. The token after the accepted
    drafts is the row's answer."""
    size = len(tokens)
    found = fused(rows, tokens, None, noise, list(range(n, n + size + 1)), iteration, True, not criterion.raw, criterion)
    accepted, pair = found.accepted, found.pair
    if pair is None:
        p = torch.softmax(rows.logits[0, :size].float(), -1) if criterion.raw else found.p[:size]
        accepted = criterion.accepts(p, tokens.to(p.device), torch.tensor(criterion.limit, dtype=torch.float64))
        pair = kernel.settle(found, accepted, True)
    a, token = kernel.settled(pair, rows.drafted)
    return Judged(accepted, None, found.answers, a, token, found.chances, found.entropy, found)


def windowed(
    rows: Rows, tokens: Tensor, laws: Tensor | Chosen | None, noise: Noise, n: int, iteration: int, seeded: bool, store: bool,
    brief: bool = False,
) -> Window | None:  # fmt: skip
    """Verdicts, draws and what follows from them, by one call of the function that was prepared for the run, at positions n, n+1, ... With
    `store` the rows have their distributions from then on. None where there is no such function, or it does not know the rows' grammar."""
    count = tokens.shape[0] + 1
    rules = None if rows.verifier is None or rows.rules is None or rows.logits.shape[1] != count else rows.rules(count)
    if rules is None:
        return None
    found = rows.verifier.window(rows.logits, rules, tokens, laws, noise.root, noise.base, n, iteration, seeded, store, brief)
    if found.settled[0]:
        rows.drafted.have(found.drafts())
    if store:
        rows.has(found.p)
    return found


def is_fused(rows: Rows) -> bool:
    """Whether a kernel verifies these rows: it is chosen for their device, and their scores depend on sampling and allowed ids alone."""
    if rows.verifier is not None:
        return True
    if rows.settings is None:
        return False
    return kernel.is_kernel(*rows.place)


def fused(
    rows: Rows, tokens: Tensor, laws: Tensor | None, noise: Noise, positions: list[int], iteration: int, seeded: bool, store: bool = True,
    criterion: Criterion | None = None,
) -> kernel.Verdicts:  # fmt: skip
    """Verdicts and draws of rows at these positions, by the kernel. With `store` the rows have their distributions from then on.

    A pass in fixed shapes that waits for this question begins with it, and gives what it has settled, by the criterion if there is one.
    """
    at = torch.tensor(positions)
    uniforms = noise.host_uniforms((ACCEPT, DRAW, RESIDUAL), at, iteration)
    found = None
    if rows.launch is not None:
        found = rows.launch.verdict(Question(laws, uniforms, at, noise.base, seeded, store, criterion))
    if found is None:
        sampling, allowed = rows.settings(len(positions))
        uniforms, at, tokens = (x.to(rows.logits.device, non_blocking=True) for x in (uniforms, at, tokens))  # the pass may still run
        found = kernel.verify(kernel.Asked(rows.logits, sampling, allowed, tokens, laws, uniforms, noise.base, at, seeded, store))
    if store:
        rows.has(found.p)
    return found


def drawn(rows: Rows, noise: Noise, n: int) -> tuple[int, Values, Values | None]:
    """The token of plain decoding from the last row of a pass, the entropy [1] of its distribution, and the greatest probability [1] or
    None where the distribution is not stored.

    On a GPU a kernel draws it, so that the distribution is never stored.
    """
    if rows.verifier is not None and rows.logits.shape[1] == 1 and (rules := rows.rules(1)) is not None:
        token, numbers = rows.verifier.answer(rows.logits, rules, noise.base, n)
        return kernel.checked(0, token)[1], numbers[:1], numbers[4:5]
    if not is_fused(rows):
        return draw_gumbel(rows.scores, noise.gumbel(n, 1)).item(), entropy(rows.p[:1]), rows.p[:1].amax(-1)
    judged = judge(rows, NO_DRAFT.tokens, None, noise, n, 0, True, store=False)
    return judged.token, judged.entropies, judged.top


def describe(
    n: int, committed: list[int], a: int, drafted: int, laws: Tensor | None, chance: Values, entropies: Tensor | None = None,
    top: Tensor | None = None, **more: Any,
) -> Step:  # fmt: skip
    """The Step of a pass that accepted `a` of `drafted` drafts in order and then drew one token.

    laws   : [k, V], from position n on, at least one per committed token, or None if their entropies [k] are given
    top    : the greatest probabilities [k], if no laws are given and they are known
    chance : acceptance probabilities of the drafts in order, at least as many as were committed
    more   : other fields of the trace
    """
    k = len(committed)
    nats = entropy(laws[:k]) if entropies is None else entropies[:k]
    top = (None if top is None else top[:k]) if laws is None else laws[:k].amax(-1)
    trace = Trace(([True] * a + [False])[:k], accept_probability=chance[: min(k, drafted)], entropy=nats, top=top, **more)
    return Step(committed, list(range(n, n + k)), drafted=drafted, trace=trace)


def levels_of(a: int, committed: list[int]) -> list[int]:
    """The level of each token that a pass committed: 1 to `a` for accepted drafts, 0 for the token after them."""
    return [*range(1, a + 1), 0][: len(committed)]


def described(rows: Rows, tokens: Tensor, found: Judged, n: int, committed: list[int]) -> Step:
    """The Step of a pass that verified drafts int64 [m]."""
    k, more = len(committed), {"depth": levels_of(found.a, committed)}
    if found.fused is not None:
        return describe(n, committed, found.a, tokens.shape[0], None, found.probable, found.entropies, found.top, **more)
    chance = chances(rows, tokens.to(rows.place[0]), found.ratios, k)
    return describe(n, committed, found.a, len(tokens), rows.law(0, k), chance, **more)


def told(rows: Rows, tokens: Tensor, judged: Judged, k: int) -> tuple[Tensor | None, Values, Values | None, Values | None]:
    """What the Step of a pass that committed `k` tokens is told: distributions or None, acceptance probabilities, and the entropies and the
    greatest probabilities or None."""
    if judged.chances is not None:
        return None, judged.chances, judged.entropies, judged.top
    return rows.law(0, k), chances(rows, tokens, judged.ratios, k), None, None


def chances(rows: Rows, tokens: Tensor, ratios: Tensor | None, k: int) -> Tensor:
    """The acceptance probability of each of the first `k` drafts: its ratio cut at 1, or p if acceptance is equality."""
    k = min(k, len(tokens))
    return probability_of(rows.law(0, k), tokens[:k]) if ratios is None else ratios[:k].clamp(max=1)

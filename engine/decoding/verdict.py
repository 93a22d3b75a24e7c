"""The shared step: a pass over drafts, its verdict, the committed tokens, and the Step that records them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from engine.core import NO_DRAFT, ChosenTokens, Draft, Rows, Sequence, Step
from engine.decoding.decisions import decisions
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.rules import block, leading, matches, probability_of, ratio
from engine.sampling import draw, draw_gumbel, entropy, residual
from engine.trace import DecisionTrace, Trace, Values
from engine.verify import choice
from engine.verify.host import HostVerdict
from engine.verify.request import Criterion, Verdict, VerifyRequest, check_pair


@dataclass(slots=True)
class WindowState:
    """A verified window, which a refresh reads after the pass.

    Why carrying drafts is exact. Let the draft x of a position have distribution q given everything that happened at earlier positions.
    (a) Accepting it with probability min(1, p(x)/q(x)), and drawing from the residual otherwise, gives a token with distribution p.
    (b) Kept regardless of its value, x still has distribution q. (c) Kept with probability k(x), else redrawn from r, it has distribution
    q k + (1 - sum q k) r, which must then be carried. (d) With k = min(1, r/q) and a redraw from r's residual, that distribution is r.

    start  : the position of the first draft; row i of the pass is the distribution of position start+i, i = 0..m
    tokens : int64 [m]; draft_probs : [m, V] or None (under match seed only if the refresh needs them)
    verdict : independent verdicts (also meaningful after the first rejection), and a kernel's draws for every row
    a, token : the length of the accepted prefix, and the token after it
    by_coin : each draft was accepted by its own uniform number below p/q
    """

    rows: Rows
    tokens: Tensor
    draft_probs: Tensor | None
    noise: Noise
    start: int
    iteration: int
    verdict: Verdict | HostVerdict
    a: int
    token: int
    by_coin: bool = False

    @property
    def accepted(self) -> Tensor:
        """bool [m]"""
        return self.verdict.accepted

    @property
    def ratios(self) -> Tensor | None:
        """p/q [m] or None"""
        return self.verdict.ratios

    @property
    def coins(self) -> Tensor:
        """The uniform number of each draft, float64 [m] on the host."""
        known = self.verdict.coins if isinstance(self.verdict, Verdict) else None
        return self.noise.host_uniform(ACCEPT, self.start, len(self.tokens), self.iteration) if known is None else known


class JointRead(Protocol):
    """Integers of the device that the host reads in the same transfer as a fused verdict; other verdicts do not ask for them."""

    def compute(self, rows: Rows, pair: Tensor) -> Tensor | None:
        """The integers int64 [K], or None. pair : int64 [2] on the device, the length of the accepted prefix and the token after it"""
        ...

    def take(self, numbers: list[int]) -> None:
        """Takes them on the host."""
        ...


# (p [m, V], q [m, V], tokens int64 [m], u [m]) -> accepted bool [m] and the thresholds that u was compared with [m]
Rule = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def verify(
    rows: Rows, tokens: Tensor, draft_probs: Tensor | None, noise: Noise, n: int, iteration: int, seeded: bool, rule: Rule | None = None
) -> Verdict:
    """Verdicts on drafts, and the seeded answers [m+1] or None. Default rule: speculative sampling."""
    size = len(tokens)
    answers = draw_gumbel(rows.scores, noise.gumbel(n, size + 1)) if seeded else None
    if draft_probs is None:
        return Verdict(matches(tokens, answers[:size]), None, answers)
    accepted, ratios = (rule or ratio)(rows.p[:size], draft_probs, tokens, noise.uniform(ACCEPT, n, size, iteration))  # eq. 3
    return Verdict(matches(tokens, answers[:size]) if seeded else accepted, ratios, answers)


def correct(rows: Rows, draft_probs: Tensor | None, answers: Tensor | None, a: int, size: int, noise: Noise, n: int, iteration: int) -> int:
    """Returns the token after the accepted prefix: the seeded answer, a draw from the residual, or a draw from the last row."""
    if answers is not None:
        return answers[a].item()
    if a == size:
        return draw(rows.p[size:], noise.uniform(DRAW, n + size, 1, iteration)).item()
    rest = residual(rows.p[a : a + 1], draft_probs[a : a + 1])
    return draw(rest, noise.uniform(RESIDUAL, n + a, 1, iteration)).item()


def dense(draft_probs: Tensor | ChosenTokens | None, device: torch.device) -> Tensor | None:
    """The distributions of drafts as a tensor [m, V], those of chosen tokens on a device."""
    if not isinstance(draft_probs, ChosenTokens):
        return draft_probs
    return replace(draft_probs, tokens=draft_probs.tokens.to(device)).dense()


def plain_answer(rows: Rows, row: int, noise: Noise, position: int) -> int:
    """The draw of plain decoding from a row, with the noise of a position."""
    if rows.host is not None and rows.host.row(row).sound:
        return rows.host.row(row).answer(noise, position)
    return draw_gumbel(rows.scores[row : row + 1], noise.gumbel(position, 1)).item()


def judge(
    rows: Rows,
    tokens: Tensor,
    draft_probs: Tensor | ChosenTokens | None,
    noise: Noise,
    n: int,
    iteration: int,
    seeded: bool,
    rule: Rule | None = None,
    store: bool = True,
    also: JointRead | None = None,
) -> WindowState:
    """Verifies a window and finds the token after the accepted prefix: on a GPU by one kernel, with one read of two numbers and the drafts.

    store : the distributions will be needed; if False, a kernel does not write them
    also  : what the host reads in addition, or None
    """
    by_coin = not seeded and draft_probs is not None
    if rule is None and rows.host is not None:
        verdict = HostVerdict(rows.host, tokens, draft_probs, noise, n, iteration, seeded)
        rows.drafted.set_host(verdict.drafts)
        return WindowState(rows, tokens, draft_probs, noise, n, iteration, verdict, *check_pair(*verdict.settled), by_coin)
    size = len(tokens)
    if not is_fused(rows):
        tokens, draft_probs = tokens.to(rows.place[0]), dense(draft_probs, rows.place[0])
        verdict = verify(rows, tokens, draft_probs, noise, n, iteration, seeded, rule)
        a = leading(verdict.accepted)
        token = correct(rows, draft_probs, verdict.answers, a, size, noise, n, iteration)
        return WindowState(rows, tokens, draft_probs, noise, n, iteration, verdict, a, token, by_coin)
    verdict = verify_fused(rows, tokens, draft_probs, noise, list(range(n, n + size + 1)), iteration, seeded, store or rule is not None)
    if rule is not None and draft_probs is not None:
        relaxed, ratios = rule(
            rows.p[:size], dense(draft_probs, rows.place[0]), tokens.to(rows.place[0]), noise.uniform(ACCEPT, n, size, iteration)
        )
        verdict = replace(verdict, ratios=ratios, **({} if seeded else {"accepted": relaxed, "pair": None}))
    return WindowState(rows, tokens, draft_probs, noise, n, iteration, verdict, *settle(rows, verdict, seeded, also), by_coin)


def judge_block(
    rows: Rows, tokens: Tensor, draft_probs: Tensor | ChosenTokens, noise: Noise, n: int, iteration: int, also: JointRead | None = None
) -> WindowState:  # fmt: skip
    """Verifies a window as one block (`rules.block`), in PyTorch on the device of its rows, with one read. Arguments as in `judge`."""
    tokens, size, q = tokens.to(rows.place[0]), len(tokens), dense(draft_probs, rows.place[0])
    a, reach, rest = block(rows.p, q, tokens, noise.uniform(ACCEPT, n, size, iteration))
    behind = torch.stack([rest, rows.p]).index_select(1, a[None]).squeeze(1)
    empty = behind[:1].sum(-1, keepdim=True) < 1e-12  # p = q up to rounding
    token = draw(torch.where(empty, behind[1:], behind[:1]), noise.uniform(RESIDUAL, n, size + 1, iteration).index_select(0, a[None]))
    pair = torch.cat([a[None], token.masked_fill(rest.isnan().any(), -1)])
    verdict = Verdict(torch.arange(size, device=a.device) < a, reach, pair=pair)
    return WindowState(rows, tokens, q, noise, n, iteration, verdict, *settle(rows, verdict, False, also))


def screen(
    rows: Rows, tokens: Tensor, criterion: Criterion, noise: Noise, n: int, iteration: int, also: JointRead | None = None
) -> WindowState:  # fmt: skip
    """Verifies a window by a rule on the model's distributions alone, for rows that the kernel verifies. The token after the accepted
    drafts is the row's answer."""
    size = len(tokens)
    verdict = verify_fused(rows, tokens, None, noise, list(range(n, n + size + 1)), iteration, True, not criterion.raw, criterion)
    if verdict.pair is None:
        p = torch.softmax(rows.logits[0, :size].float(), -1) if criterion.raw else verdict.p[:size]
        limit = torch.tensor(criterion.limit, dtype=torch.float64)
        verdict = replace(verdict, accepted=criterion.accepts(p, tokens.to(p.device), limit))
    return WindowState(rows, tokens, None, noise, n, iteration, verdict, *settle(rows, verdict, True, also))


def settle(rows: Rows, verdict: Verdict, seeded: bool, also: JointRead | None = None) -> tuple[int, int]:
    """The one read of a step: the first refusal and the token after it, together with the drafts and `also`."""
    pair = choice.settle(verdict, verdict.accepted, seeded) if verdict.pair is None else verdict.pair
    more = None if also is None else also.compute(rows, pair)
    numbers = rows.drafted.to_list_with(pair if more is None else torch.cat([pair, more]))
    if more is not None:
        also.take(numbers[2:])
    return check_pair(*numbers[:2])


def is_fused(rows: Rows) -> bool:
    """True if a kernel verifies these rows: it is chosen for their device, and their scores depend on sampling and allowed ids alone."""
    return rows.settings is not None and choice.is_kernel(*rows.place)


def has_probs(rows: Rows) -> bool:
    """True if the distributions of a pass are at hand; a kernel may verify without storing them."""
    return "p" in rows.__dict__ or not is_fused(rows)


def verify_fused(
    rows: Rows, tokens: Tensor, draft_probs: Tensor | ChosenTokens | None, noise: Noise, positions: list[int], iteration: int, seeded: bool,
    store: bool = True, criterion: Criterion | None = None,
) -> Verdict:  # fmt: skip
    """Verdicts and draws of rows at these positions, by the kernel. With `store` the rows keep their distributions.

    A pass in fixed shapes that waits for this request starts now and returns its own settled verdict, by the criterion if there is one.
    """
    at = torch.tensor(positions)
    uniforms = noise.host_uniforms((ACCEPT, DRAW, RESIDUAL), at, iteration)
    request, coins = VerifyRequest(tokens, draft_probs, uniforms, noise.base, at, seeded, store, criterion), uniforms[0, : len(tokens)]
    verdict = None if rows.launch is None else rows.launch.verdict(request)
    if verdict is None:
        sampling, allowed = rows.settings(len(positions))
        uniforms, at, tokens = (x.to(rows.logits.device, non_blocking=True) for x in (uniforms, at, tokens))  # the pass may still run
        q = dense(draft_probs, tokens.device)
        request = replace(
            request, tokens=tokens, draft_probs=q, uniforms=uniforms, positions=at, logits=rows.logits, sampling=sampling, allowed=allowed
        )
        verdict = choice.verify(request)
    if store:
        rows.set_probs(verdict.p)
    verdict.coins = coins
    return verdict


def draw_plain(rows: Rows, noise: Noise, n: int) -> tuple[int, Values, Values | None]:
    """Draws plain decoding's token from the last row of a pass. Returns the token, its distribution's entropy [1], and the greatest
    probability [1] or None.

    On a GPU a kernel draws the token, so the distribution is never stored.
    """
    if rows.host is None and not is_fused(rows):
        return draw_gumbel(rows.scores, noise.gumbel(n, 1)).item(), entropy(rows.p[:1]), rows.p[:1].amax(-1)
    window = judge(rows, NO_DRAFT.tokens, None, noise, n, 0, True, store=False)
    nats, _, top, _ = window.verdict.recorded
    return window.token, nats, top


# --- the step ---------------------------------------------------------------------------------------------------------


def step_over(
    sequence: Sequence, draft: Draft, noise: Noise, iteration: int, seeded: bool, rule: Rule | None = None, store: bool = False,
    levels: bool = True, also: JointRead | None = None, as_block: bool = False,
) -> tuple[WindowState, Step]:  # fmt: skip
    """One step of a method that drafts chains: a pass over the draft, its verdict, the committed tokens. Arguments as in `judge`.

    draft  : without distributions only if the seed is matched
    levels : False for windows, whose drafts have no levels: the trace has no depth
    as_block : verified by `judge_block`
    """
    draft_probs = draft.q if draft.tokens.shape[0] else torch.empty(0, sequence.vocabulary, dtype=noise.dtype, device=sequence.device)
    rows = sequence.forward(draft)
    if as_block:
        return commit_window(sequence, judge_block(rows, draft.tokens, draft_probs, noise, sequence.length, iteration, also), levels)
    window = judge(rows, draft.tokens, draft_probs, noise, sequence.length, iteration, seeded, rule, store, also)
    return commit_window(sequence, window, levels)


def commit_window(sequence: Sequence, window: WindowState, levels: bool = True) -> tuple[WindowState, Step]:
    """Commits the accepted drafts of a window and the token after them. Returns the window and its Step. levels : see `step_over`"""
    tokens = sequence.commit(list(range(window.a)), window.token)
    return window, step_of(window, tokens, **({"depth": levels_of(window.a, tokens)} if levels else {}))


def step_of(window: WindowState, tokens: list[int], **more: Any) -> Step:
    """The Step of a window after its tokens were committed. more : other fields of the trace"""
    rows, k, size = window.rows, len(tokens), window.tokens.shape[0]
    nats, _, top, ratios = window.verdict.recorded
    if ratios is None:
        chance = chances(rows, window.tokens.to(rows.place[0]), window.ratios, k)
        step = describe(window.start, tokens, window.a, size, rows.probs(0, k), chance, ratio=window.ratios, **more)
    else:
        chance = ratios.clamp(max=1) if isinstance(ratios, Tensor) else [min(1.0, ratio) for ratio in ratios]
        known = None if window.draft_probs is None else ratios
        step = describe(window.start, tokens, window.a, size, None, chance, nats, top, ratio=known, **more)
    step.decide = partial(window_decisions, window, k)
    return step


def window_decisions(window: WindowState, k: int, carried: Tensor | None = None) -> DecisionTrace | None:
    """The record of the `k` committed tokens of a window; None where a kernel verifies without storing the distributions.

    carried : the distributions of the first drafts [c, V], if the window has none: under match seed it does not need them
    """
    rows, m = window.rows, min(k, window.tokens.shape[0])
    if not has_probs(rows):
        return None
    p, drafts, q = rows.probs(0, k), window.tokens[:m], window.draft_probs
    if q is None:
        q = ChosenTokens(drafts, p.shape[-1], p.dtype).dense() if carried is None else carried[:m]
    q = (q.dense() if isinstance(q, ChosenTokens) else q)[:m]
    return decisions(p, window.token if k == window.a + 1 else None, drafts, q, window.coins[:m] if window.by_coin else None)


def describe(
    n: int, committed: list[int], a: int, drafted: int, probs: Tensor | None, chance: Values, entropies: Values | None = None,
    top: Values | None = None, **more: Any,
) -> Step:  # fmt: skip
    """The Step of a pass that accepted `a` of `drafted` drafts in order and then drew one token.

    probs  : [k, V], from position n on, at least one per committed token, or None if their entropies [k] are given
    top    : the greatest probabilities [k], if known without the distributions
    chance : acceptance probabilities of the drafts in order, at least as many as were committed
    more   : other fields of the trace
    """
    k = len(committed)
    nats = entropy(probs[:k]) if entropies is None else entropies[:k]
    top = (None if top is None else top[:k]) if probs is None else probs[:k].amax(-1)
    trace = Trace(([True] * a + [False])[:k], accept_probability=chance[: min(k, drafted)], entropy=nats, top=top, **more)
    return Step(committed, list(range(n, n + k)), drafted=drafted, trace=trace)


def levels_of(a: int, committed: list[int]) -> list[int]:
    """The level of each token that a pass committed: 1 to `a` for accepted drafts, 0 for the token after them."""
    return [*range(1, a + 1), 0][: len(committed)]


def chances(rows: Rows, tokens: Tensor, ratios: Tensor | None, k: int) -> Tensor:
    """The acceptance probability of each of the first `k` drafts: its ratio, at most 1, or p if acceptance is equality."""
    k = min(k, len(tokens))
    return probability_of(rows.probs(0, k), tokens[:k]) if ratios is None else ratios[:k].clamp(max=1)


def shown_draft(sequence: Sequence, tokens: Tensor | list[int]) -> dict[str, Any]:
    """A chain of drafts after the committed tokens, in the form of `Step.draft`."""
    n = sequence.length
    return {"tokens": tokens, "positions": list(range(n, n + len(tokens))), "status": "draft"}

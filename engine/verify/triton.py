"""Verdict in one Triton kernel, from raw logits to tokens, and a small second kernel that settles them.

request.py has the mathematics. The bits of s are reordered so that they grow with s. The k-th largest is found by its
digits of eight bits, from histograms of counts. The top-p threshold is the largest t for which the tokens with s >= t have the wanted
mass: it is found by its digits of two bits, from sums. Both are exact. Sums have one order, and no float is added atomically: the same
input gives the same bits.

Fewest bytes: C R V logits once, m V of q, R V of p where they are stored. A program reads its row again from the second-level
cache: 4 times without filters, 4 more with top-k, 16 more with top-p.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.dispatch.language import LAUNCH, power_of_two, tl, triton
from engine.noise.kernel import base_on, gumbel_of, key_of
from engine.rules import matches
from engine.verify.request import Verdict, VerifyRequest

WIDEST = 2048  # columns of a tile
REGISTERS = 128  # per thread, set explicitly: by default the assembler takes fewer and spills some


@triton.jit
def scores_at(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, PAIR: tl.constexpr, MASKED: tl.constexpr):
    """Guided, masked and divided scores of a tile of columns, float32; -inf outside the vocabulary."""
    inside = columns < vocabulary
    s = tl.load(c_at + columns, inside, 0.0).to(tl.float32)
    if PAIR:  # as torch.lerp computes it
        u = tl.load(u_at + columns, inside, 0.0).to(tl.float32)
        s = tl.where(tl.abs(guidance) < 0.5, u + guidance * (s - u), s - (s - u) * (1.0 - guidance))
    if MASKED:
        s = tl.where(tl.load(allowed_at + columns, inside, 0) != 0, s, float("-inf"))
    s = tl.div_rn(s, divisor)
    return tl.where(inside, tl.where(s == 0, 0.0, s), float("-inf"))  # no negative zero: equal numbers get equal bits


@triton.jit
def ordered_bits(s):
    """uint32 that grow with float32."""
    bits = s.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | (-2147483647 - 1))).to(tl.uint32, bitcast=True)


@triton.jit
def _least_of_best(
    c_at, u_at, allowed_at, vocabulary, guidance, divisor, count, PAIR: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr
):
    """ordered_bits() of the `count`-th largest score, uint32: eight bits per pass, from a histogram of the scores that share the higher
    bits."""
    lanes, digits = tl.arange(0, BLOCK), tl.arange(0, 256)
    prefix, above = tl.zeros([], tl.uint32), tl.zeros([], tl.int32)
    for step in range(4):
        tally = tl.zeros([256], tl.int32)
        for start in range(0, vocabulary, BLOCK):
            columns = start + lanes
            bits = ordered_bits(scores_at(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, PAIR, MASKED))
            # the bits above this digit agree; at step 0 one shift would be by 32, so there are two
            same = ((bits ^ prefix) >> 8 * (3 - step)) >> 8 == 0
            tally += tl.histogram((bits >> 8 * (3 - step) & 255).to(tl.int32), 256, same & (columns < vocabulary))
        more = tl.sum(tally, 0) - tl.cumsum(tally, 0)  # scores with a greater digit
        digit = tl.max(tl.where(above + more + tally >= count, digits, 0), 0)
        above += tl.sum(tl.where(digits == digit, more, 0), 0)
        prefix += digit.to(tl.uint32) << 8 * (3 - step)
    return prefix


@triton.jit
def _least_of_mass(
    c_at, u_at, allowed_at, vocabulary, guidance, divisor, top, least, share,
    PAIR: tl.constexpr, MASKED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest uint32 t for which the tokens with ordered_bits(s) >= max(t, least) have this share of the mass exp(s - top) of all
    tokens from `least` on; 0 if there is none. Two bits per pass."""
    lanes = tl.arange(0, BLOCK)
    edge = tl.zeros([], tl.uint32)
    for step in range(16):
        one = tl.full([], 1073741824, tl.uint32) >> 2 * step
        t1, t2, t3 = edge + one, edge + 2 * one, edge + 3 * one
        m0, m1, m2, m3 = (
            tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
        )  # fmt: skip
        for start in range(0, vocabulary, BLOCK):
            s = scores_at(c_at, u_at, allowed_at, start + lanes, vocabulary, guidance, divisor, PAIR, MASKED)
            bits = ordered_bits(s)
            mass = tl.where(bits >= least, tl.exp(s - top), 0.0)
            m0 += mass  # all, added in the same order
            m1 += tl.where(bits >= t1, mass, 0.0)
            m2 += tl.where(bits >= t2, mass, 0.0)
            m3 += tl.where(bits >= t3, mass, 0.0)
        wanted = share * tl.sum(m0)
        digit = (tl.sum(m1) >= wanted).to(tl.uint32) + (tl.sum(m2) >= wanted).to(tl.uint32) + (tl.sum(m3) >= wanted).to(tl.uint32)
        edge += digit * one
    return edge


@triton.jit
def _score(
    c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, last_divisor, least, best,
    PAIR: tl.constexpr, MASKED: tl.constexpr, FILTER: tl.constexpr, GREEDY: tl.constexpr,
):  # fmt: skip
    """Final scores of a tile of columns: filtered, and divided by the temperature if it comes last."""
    s = scores_at(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, PAIR, MASKED)
    if GREEDY:
        s = tl.where(columns == best, 0.0, float("-inf"))
    elif FILTER:
        s = tl.div_rn(tl.where(ordered_bits(s) >= least, s, float("-inf")), last_divisor)
    return s


@triton.jit
def _crossing(weights, base, target, columns, vocabulary):
    """The first column at which base + running sum of the float64 weights reaches the target; the last one with weight if none does."""
    hit = (base + tl.cumsum(weights, 0)) >= target
    first = tl.min(tl.where(hit & (weights > 0), columns, vocabulary), 0)
    return tl.where(first < vocabulary, first, tl.max(tl.where(weights > 0, columns, 0), 0))


@triton.jit(do_not_specialize=["rows", "drafts", "top_k"])
def _verify_kernel(
    logits_at, allowed_at, tokens_at, probs_at, uniforms_at, base_at, positions_at, settings_at, p_at, integers_at, numbers_at,
    rows, drafts, vocabulary, branch_stride, row_stride, allowed_stride, probs_stride,
    guidance, divisor, last_divisor, top_k, top_p,
    PAIR: tl.constexpr, MASKED: tl.constexpr, DRAFT_PROBS: tl.constexpr, GREEDY: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr,
    STORE: tl.constexpr, READ: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    FILTER: tl.constexpr = TOP_K or TOP_P
    if READ:  # of the two divisors, the one that is not 1 is the temperature
        temperature = tl.load(settings_at).to(tl.float32)
        divisor, last_divisor = tl.where(divisor == 1.0, 1.0, temperature), tl.where(last_divisor == 1.0, 1.0, temperature)
        top_k, top_p = tl.load(settings_at + 1).to(tl.int32), tl.load(settings_at + 2).to(tl.float32)
        guidance = tl.load(settings_at + 3).to(tl.float32)
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    c_at = logits_at + row * row_stride
    u_at = c_at + branch_stride
    if MASKED:
        allowed_at += row * allowed_stride
    if DRAFT_PROBS:
        q_at = probs_at + row * probs_stride
    has_draft = row < drafts
    probs_width = tl.where(has_draft, vocabulary, 0)  # the last row has no draft

    # 1. the best score, the first of equals, and whether the row is sound
    best, place, faults = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.int32), tl.zeros([BLOCK], tl.int32)
    for start in range(0, vocabulary, BLOCK):
        columns = start + lanes
        s = scores_at(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, PAIR, MASKED)
        faults |= ((s != s) | (s == float("inf"))).to(tl.int32)
        place = tl.where(s > best, columns, place)
        best = tl.where(s > best, s, best)
    top = tl.max(best, 0)
    first = tl.min(tl.where(best == top, place, vocabulary), 0)
    sound = (tl.max(faults, 0) == 0) & (top > float("-inf"))

    # 2. the least score that the filters keep
    least = tl.zeros([], tl.uint32)
    if TOP_K:
        least = _least_of_best(c_at, u_at, allowed_at, vocabulary, guidance, divisor, top_k, PAIR, MASKED, BLOCK)
    if TOP_P:
        least = tl.maximum(
            least, _least_of_mass(c_at, u_at, allowed_at, vocabulary, guidance, divisor, top, least, top_p, PAIR, MASKED, BLOCK)
        )
    top = 0.0 if GREEDY else tl.div_rn(top, last_divisor)

    # 3. softmax statistics, and the answer with the position's noise
    mass, heat = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    best, place = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.int32)
    key = key_of(tl.load(base_at), tl.load(positions_at + row))
    for start in range(0, vocabulary, BLOCK):
        columns = start + lanes
        s = _score(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, last_divisor, least, first, PAIR, MASKED, FILTER, GREEDY)
        share = tl.exp(s - top)
        mass += share
        heat += tl.where(share > 0, share * (s - top), 0.0)
        loud = s + gumbel_of(key, columns)
        place = tl.where(loud > best, columns, place)
        best = tl.where(loud > best, loud, best)
    total = tl.sum(mass, 0)
    tl.store(numbers_at + row, tl.log(total) - tl.sum(heat, 0) / total)
    answer = tl.min(tl.where(best == tl.max(best, 0), place, vocabulary), 0)
    tl.store(integers_at + row, tl.where(sound, answer, -1).to(tl.int64))

    # 4. the sums of p and of the residual, the distance from q, and p itself
    scale = 1.0 / total
    fresh_sum, left_sum = tl.zeros([], tl.float64), tl.zeros([], tl.float64)
    deviation = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocabulary, BLOCK):
        columns = start + lanes
        s = _score(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, last_divisor, least, first, PAIR, MASKED, FILTER, GREEDY)
        p = tl.exp(s - top) * scale
        fresh_sum += tl.sum(p.to(tl.float64), 0)
        if STORE:
            tl.store(p_at + row * vocabulary + columns, p, columns < vocabulary)
        if DRAFT_PROBS:
            q = tl.load(q_at + columns, columns < probs_width, 0.0)
            deviation += tl.abs(p - q)
            left_sum += tl.sum(tl.maximum(p - q, 0.0).to(tl.float64), 0)

    # 5. the tile in which each sum reaches its target
    empty = (left_sum < 1e-12) | ~has_draft
    left_sum = tl.where(empty, fresh_sum, left_sum)
    fresh_target = tl.load(uniforms_at + rows + row) * fresh_sum
    left_target = tl.load(uniforms_at + 2 * rows + row) * left_sum
    fresh_run, left_run = tl.zeros([], tl.float64), tl.zeros([], tl.float64)
    fresh_base, left_base = tl.zeros([], tl.float64), tl.zeros([], tl.float64)
    fresh_tile, left_tile = tl.full([], -1, tl.int32), tl.full([], -1, tl.int32)
    for start in range(0, vocabulary, BLOCK):
        columns = start + lanes
        s = _score(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, last_divisor, least, first, PAIR, MASKED, FILTER, GREEDY)
        p = tl.exp(s - top) * scale
        more = tl.sum(p.to(tl.float64), 0)
        reached = (fresh_tile < 0) & (fresh_run + more >= fresh_target)
        fresh_base, fresh_tile = tl.where(reached, fresh_run, fresh_base), tl.where(reached, start, fresh_tile)
        fresh_run += more
        if DRAFT_PROBS:
            q = tl.load(q_at + columns, columns < probs_width, 0.0)
            more = tl.sum(tl.where(empty, p, tl.maximum(p - q, 0.0)).to(tl.float64), 0)
        reached = (left_tile < 0) & (left_run + more >= left_target)
        left_base, left_tile = tl.where(reached, left_run, left_base), tl.where(reached, start, left_tile)
        left_run += more

    # 6. the token inside that tile
    columns = tl.maximum(fresh_tile, 0) + lanes
    s = _score(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, last_divisor, least, first, PAIR, MASKED, FILTER, GREEDY)
    p = tl.exp(s - top) * scale
    fresh = _crossing(p.to(tl.float64), fresh_base, fresh_target, columns, vocabulary)
    tl.store(integers_at + rows + row, tl.where(sound, fresh, -1).to(tl.int64))
    columns = tl.maximum(left_tile, 0) + lanes
    s = _score(c_at, u_at, allowed_at, columns, vocabulary, guidance, divisor, last_divisor, least, first, PAIR, MASKED, FILTER, GREEDY)
    p = tl.exp(s - top) * scale
    if DRAFT_PROBS:
        q = tl.load(q_at + columns, columns < probs_width, 0.0)
        p = tl.where(empty, p, tl.maximum(p - q, 0.0))
    drawn = _crossing(p.to(tl.float64), left_base, left_target, columns, vocabulary)
    tl.store(integers_at + 2 * rows + row, tl.where(sound, drawn, -1).to(tl.int64))
    tl.store(integers_at + 3 * rows + row, sound.to(tl.int64))

    # 7. the verdict on the draft
    x = tl.load(tokens_at + row, row < drafts, 0)
    s = _score(
        c_at, u_at, allowed_at, x + tl.zeros([1], tl.int64), vocabulary, guidance, divisor, last_divisor, least, first,
        PAIR, MASKED, FILTER, GREEDY,
    )  # fmt: skip
    chance = tl.sum(tl.exp(s - top) * scale, 0)
    tl.store(numbers_at + 3 * rows + row, chance)
    if DRAFT_PROBS:
        odds = chance / tl.load(q_at + x, row < drafts, 1.0)
        tl.store(numbers_at + rows + row, odds)
        tl.store(numbers_at + 2 * rows + row, tl.sum(deviation, 0) / 2)
        verdict = tl.load(uniforms_at + row) < odds.to(tl.float64)
        tl.store(integers_at + 4 * rows + row, (verdict & sound).to(tl.int64))


@triton.jit(do_not_specialize=["drafts"])
def _settle_kernel(
    accepted_at, answers_at, fresh_at, drawn_at, sound_at, out_at, drafts_at, drafts,
    SEEDED: tl.constexpr, TOLD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, BLOCK)
    if TOLD:
        drafts = tl.load(drafts_at).to(tl.int32)
    verdicts = tl.load(accepted_at + lanes, lanes < drafts, 1)
    a = tl.min(tl.where(verdicts != 0, drafts, lanes), 0)
    sound = tl.min(tl.load(sound_at + lanes, lanes <= a, 1), 0)
    if SEEDED:
        token = tl.load(answers_at + a)
    else:
        token = tl.where(a == drafts, tl.load(fresh_at + drafts), tl.load(drawn_at + a))
    tl.store(out_at, a.to(tl.int64))
    tl.store(out_at + 1, tl.where(sound != 0, token, -1))


def block_of(vocabulary: int) -> int:
    """The number of columns in a tile."""
    return max(16, min(WIDEST, power_of_two(vocabulary)))


def warps_of(block: int) -> int:
    """Warps of a program: 4 columns a thread, so that a thread needs at most 128 registers."""
    return max(1, block // 128)


def flags_of(request: VerifyRequest) -> dict[str, bool]:
    """The parts of the kernel that a request needs: each combination is compiled once."""
    sampling, vocabulary = request.sampling, request.logits.shape[-1]
    greedy = sampling.temperature == 0
    return {
        "PAIR": request.logits.shape[0] == 2,
        "MASKED": request.allowed is not None,
        "DRAFT_PROBS": request.draft_probs is not None,
        "GREEDY": greedy,
        "TOP_K": not greedy and 0 < sampling.top_k < vocabulary,
        "TOP_P": not greedy and sampling.top_p < 1,
        "STORE": request.store,
        "READ": request.numbers is not None,
    }


def verify_triton(request: VerifyRequest) -> Verdict:
    """Verdicts and draws of a pass, by the kernel."""
    logits, sampling, size = request.logits, request.sampling, len(request.tokens)
    rows, vocabulary, device = logits.shape[1], logits.shape[2], logits.device
    assert logits.stride(-1) == 1, f"the logits of a row must be contiguous, and their stride is {logits.stride(-1)}"
    flags = flags_of(request)
    integers = torch.empty(5, rows, dtype=torch.int64, device=device)
    numbers = torch.empty(4, rows, dtype=torch.float32, device=device)
    p = torch.empty(rows, vocabulary, dtype=torch.float32, device=device) if request.store else None
    allowed = None if request.allowed is None else request.allowed.contiguous().view(torch.uint8)
    draft_probs = None if request.draft_probs is None else request.draft_probs.float().contiguous()
    last = sampling.temperature_last and not flags["GREEDY"]
    divisor = sampling.temperature if sampling.temperature and not last else 1.0
    if last and not (flags["TOP_K"] or flags["TOP_P"]):  # without a filter the order does not matter
        last, divisor = False, sampling.temperature
    block = block_of(vocabulary)
    _verify_kernel[(rows,)](
        logits, allowed, request.tokens, draft_probs, request.uniforms.to(device).contiguous(), base_on(device, request.base),
        request.positions, request.numbers, p, integers, numbers,
        rows, size, vocabulary, logits.stride(0), logits.stride(1), 0 if allowed is None or allowed.ndim == 1 else vocabulary, vocabulary,
        float(sampling.guidance), float(divisor), float(sampling.temperature if last else 1.0), sampling.top_k, float(sampling.top_p),
        **flags, BLOCK=block, num_warps=warps_of(block), maxnreg=REGISTERS, **LAUNCH,
    )  # fmt: skip
    answers, fresh, drawn, sound = *integers[:3], integers[3] != 0
    accepted = matches(request.tokens, answers[:size]) if request.draft_probs is None or request.seeded else integers[4, :size] != 0
    ratios, deviations = (None, None) if draft_probs is None else (numbers[1, :size], numbers[2, :size])
    return Verdict(accepted, ratios, answers, fresh, drawn, numbers[3, :size], deviations, numbers[0], p, sound)


def settle_triton(verdict: Verdict, accepted: Tensor, seeded: bool, drafts: Tensor | None = None) -> Tensor:
    """The first refusal and the token after it, int64 [2], by the kernel."""
    out = torch.empty(2, dtype=torch.int64, device=accepted.device)
    size = len(accepted)
    _settle_kernel[(1,)](
        accepted.contiguous().view(torch.uint8), verdict.answers, verdict.fresh, verdict.drawn, verdict.sound.view(torch.uint8), out,
        drafts, size, seeded, drafts is not None, power_of_two(size + 1), num_warps=1, **LAUNCH,
    )  # fmt: skip
    return out

"""The probability that a draft borrows from similar tokens: LANTERN, LANTERN++, MuLo-SD; and the ranks next to a draft, for GSD.

Mathematics. Token x has neighbours n_1, n_2, ..., nearest first. Its mass is p(x) + c_j with c_j = p(n_1) + ... + p(n_j) for the largest
j with c_j <= limit, and 0 if there is none. The limit is δ (LANTERN, MuLo-SD) or λ p(x) (LANTERN++). A group of GSD is the draft
and the tokens next to it when a row is sorted by (p, id).

Fewest bytes: of a token's k neighbours 8 k of the table and a 32-byte sector of p for each. The sum stops at the first tile that passes
the limit, on peaked distributions after the first of 64. Ranks read the row once for each neighbour in rank, from the second-level
cache; sorting it would move it 8 times or more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.dispatch.choice import choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton
from engine.rules import longest, probability_of

TILE = 64  # neighbours that are added before the limit is tested
WIDEST = 2048


# --- reference --------------------------------------------------------------------------------------------------------


def pooled_mass_reference(p: Tensor, tokens: Tensor, near: Tensor, limits: Tensor) -> Tensor:
    """The mass [N] of each token; shapes as in `pooled_mass`."""
    return probability_of(p, tokens) + longest(p.gather(1, near), limits)


def ranked_reference(p: Tensor, tokens: Tensor, half: int) -> Tensor:
    """The tokens next to each draft in rank; shapes as in `rank_neighbours`."""
    order = p.argsort(dim=-1, stable=True)
    place = (order == tokens[:, None]).long().argmax(-1)
    at = place[:, None] + torch.arange(-half, half, device=p.device)
    inside = (at >= 0) & (at < p.shape[-1])
    return torch.where(inside, order.gather(1, at.clamp(0, p.shape[-1] - 1)), -1)


# --- kernels ----------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["count"])
def _pooled_mass_kernel(p_at, tokens_at, near_at, limits_at, out_at, row_stride, near_stride, count, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    p_at += row * row_stride
    near_at += row * near_stride
    own, limit = tl.load(p_at + tl.load(tokens_at + row)), tl.load(limits_at + row)
    lanes = tl.arange(0, TILE)
    run, borrowed = tl.zeros([], tl.float32), tl.zeros([], tl.float32)
    start = 0
    while (start < count) & (run <= limit):
        inside = start + lanes < count
        ids = tl.load(near_at + start + lanes, inside, 0)
        sums = run + tl.cumsum(tl.load(p_at + ids, inside, 0.0), 0)
        borrowed = tl.maximum(borrowed, tl.max(tl.where(inside & (sums <= limit), sums, 0.0), 0))
        run = tl.max(sums, 0)
        start += TILE
    tl.store(out_at + row, own + borrowed)


@triton.jit
def _ranked_kernel(p_at, tokens_at, out_at, vocabulary, row_stride, half, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    p_at += row * row_stride
    token = tl.load(tokens_at + row)
    lanes = tl.arange(0, BLOCK)
    mine = (tl.load(p_at + token).to(tl.int32, bitcast=True).to(tl.int64) << 32) + token  # probabilities are not negative
    tl.store(out_at + row * 2 * half + half, token)
    for side in range(2):  # below, then above
        nearest = mine
        steps = half - side
        for step in range(steps):
            best = tl.full([BLOCK], -1, tl.int64)
            for start in range(0, vocabulary, BLOCK):
                columns = start + lanes
                bits = tl.load(p_at + columns, columns < vocabulary, 0.0).to(tl.int32, bitcast=True).to(tl.int64)
                rank = (bits << 32) + columns
                gap = tl.where(side == 0, nearest - rank, rank - nearest)
                nearer = (columns < vocabulary) & (gap > 0) & ((best < 0) | (gap < tl.where(side == 0, nearest - best, best - nearest)))
                best = tl.where(nearer, rank, best)
            gaps = tl.where(best < 0, 0x7FFFFFFFFFFFFFFF, tl.where(side == 0, nearest - best, best - nearest))
            gap = tl.min(gaps, 0)
            ended = (gap == 0x7FFFFFFFFFFFFFFF) | (nearest < 0)
            nearest = tl.where(ended, -1, tl.where(side == 0, nearest - gap, nearest + gap))
            at = tl.where(side == 0, half - 1 - step, half + 1 + step)
            tl.store(out_at + row * 2 * half + at, tl.where(ended, -1, nearest & 0xFFFFFFFF))


def pooled_mass_triton(p: Tensor, tokens: Tensor, near: Tensor, limits: Tensor) -> Tensor:
    """The mass by the kernel."""
    out = torch.empty(len(tokens), dtype=torch.float32, device=p.device)
    if len(tokens):
        _pooled_mass_kernel[(len(tokens),)](
            p, tokens, near.contiguous(), limits.float().contiguous(), out, p.stride(0) if len(p) > 1 else 0, near.shape[1],
            near.shape[1], TILE, num_warps=1, **LAUNCH,
        )  # fmt: skip
    return out


def ranked_triton(p: Tensor, tokens: Tensor, half: int) -> Tensor:
    """The ranks by the kernel."""
    out = torch.empty(len(tokens), 2 * half, dtype=torch.int64, device=p.device)
    block = max(16, min(WIDEST, power_of_two(p.shape[-1])))
    if len(tokens):
        _ranked_kernel[(len(tokens),)](p, tokens, out, p.shape[-1], p.stride(0), half, block, num_warps=max(1, block // 256), **LAUNCH)
    return out


# --- public -----------------------------------------------------------------------------------------------------------


def pooled_mass(p: Tensor, tokens: Tensor, near: Tensor, limits: Tensor) -> Tensor:
    """The probability of each token plus that of its nearest neighbours, as long as these add at most its limit: [N].

    p : [N, V], one distribution per token, or [1, V] for all; tokens : int64 [N]; near : int64 [N, k], nearest first, without the token
    itself; limits : [N], of what the neighbours add
    """
    p = p.expand(len(tokens), -1)
    if choose(p.device, p.dtype).is_triton and p.dtype == torch.float32:
        return pooled_mass_triton(p, tokens, near, limits)
    return pooled_mass_reference(p, tokens, near, limits)


def rank_neighbours(p: Tensor, tokens: Tensor, half: int) -> Tensor:
    """The `half` tokens below each draft in rank, the draft, and `half` - 1 above it: int64 [N, 2 half], ascending; -1 beyond the ends.

    p : [N, V]; tokens : int64 [N]. A row's rank is by (p, id).
    """
    if half and choose(p.device, p.dtype).is_triton and p.dtype == torch.float32:
        return ranked_triton(p.contiguous(), tokens, half)
    return ranked_reference(p, tokens, half)

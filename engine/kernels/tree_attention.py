"""Attention of a pass over the key/value cache, with the draft's tree as bits and positions instead of a mask of floats.

Mathematics. Query i of a pass sees cache row j < kept if place[j] <= position[i] (all of them where no places are given: the
committed tokens are a prefix), and row kept + j of the pass itself if bit j of its set is 1: its ancestors and itself, or whatever the
draft says. Output: softmax(q k / sqrt(width)) v over what it sees, summed block by block with a running maximum, in float32.
Query heads that share a key head are rows of one product. The two branches of guidance are a batch; their places may differ, and so may
the padding before their prompts.

A few rows after a long cache would fill a tenth of a GPU. So the keys are divided: one program sums a part of them for one head, a second
kernel merges the parts: with m_i the greatest product, s_i the sum and t_i the weighted values of part i, the output is
sum(exp(m_i - m) t_i) / sum(exp(m_i - m) s_i), m = max m_i. How many parts depends on shapes alone; which keys, on the kept rows.

Fewest bytes: keys and values of the visible rows once, 2 x branches x key heads x rows x width x size, and as little of q and the
result. The sets take R / 8 bytes a row, where a mask takes kept + R or four times as much. The parts add at most
2 x PROGRAMS x 64 x width x 4, 17 MB for heads of width 128, most of which stay in the second-level cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.dispatch.choice import COMPUTED, choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton
from engine.kernels.attention_backends import without_cudnn

KEYS = 32  # of a tile
QUERIES, MOST_QUERIES = 16, 64  # of a tile, at least and at most
PROGRAMS = 256  # that fill a GPU: about two on each of 132 multiprocessors
LEAST_PART = 128  # keys of a part, at least
MERGED = 4  # rows of a program that merges


@dataclass(frozen=True)
class Chain:
    """Visibility in a chain: rows see all kept rows and the pass's rows up to their own. count, kept : their numbers"""

    count: int
    kept: int

    def dense(self, device: torch.device) -> Tensor:
        """The same as a mask, bool [count, kept + count]."""
        return torch.ones(self.count, self.kept + self.count, dtype=torch.bool, device=device).tril_(self.kept)


@dataclass(frozen=True)
class VisibleRows:
    """Visibility in a pass, for each of its rows.

    sets      : int64 [R, words]; bit j of a row: it sees row j of the pass
    places    : int64 [branches or 1, kept], of the cache's rows, or None; a hidden row has the greatest int64
    positions : int64 [R], of the queries; needed with places
    kept      : number of rows in the cache before the pass
    kept_now  : int64 [], that number, in a pass in fixed shapes; `kept` is then the most that it can be
    padding   : int64 [branches], the rows at the start of each branch's cache that no row sees; None: there are none
    """

    sets: Tensor
    kept: int
    places: Tensor | None = None
    positions: Tensor | None = None
    kept_now: Tensor | None = None
    padding: Tensor | None = None

    def dense(self) -> Tensor:
        """The same as a mask, bool [branches or 1, R, kept + R]."""
        mask = self._without_padding()
        if self.padding is None:
            return mask
        return mask & (torch.arange(mask.shape[-1], device=mask.device) >= self.padding[:, None, None])

    def _without_padding(self) -> Tensor:
        count = len(self.sets)
        if self.kept_now is not None:
            return fixed_mask(self.sets, self.kept_now.expand(count), self.kept + count)[None]
        tail = unpack(self.sets)[None]
        if self.places is None:
            past = torch.ones(1, count, self.kept, dtype=torch.bool, device=tail.device)
        else:
            past = self.places[:, None, :] <= self.positions[None, :, None]
        return torch.cat([past, tail.expand(len(past), -1, -1)], -1)


Visibility = Tensor | Chain | VisibleRows | None  # of the rows of a pass: a mask bool [R, kept + R], a chain, sets, or everything


def pack(visible: Tensor) -> Tensor:
    """Bit sets of a mask: bool [R, C] -> int64 [R, words of 64]."""
    count, width = visible.shape
    bits = F.pad(visible.long(), (0, -width % 64)).view(count, -(-width // 64), 64)
    return (bits << torch.arange(64, device=visible.device)).sum(-1)


def unpack(sets: Tensor) -> Tensor:
    """The mask bool [R, R] of sets of bits."""
    bits = sets[:, :, None] >> torch.arange(64, device=sets.device) & 1
    return bits.flatten(1)[:, : len(sets)].bool()


def fixed_mask(sets: Tensor, kept: Tensor, span: int) -> Tensor:
    """The mask bool [R, span] of rows that see the first `kept` int64 [R] rows of a cache, and of those after them what their sets say."""
    own = torch.arange(span, device=kept.device) - kept[:, None]
    visible = (sets[:, :, None] >> torch.arange(64, device=kept.device) & 1).flatten(1).bool()
    width = visible.shape[1]
    return (own < 0) | (visible.gather(1, own.clamp(0, width - 1)) & (own < width))


def tree_attention_reference(q: Tensor, k: Tensor, v: Tensor, seen: VisibleRows | Tensor | None, scale: float | None = None) -> Tensor:
    """PyTorch's attention with the dense mask; shapes as in `tree_attention`."""
    mask = seen.dense()[:, None] if isinstance(seen, VisibleRows) else seen
    with without_cudnn(q.device):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1])


@triton.jit(do_not_specialize=["count", "kept", "words"])
def _attend_part_kernel(
    q_at, k_at, v_at, sets_at, places_at, positions_at, kept_at, padding_at, sums_at, totals_at,
    count, kept, words, heads, group, width, scale,
    q_branch, q_head, q_row, k_branch, k_head, k_row, v_branch, v_head, v_row, place_branch,
    PLACED: tl.constexpr, TOLD: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    if TOLD:
        kept = tl.load(kept_at).to(tl.int32)
    branch, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    hidden = 0
    if PADDED:
        hidden = tl.load(padding_at + branch).to(tl.int32)
    parts, skipped = tl.num_programs(2), hidden // KEYS * KEYS
    keys = tl.cdiv(tl.cdiv(kept + count - skipped, KEYS), parts) * KEYS  # of this part
    begin = skipped + tl.program_id(2) * keys
    line = tl.program_id(1) * ROWS + tl.arange(0, ROWS)  # (query, head of the group)
    row, member = line // group, line % group
    here = row < count
    lanes, dims = tl.arange(0, KEYS), tl.arange(0, WIDTH)
    q_here = q_at + branch * q_branch + (head * group + member)[:, None] * q_head + row[:, None] * q_row + dims[None, :]
    q = tl.load(q_here, here[:, None] & (dims < width)[None, :], 0.0)
    if PLACED:
        position = tl.load(positions_at + row, here, 0)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    mass, total = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    k_at += branch * k_branch + head * k_head
    v_at += branch * v_branch + head * v_head
    for start in range(begin, tl.minimum(begin + keys, kept + count), KEYS):
        key = start + lanes
        there = key < kept + count
        own = key - kept
        word = tl.load(
            sets_at + row[:, None] * words + tl.maximum(own, 0)[None, :] // 64,
            here[:, None] & ((own >= 0) & there)[None, :], 0,
        )  # fmt: skip
        sees = ((word >> (tl.maximum(own, 0) % 64)[None, :].to(tl.int64)) & 1) != 0
        if PLACED:
            place = tl.load(places_at + branch * place_branch + key, key < kept, 0x7FFFFFFFFFFFFFFF)
            before = place[None, :] <= position[:, None]
        else:
            before = (key < kept)[None, :]
        sees = tl.where((own < 0)[None, :], before, sees)
        if PADDED:
            sees = sees & (key >= hidden)[None, :]
        k = tl.load(k_at + key[None, :] * k_row + dims[:, None], there[None, :] & (dims < width)[:, None], 0.0)
        s = tl.where(sees, tl.dot(q, k, input_precision=PRECISION) * scale, float("-inf"))
        newest = tl.maximum(best, tl.max(s, 1))
        safe = tl.where(newest == float("-inf"), 0.0, newest)
        share = tl.exp(s - safe[:, None])
        fade = tl.exp(best - safe)
        v = tl.load(v_at + key[:, None] * v_row + dims[None, :], there[:, None] & (dims < width)[None, :], 0.0)
        mass = mass * fade + tl.sum(share, 1)
        total = total * fade[:, None] + tl.dot(share.to(v.dtype), v, input_precision=PRECISION)
        best = newest
    lines = tl.num_programs(0) * count * group  # of all branches and heads
    at = tl.program_id(2).to(tl.int64) * lines + tl.program_id(0) * count * group + line
    tl.store(sums_at + at, best, here)
    tl.store(sums_at + parts.to(tl.int64) * lines + at, mass, here)
    tl.store(totals_at + at[:, None] * width + dims[None, :], total, (here & (mass > 0))[:, None] & (dims < width)[None, :])


@triton.jit(do_not_specialize=["lines", "count", "parts"])
def _merge_parts_kernel(
    sums_at, totals_at, out_at, lines, count, parts, heads, group, width, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    line, dims = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    here = line < lines
    best = tl.full([ROWS], float("-inf"), tl.float32)
    for part in range(parts):
        best = tl.maximum(best, tl.load(sums_at + part * lines + line, here, float("-inf")))
    safe = tl.where(best == float("-inf"), 0.0, best)
    mass, total = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    for part in range(parts):
        fade = tl.exp(tl.load(sums_at + part * lines + line, here, float("-inf")) - safe)
        more = tl.load(sums_at + (parts + part) * lines + line, here, 0.0)
        inside = (here & (more > 0))[:, None] & (dims < width)[None, :]  # a part that sees nothing stored nothing
        mass += fade * more
        total += fade[:, None] * tl.load(totals_at + (part * lines + line)[:, None] * width + dims[None, :], inside, 0.0)
    total = total / tl.where(mass > 0, mass, 1.0)[:, None]  # a row that sees nothing gives zeros
    pair, inner = line // (count * group), line % (count * group)
    branch, head = pair // heads, pair % heads
    row, member = inner // group, inner % group
    at = ((branch * count + row) * heads * group + head * group + member)[:, None] * width + dims[None, :]
    tl.store(out_at + at, total.to(out_at.dtype.element_ty), here[:, None] & (dims < width)[None, :])


def warps_of(rows: int, dtype: torch.dtype) -> int:
    """Warps of a program for a tile of this many rows, chosen so that no register spills at width 128."""
    return 8 if rows > QUERIES or dtype == torch.float32 else 4


def parts_of(programs: int, keys: int) -> int:
    """The number of parts that keys are divided into, if one part takes this many programs."""
    return max(1, min(triton.cdiv(PROGRAMS, programs), triton.cdiv(keys, LEAST_PART)))


@torch.library.custom_op("foretoken::attend_parts", mutates_args=())
def _attend_parts(
    q: Tensor, k: Tensor, v: Tensor, sets: Tensor, places: Tensor | None, positions: Tensor | None, kept_now: Tensor | None,
    padding: Tensor | None, kept: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """For each part of the keys: the greatest product of every row and the sum of its weights, float32 [2, parts, branches, key heads,
    R x group], and the weighted values, float32 [parts, branches, key heads, R x group, width]."""
    sums, totals = _parts_like(q, k)
    branches, all_heads, count, width = q.shape
    heads, rows = k.shape[1], _rows_of(q, k)
    placed = places is not None
    _attend_part_kernel[(branches * heads, triton.cdiv(count * (all_heads // heads), rows), totals.shape[0])](
        q, k, v, sets, places, positions, kept_now, padding, sums, totals,
        count, kept, sets.shape[1], heads, all_heads // heads, width, scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], places.stride(0) if placed and len(places) > 1 else 0,
        placed, kept_now is not None, padding is not None, rows, KEYS, max(16, power_of_two(width)),
        "ieee" if q.dtype == torch.float32 else "tf32", num_warps=warps_of(rows, q.dtype), num_stages=2, **LAUNCH,
    )  # fmt: skip
    return sums, totals


def _rows_of(q: Tensor, k: Tensor) -> int:
    """Queries of a tile: in float32, which takes twice the registers, half as many."""
    most = MOST_QUERIES // 2 if q.dtype == torch.float32 else MOST_QUERIES
    return max(QUERIES, min(most, power_of_two(q.shape[2] * (q.shape[1] // k.shape[1]))))


def _parts_like(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Tensors for the parts of the keys, without values."""
    branches, heads, keys, width = k.shape
    lines = q.shape[2] * (q.shape[1] // heads)
    parts = parts_of(branches * heads * -(-lines // _rows_of(q, k)), keys)
    sums, totals = (2, parts, branches, heads, lines), (parts, branches, heads, lines, width)
    return q.new_empty(sums, dtype=torch.float32), q.new_empty(totals, dtype=torch.float32)


@_attend_parts.register_fake
def _(q: Tensor, k: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    return _parts_like(q, k)


@torch.library.custom_op("foretoken::merge_parts", mutates_args=())
def _merge_parts(sums: Tensor, totals: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """The parts together: [branches, R, heads, width]."""
    out = _merged_like(totals, count, dtype)
    parts, branches, heads, lines, width = totals.shape
    every = branches * heads * lines
    _merge_parts_kernel[(triton.cdiv(every, MERGED),)](
        sums, totals, out, every, count, parts, heads, lines // count, width, MERGED, max(16, power_of_two(width)), num_warps=4, **LAUNCH
    )
    return out


def _merged_like(totals: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    _, branches, heads, lines, width = totals.shape
    return totals.new_empty((branches, count, heads * (lines // count), width), dtype=dtype)


@_merge_parts.register_fake
def _(sums: Tensor, totals: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    return _merged_like(totals, count, dtype)


def tree_attention_triton(q: Tensor, k: Tensor, v: Tensor, seen: VisibleRows, scale: float | None = None) -> Tensor:
    """Attention by the kernels."""
    count, width = q.shape[2:]
    assert k.shape[2] == seen.kept + count, f"{k.shape[2]} keys for {seen.kept} kept rows and {count} of the pass"
    places = None if seen.places is None else seen.places.contiguous()
    factor = 1 / math.sqrt(width) if scale is None else float(scale)
    sums, totals = _attend_parts(q, k, v, seen.sets, places, seen.positions, seen.kept_now, seen.padding, seen.kept, factor)
    return _merge_parts(sums, totals, count, q.dtype).transpose(1, 2)


def tree_attention(q: Tensor, k: Tensor, v: Tensor, seen: VisibleRows | Tensor | None, scale: float | None = None) -> Tensor:
    """Attention [branches, heads, R, width] of the rows of a pass over the cache, of which the pass's own rows are the last R. By the
    kernels it is a view of [branches, R, heads, width], the input of the next product.

    q : [branches, heads, R, width]; k, v : [branches, key heads, kept + R, width], views of the cache; heads a multiple of key heads
    seen : a mask bool [R, kept + R], or None = everything, is always PyTorch's; scale : of the products, by default 1 / sqrt(width)
    """
    if not isinstance(seen, VisibleRows):
        return tree_attention_reference(q, k, v, seen, scale)
    fits = {q.dtype, k.dtype, v.dtype} <= set(COMPUTED) and q.dtype == k.dtype and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    chosen = fits and choose(q.device, q.dtype).is_triton
    return (tree_attention_triton if chosen else tree_attention_reference)(q, k, v, seen, scale)

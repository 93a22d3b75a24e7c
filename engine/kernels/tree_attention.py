"""Attention of a pass over the key/value cache, with the draft's tree as bits and positions instead of a mask of floats.

Mathematics. Query i of a pass sees cache row j < kept if place[j] <= position[i] (all of them where no places are given: the
committed tokens are a prefix), and row kept + j of the pass itself if bit j of its set is 1: its ancestors and itself, or whatever the
draft says. Output: softmax(q k / sqrt(width)) v over what it sees, summed block by block with a running maximum, in float32.
Query heads that share a key head are rows of one product. The two branches of guidance are a batch; their places may differ.

Fewest bytes: keys and values of the visible rows once, 2 x branches x key heads x rows x width x size, and as little of q and the
result. The sets take R / 8 bytes a row, where a mask takes kept + R or four times as much.
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
QUERIES = 16  # of a tile, at least


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
    """

    sets: Tensor
    kept: int
    places: Tensor | None = None
    positions: Tensor | None = None
    kept_now: Tensor | None = None

    def dense(self) -> Tensor:
        """The same as a mask, bool [branches or 1, R, kept + R]."""
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


@triton.jit
def _tree_attention_kernel(
    q_at, k_at, v_at, sets_at, places_at, positions_at, told_at, out_at,
    count, kept, words, heads, group, width, scale,
    q_branch, q_head, q_row, k_branch, k_head, k_row, v_branch, v_head, v_row, place_branch,
    PLACED: tl.constexpr, TOLD: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    if TOLD:
        kept = tl.load(told_at).to(tl.int32)
    branch, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
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
    for start in range(0, kept + count, KEYS):
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
    total = total / tl.where(mass > 0, mass, 1.0)[:, None]  # a row that sees nothing gives zeros
    at = out_at + ((branch * heads * group + head * group + member)[:, None] * count + row[:, None]) * width + dims[None, :]
    tl.store(at, total.to(out_at.dtype.element_ty), here[:, None] & (dims < width)[None, :])


def warps_of(rows: int) -> int:
    """Warps of a program for a tile of this many rows, chosen so that no register spills at width 128."""
    return 8 if rows > 32 else 4


def tree_attention_triton(q: Tensor, k: Tensor, v: Tensor, seen: VisibleRows, scale: float | None = None) -> Tensor:
    """Attention by the kernel."""
    branches, all_heads, count, width = q.shape
    heads = k.shape[1]
    group = all_heads // heads
    assert k.shape[2] == seen.kept + count, f"{k.shape[2]} keys for {seen.kept} kept rows and {count} of the pass"
    out = torch.empty(branches, all_heads, count, width, dtype=q.dtype, device=q.device)
    rows = max(QUERIES, min(64, power_of_two(count * group)))
    placed = seen.places is not None
    places = seen.places.contiguous() if placed else None
    _tree_attention_kernel[(branches * heads, triton.cdiv(count * group, rows))](
        q, k, v, seen.sets, places, seen.positions, seen.kept_now, out,
        count, seen.kept, seen.sets.shape[1], heads, group, width, 1 / math.sqrt(width) if scale is None else scale,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], places.stride(0) if placed and len(places) > 1 else 0,
        placed, seen.kept_now is not None, rows, KEYS, max(16, power_of_two(width)), "ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=warps_of(rows), num_stages=2, **LAUNCH,
    )  # fmt: skip
    return out


def tree_attention(q: Tensor, k: Tensor, v: Tensor, seen: VisibleRows | Tensor | None, scale: float | None = None) -> Tensor:
    """Attention [branches, heads, R, width] of the rows of a pass over the cache, of which the pass's own rows are the last R.

    q : [branches, heads, R, width]; k, v : [branches, key heads, kept + R, width], views of the cache; heads a multiple of key heads
    seen : a mask bool [R, kept + R], or None = everything, is always PyTorch's; scale : of the products, by default 1 / sqrt(width)
    """
    if not isinstance(seen, VisibleRows):
        return tree_attention_reference(q, k, v, seen, scale)
    fits = {q.dtype, k.dtype, v.dtype} <= set(COMPUTED) and q.dtype == k.dtype and q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    chosen = fits and choose(q.device, q.dtype).is_triton
    return (tree_attention_triton if chosen else tree_attention_reference)(q, k, v, seen, scale)

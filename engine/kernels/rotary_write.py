"""Between the products of queries, keys and values and the attention over the cache, in one kernel: the norm of each head where a model has
one, the rotary position, and the write of keys and values into the cache.

Mathematics, for a head x of a row. The norm is weight * x / sqrt(mean(x^2) + eps), or, with a bias, the layer norm
weight * (x - mean) / sqrt(variance + eps) + bias; the quotient is rounded before it is weighted. The position turns the first n numbers:
x cos + turned(x) sin, where turned exchanges the halves of these n and negates the second half; both products are rounded. The decoders of
transformers round in the same places.

Fewest bytes: queries, keys and values read and written once, 2 x rows x (heads + 2 key heads) x width x size, and the cosines and sines.
A program has one row and one key head with its queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.dispatch.choice import COMPUTED, choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton


@dataclass(frozen=True)
class HeadNorms:
    """The norms of the heads of queries and keys, over the width of a head.

    query, key : weights [heads or 1, width]; query_bias, key_bias : of a layer norm, the same shapes; None: a root-mean-square norm
    """

    query: Tensor
    key: Tensor
    eps: float
    query_bias: Tensor | None = None
    key_bias: Tensor | None = None


# --- reference --------------------------------------------------------------------------------------------------------


def _normed(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """x [branches, R, heads, width] with the norm of each head."""
    if weight is None:
        return x
    if bias is not None:
        return F.layer_norm(x, x.shape[-1:], None, None, eps) * weight + bias
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [branches, R, heads, width], with the first numbers of each head turned by cos and sin [1 or branches, R, n]."""
    part, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    a, b = part.chunk(2, -1)
    return torch.cat([part * cos[:, :, None] + torch.cat([-b, a], -1) * sin[:, :, None], rest], -1)


def rotary_write_reference(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, at: Tensor, norms: HeadNorms | None = None
) -> Tensor:
    """The same in plain PyTorch; shapes as in `rotary_write`."""
    if norms is not None:
        q, k = _normed(q, norms.query, norms.query_bias, norms.eps), _normed(k, norms.key, norms.key_bias, norms.eps)
    keys.index_copy_(2, at, _turned(k, cos, sin).transpose(1, 2))
    values.index_copy_(2, at, v.transpose(1, 2))
    return _turned(q, cos, sin)


# --- kernel -----------------------------------------------------------------------------------------------------------


@triton.jit
def _turned_heads(
    x_at, cos_at, sin_at, weight_at, bias_at, here, width, turned, eps,
    NORM: tl.constexpr, BIAS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Heads [HEADS, WIDTH] of one row, with norm and position; x_at, weight_at, bias_at : pointers [HEADS, 1] to each head."""
    dims, half = tl.arange(0, WIDTH), turned // 2
    other = tl.where(dims < half, dims + half, tl.where(dims < turned, dims - half, dims))  # exchanged with it
    inside = here[:, None] & (dims < width)[None, :]
    x, y = tl.load(x_at + dims[None, :], inside, 0.0), tl.load(x_at + other[None, :], inside, 0.0)
    if NORM:
        wide, wide_y = x.to(tl.float32), y.to(tl.float32)
        if BIAS:
            mean = tl.sum(wide, 1)[:, None] / width
            wide, wide_y = wide - mean, wide_y - mean
        kept = tl.where(inside, wide, 0.0)
        scale = 1.0 / tl.sqrt_rn(tl.sum(kept * kept, 1)[:, None] / width + eps)
        w, w_y = tl.load(weight_at + dims[None, :], inside, 0.0), tl.load(weight_at + other[None, :], inside, 0.0)
        x = ((wide * scale).to(x.dtype).to(tl.float32) * w.to(tl.float32)).to(x.dtype)
        y = ((wide_y * scale).to(y.dtype).to(tl.float32) * w_y.to(tl.float32)).to(y.dtype)
        if BIAS:
            b, b_y = tl.load(bias_at + dims[None, :], inside, 0.0), tl.load(bias_at + other[None, :], inside, 0.0)
            x, y = (x.to(tl.float32) + b.to(tl.float32)).to(x.dtype), (y.to(tl.float32) + b_y.to(tl.float32)).to(y.dtype)
    cos, sin = tl.load(cos_at + dims, dims < turned, 1.0).to(tl.float32), tl.load(sin_at + dims, dims < turned, 0.0).to(tl.float32)
    sin = tl.where(dims < half, -sin, sin)
    straight = (x.to(tl.float32) * cos[None, :]).to(x.dtype).to(tl.float32)
    return (straight + (y.to(tl.float32) * sin[None, :]).to(x.dtype).to(tl.float32)).to(x.dtype)


@triton.jit(do_not_specialize=["count"])
def _rotary_write_kernel(
    q_at, k_at, v_at, cos_at, sin_at, rows_at, keys_at, values_at, out_at, q_weight_at, k_weight_at, q_bias_at, k_bias_at,
    count, group, width, turned, eps, q_branch, q_row, k_branch, k_row, v_branch, v_row, cos_branch,
    keys_branch, keys_head, keys_row, values_branch, values_head, values_row, q_norm_head, k_norm_head,
    NORM: tl.constexpr, BIAS: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    branch, row, head = (tl.program_id(0) // count).to(tl.int64), (tl.program_id(0) % count).to(tl.int64), tl.program_id(1)
    heads, dims = tl.num_programs(1), tl.arange(0, WIDTH)
    cos_at += branch * cos_branch + row * turned
    sin_at += branch * cos_branch + row * turned
    member, one = tl.arange(0, GROUP), tl.arange(0, 1)
    query = head * group + member[:, None]
    q = _turned_heads(
        q_at + branch * q_branch + row * q_row + query * width, cos_at, sin_at,
        q_weight_at + query * q_norm_head if NORM else None, q_bias_at + query * q_norm_head if BIAS else None,
        member < group, width, turned, eps, NORM, BIAS, GROUP, WIDTH,
    )  # fmt: skip
    out = ((branch * count + row) * heads * group + query) * width + dims[None, :]
    tl.store(out_at + out, q, (member < group)[:, None] & (dims < width)[None, :])
    key = head + one[:, None]
    k = _turned_heads(
        k_at + branch * k_branch + row * k_row + key * width, cos_at, sin_at,
        k_weight_at + key * k_norm_head if NORM else None, k_bias_at + key * k_norm_head if BIAS else None,
        one < 1, width, turned, eps, NORM, BIAS, 1, WIDTH,
    )  # fmt: skip
    place = tl.load(rows_at + row)
    kept = branch * keys_branch + key * keys_head + place * keys_row + dims[None, :]
    tl.store(keys_at + kept, k, (dims < width)[None, :])
    v = tl.load(v_at + branch * v_branch + row * v_row + head * width + dims, dims < width)
    tl.store(values_at + branch * values_branch + head * values_head + place * values_row + dims, v, dims < width)


def rotary_write_triton(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, at: Tensor, norms: HeadNorms | None = None
) -> Tensor:
    """The same by the kernel."""
    branches, count, all_heads, width = q.shape
    heads = k.shape[2]
    group = all_heads // heads
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    weights = (None,) * 4 if norms is None else (norms.query, norms.key, norms.query_bias, norms.key_bias)
    strides = [0 if each is None or len(each) == 1 else each.stride(0) for each in weights[:2]]
    _rotary_write_kernel[(branches * count, heads)](
        q, k, v, cos, sin, at, keys, values, out, *weights,
        count, group, width, cos.shape[-1], 0.0 if norms is None else norms.eps,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], cos.stride(0) if len(cos) > 1 else 0,
        *keys.stride()[:3], *values.stride()[:3], *strides,
        norms is not None, norms is not None and norms.query_bias is not None, power_of_two(group), max(16, power_of_two(width)),
        num_warps=1, **LAUNCH,
    )  # fmt: skip
    return out


# --- public -----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("foretoken::rotary_write", mutates_args=("keys", "values"))
def _rotary_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, at: Tensor,
    q_weight: Tensor | None, k_weight: Tensor | None, q_bias: Tensor | None, k_bias: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    norms = None if q_weight is None or k_weight is None else HeadNorms(q_weight, k_weight, eps, q_bias, k_bias)
    each = [x for x in (q, k, v, cos, sin, keys, values, q_weight, k_weight, q_bias, k_bias) if x is not None]
    fits = {x.dtype for x in each} == {q.dtype} and q.dtype in COMPUTED and all(x.stride(-1) == 1 for x in each)
    fits = fits and all(x.stride(2) == x.shape[3] for x in (q, k, v)) and cos.stride(1) == sin.stride(1) == cos.shape[-1]
    chosen = fits and choose(q.device, q.dtype).is_triton
    return (rotary_write_triton if chosen else rotary_write_reference)(q, k, v, cos, sin, keys, values, at, norms)


@_rotary_write.register_fake
def _(q: Tensor, *_: object) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


def rotary_write(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, at: Tensor, norms: HeadNorms | None = None
) -> Tensor:
    """Writes the keys, with norm and position, and the values of a pass into the cache; returns the queries with norm and position.
    One operation, also in a compiled pass.

    q : [branches, R, heads, width], returned in the same shape; k, v : [branches, R, key heads, width]
    cos, sin : [1 or branches, R, n], of the first n numbers of a head, whose halves are the two parts of each pair
    keys, values : [branches, key heads, capacity, width], of the cache; at : int64 [R], the rows to write
    """
    weights = (None,) * 4 if norms is None else (norms.query, norms.key, norms.query_bias, norms.key_bias)
    return _rotary_write(q, k, v, cos, sin, keys, values, at, *weights, 0.0 if norms is None else norms.eps)

"""The sum before a norm and the norm, in one kernel: a layer of a hosted decoder adds what a part of it computed, and norms the sum.

Mathematics: s = x + more, rounded to the type of x; y = weight * (s / sqrt(mean(s^2) + eps)), where the mean is in float32 and the quotient
is rounded before it is weighted, as the decoders of transformers do.

Fewest bytes: rows of x and more read, rows of s and y written once, 4 x rows x width x size; the weight once. A program holds a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.dispatch.choice import COMPUTED, choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton

WIDEST = 16384  # of a row that a program can hold


def residual_norm_reference(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum and its norm in plain PyTorch; shapes as in `residual_norm`."""
    x = x if more is None else x + more
    wide = x.float()
    return x, weight * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


@triton.jit
def _residual_norm_kernel(x_at, more_at, weight_at, sum_at, out_at, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_at + row * width + columns, inside, 0.0)
    if ADD:
        more = tl.load(more_at + row * width + columns, inside, 0.0)
        x = (x.to(tl.float32) + more.to(tl.float32)).to(x.dtype)
        tl.store(sum_at + row * width + columns, x, inside)
    wide = x.to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.sum(wide * wide, 0) / width + eps)
    weight = tl.load(weight_at + columns, inside, 0.0).to(tl.float32)
    tl.store(out_at + row * width + columns, ((wide * scale).to(x.dtype).to(tl.float32) * weight).to(x.dtype), inside)


def warps_of(block: int) -> int:
    """Warps of a program for a row of this many columns."""
    return max(1, min(16, block // 512))


def residual_norm_triton(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same by the kernel."""
    total, out, width = x if more is None else torch.empty_like(x), torch.empty_like(x), x.shape[-1]
    block = max(16, power_of_two(width))
    _residual_norm_kernel[(x.numel() // width,)](
        x, more, weight, total, out, width, eps, more is not None, block, num_warps=warps_of(block), **LAUNCH
    )
    return total, out


def _chosen(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    each = [x, weight] if more is None else [x, more, weight]
    fits = {part.dtype for part in each} == {x.dtype} and x.dtype in COMPUTED and all(part.is_contiguous() for part in each)
    fits = fits and x.shape[-1] <= WIDEST and choose(x.device, x.dtype).is_triton
    return (residual_norm_triton if fits else residual_norm_reference)(x, more, weight, eps)


@torch.library.custom_op("foretoken::residual_norm", mutates_args=())
def _residual_norm(x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return _chosen(x, more, weight, eps)


@_residual_norm.register_fake
def _(x: Tensor, more: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("foretoken::norm", mutates_args=())
def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return _chosen(x, None, weight, eps)[1]


@_norm.register_fake
def _(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.empty_like(x)


def residual_norm(x: Tensor, more: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum x + more, and its root-mean-square norm; x itself for None. One operation, also in a compiled pass.

    x, more : [..., width]; weight : [width]; eps : added to the mean of the squares
    """
    return (x, _norm(x, weight, eps)) if more is None else _residual_norm(x, more, weight, eps)

"""A low-rank adapter on some rows of a pass: y[rows] += s B A x[rows], in place, in two kernels.

Mathematics: h = x A^T for the rows from `first` on [n, rank], then y += s h B^T. Both sums are in float32; h is rounded to the
adapter's type as PyTorch's first product rounds it. Rows before `first` are not read or written.

Fewest bytes: the adapter once, rank x (in + out) x size, and n x (in + 2 out) x size of rows; h stays in the second-level cache.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.dispatch.choice import COMPUTED, choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton

ROWS, INNER, OUTER = 16, 64, 64  # of a tile


def row_lora_reference(y: Tensor, x: Tensor, down: Tensor, up: Tensor, first: int | Tensor, scale: float) -> None:
    """Adds in place; shapes as in `row_lora`."""
    if isinstance(first, Tensor):
        wanted = torch.arange(y.shape[1], device=y.device)[:, None] >= first
        more = F.linear(F.linear(x.to(down.dtype), down), up)
        y.add_(torch.where(wanted, more, 0).to(y.dtype), alpha=scale)
        return
    more = F.linear(F.linear(x[:, first:].to(down.dtype), down), up)
    y[:, first:].add_(more.to(y.dtype), alpha=scale)


@triton.jit(do_not_specialize=["count"])
def _shrink_kernel(
    x_at, down_at, h_at, count, width, branch_stride, row_stride, rank,
    ROWS: tl.constexpr, RANK: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    branch = tl.program_id(0).to(tl.int64)
    rows, ranks, lanes = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, RANK), tl.arange(0, INNER)
    total = tl.zeros([ROWS, RANK], tl.float32)
    for start in range(0, width, INNER):
        columns = start + lanes
        x = tl.load(
            x_at + branch * branch_stride + rows[:, None].to(tl.int64) * row_stride + columns[None, :],
            (rows < count)[:, None] & (columns < width)[None, :], 0.0,
        )  # fmt: skip
        down = tl.load(down_at + ranks[None, :] * width + columns[:, None], (ranks < rank)[None, :] & (columns < width)[:, None], 0.0)
        total = tl.dot(x.to(down.dtype), down, total, input_precision=PRECISION)
    at = h_at + (branch * count + rows[:, None]) * rank + ranks[None, :]
    tl.store(at, total.to(h_at.dtype.element_ty), (rows < count)[:, None] & (ranks < rank)[None, :])


@triton.jit(do_not_specialize=["count"])
def _expand_kernel(
    y_at, h_at, up_at, first_at, count, width, branch_stride, row_stride, rank, scale,
    TOLD: tl.constexpr, ROWS: tl.constexpr, RANK: tl.constexpr, OUTER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    branch = tl.program_id(0).to(tl.int64)
    rows, ranks = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, RANK)
    columns = tl.program_id(2) * OUTER + tl.arange(0, OUTER)
    h = tl.load(h_at + (branch * count + rows[:, None]) * rank + ranks[None, :], (rows < count)[:, None] & (ranks < rank)[None, :], 0.0)
    up = tl.load(up_at + columns[None, :] * rank + ranks[:, None], (columns < width)[None, :] & (ranks < rank)[:, None], 0.0)
    more = tl.dot(h, up, input_precision=PRECISION).to(up_at.dtype.element_ty).to(tl.float32)
    at = y_at + branch * branch_stride + rows[:, None].to(tl.int64) * row_stride + columns[None, :]
    inside = (rows < count)[:, None] & (columns < width)[None, :]
    if TOLD:
        inside &= (rows >= tl.load(first_at))[:, None]
    tl.store(at, (tl.load(at, inside, 0.0).to(tl.float32) + scale * more).to(y_at.dtype.element_ty), inside)


def row_lora_triton(y: Tensor, x: Tensor, down: Tensor, up: Tensor, first: int | Tensor, scale: float) -> None:
    """The same by the kernels."""
    is_told = isinstance(first, Tensor)
    x, part = (x, y) if is_told else (x[:, first:], y[:, first:])
    branches, count, width = x.shape
    rank, precision = len(down), "ieee" if down.dtype == torch.float32 else "tf32"
    h = torch.empty(branches, count, rank, dtype=down.dtype, device=x.device)
    tall, blocks = max(16, power_of_two(rank)), triton.cdiv(count, ROWS)
    _shrink_kernel[(branches, blocks)](
        x, down, h, count, width, x.stride(0), x.stride(1), rank, ROWS, tall, INNER, precision, num_warps=4, **LAUNCH
    )
    _expand_kernel[(branches, blocks, triton.cdiv(len(up), OUTER))](
        part, h, up, first if is_told else None, count, len(up), part.stride(0), part.stride(1), rank, float(scale),
        is_told, ROWS, tall, OUTER, precision, num_warps=4, **LAUNCH,
    )  # fmt: skip


def row_lora(y: Tensor, x: Tensor, down: Tensor, up: Tensor, first: int | Tensor, scale: float) -> None:
    """Adds s B A x to the rows of y from number `first` on, in place.

    y : [branches, R, out]; x : [branches, R, in]; down : A [rank, in]; up : B [out, rank]
    first : int64 [] in a pass in fixed shapes: the product is then made for all rows, and added to those
    """
    fits = {x.dtype, y.dtype, down.dtype, up.dtype} <= set(COMPUTED) and x.stride(-1) == y.stride(-1) == 1
    fits = fits and (isinstance(first, Tensor) or first < x.shape[1])
    fits = fits and down.is_contiguous() and up.is_contiguous()
    fits = fits and not (torch.is_grad_enabled() and (down.requires_grad or x.requires_grad))  # the kernels have no gradient
    (row_lora_triton if fits and choose(y.device, y.dtype).is_triton else row_lora_reference)(y, x, down, up, first, scale)

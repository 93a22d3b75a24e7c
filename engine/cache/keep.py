"""Moves the accepted rows of a pass together in the key/value cache, in one kernel for all layers.

Mathematics: block[..., start + i, :] = block[..., start + rows[i], :] for i = 0..k-1, with all reads before all writes. A chain moves
nothing and launches nothing.

Fewest bytes: each accepted row of each layer is read and written once, 2 x (layers x 2 x branches x heads x k x width). A program moves
a slice of one head's rows; it loads all of them before it stores any.
"""

from __future__ import annotations

from torch import Tensor

from engine.dispatch.choice import COMPUTED, choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton

SLICE = 16  # of the width: 32 bytes of half precision, the least that a GPU reads at once
MOST = 512  # rows that a program can hold


def keep_rows_reference(block: Tensor, start: int, rows: Tensor) -> None:
    """Moves the rows in place. block : [layers, 2, branches, heads, capacity, width]; rows : int64 [k], numbered from `start`."""
    block[:, :, :, :, start : start + len(rows)] = block[:, :, :, :, start + rows]


@triton.jit(do_not_specialize=["start", "count"])
def _keep_rows_kernel(block_at, rows_at, start, count, stride, width, ROWS: tl.constexpr, SLICE: tl.constexpr):
    head_at = block_at + tl.program_id(0).to(tl.int64) * stride
    place, columns = tl.arange(0, ROWS), tl.program_id(1) * SLICE + tl.arange(0, SLICE)
    source = start + tl.load(rows_at + place, place < count, 0)
    inside = (place < count)[:, None] & (columns < width)[None, :]
    moved = tl.load(head_at + source[:, None] * width + columns[None, :], inside)
    tl.debug_barrier()  # another thread's source may be this one's target
    tl.store(head_at + (start + place)[:, None].to(tl.int64) * width + columns[None, :], moved, inside)


def keep_rows_triton(block: Tensor, start: int, rows: Tensor) -> None:
    """Moves the rows in place, by the kernel."""
    layers, kinds, branches, heads, capacity, width = block.shape
    grid = (layers * kinds * branches * heads, triton.cdiv(width, SLICE))
    size = capacity * width
    _keep_rows_kernel[grid](block, rows, start, len(rows), size, width, power_of_two(len(rows)), SLICE, num_warps=1, **LAUNCH)


def keep_rows(block: Tensor, start: int, rows: Tensor) -> None:
    """Moves rows of the cache in place: row start + rows[i] becomes row start + i.

    block : [layers, 2, branches, heads, capacity, width], contiguous; rows : int64 [k] on the same device
    """
    fits = block.dtype in COMPUTED and 0 < len(rows) <= MOST and block.is_contiguous()
    (keep_rows_triton if fits and choose(block.device, block.dtype).is_triton else keep_rows_reference)(block, start, rows)

"""Softmax attention, with a backward pass for bfloat16 on a CPU, where PyTorch's own is slow.

PyTorch's kernel also computes the hidden half of a mask, in small products, which took half the time of a training step. Here rows are
processed in blocks. A block is multiplied only with the keys up to the last one that it sees, and its probabilities are stored for the
backward pass. Both passes are PyTorch operators, so a compiled model calls them directly, for any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.kernels.tree_attention import Chain, Visibility, VisibleRows, tree_attention

ROWS = 128  # rows of a block; 64 and 96 are slower


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Visibility = None, scale: float | None = None) -> Tensor:
    """Returns softmax(scale q k^T) v, [..., R, d], from q [..., R, d] and k, v [..., S, d].

    mask : bool [R, S], the keys that each row sees, or None (all); every row sees at least one. scale : None = 1 / sqrt(d)
    """
    mask = mask.dense(q.device) if isinstance(mask, Chain) else mask
    if not isinstance(mask, VisibleRows) and by_blocks(q, v, mask):
        factor = q.shape[-1] ** -0.5 if scale is None else scale
        parts = ((q * factor).to(v.dtype), k.to(v.dtype), v)
        return _attend_by_blocks(*(x.flatten(0, -3) for x in parts), mask)[0].view(*q.shape[:-1], v.shape[-1])
    return tree_attention(q, k, v, mask, scale)


def by_blocks(q: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """True if attention is computed by blocks: with gradients, in bfloat16, on a CPU."""
    fits = v.device.type == "cpu" and v.dtype == torch.bfloat16 and (mask is None or mask.ndim == 2)
    return fits and torch.is_grad_enabled() and q.requires_grad


def _blocks(rows: int, keys: int, mask: Tensor | None) -> Iterator[tuple[slice, int, int]]:
    """Yields for each block its rows, the number of leading keys that all of its rows see, and the number of keys up to the last one that
    any of them sees."""
    for first in range(0, rows, ROWS):
        block = slice(first, min(rows, first + ROWS))
        if mask is None:
            yield block, keys, keys
        else:
            own = mask[block]
            yield block, int(own.all(0).long().cumprod(0).sum()), int(own.any(0).nonzero()[-1]) + 1


@torch.library.custom_op("foretoken::attend_by_blocks", mutates_args=())
def _attend_by_blocks(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """q [N, R, d], scaled; k, v [N, S, d] -> attention [N, R, d], and the probabilities of all blocks one after another, [N * R * S]."""
    batch, rows, keys = len(q), q.shape[1], k.shape[1]
    out, probs, used = q.new_empty(batch, rows, v.shape[-1]), q.new_empty(batch * rows * keys), 0
    for block, clear, visible in _blocks(rows, keys, mask):
        count = batch * (block.stop - block.start) * visible
        block_probs = probs[used : used + count].view(batch, -1, visible)
        used += count
        scores = torch.bmm(q[:, block], k[:, :visible].transpose(1, 2))
        if clear < visible:
            scores[..., clear:].masked_fill_(~mask[block, clear:visible], -torch.inf)
        torch.softmax(scores, -1, out=block_probs)
        out[:, block] = torch.bmm(block_probs, v[:, :visible])
    return out, probs


@_attend_by_blocks.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    return q.new_empty(len(q), q.shape[1], v.shape[-1]), q.new_empty(len(q) * q.shape[1] * k.shape[1])


@torch.library.custom_op("foretoken::attend_by_blocks_backward", mutates_args=())
def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v from the gradient of the attention; sums over blocks are float32."""
    batch, rows, keys = len(q), q.shape[1], k.shape[1]
    grad_q, used = torch.empty_like(q), 0
    grad_k, grad_v = (torch.zeros(x.shape, dtype=torch.float32) for x in (k, v))
    for block, _, visible in _blocks(rows, keys, mask):
        count = batch * (block.stop - block.start) * visible
        block_probs = probs[used : used + count].view(batch, -1, visible)
        used += count
        own = grad[:, block]
        grad_v[:, :visible] += torch.bmm(block_probs.transpose(1, 2), own)
        change = torch.bmm(own, v[:, :visible].transpose(1, 2))
        torch._softmax_backward_data(change, block_probs, -1, change.dtype, grad_input=change)
        grad_q[:, block] = torch.bmm(change, k[:, :visible])
        grad_k[:, :visible] += torch.bmm(change.transpose(1, 2), q[:, block])
    return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype)


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, mask, output[1])


def _gradients(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor, Tensor, None]:
    q, k, v, mask, probs = ctx.saved_tensors
    return *_backward(grad.contiguous(), q, k, v, mask, probs), None


_attend_by_blocks.register_autograd(_gradients, setup_context=_keep)

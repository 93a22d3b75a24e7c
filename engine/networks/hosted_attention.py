"""Attention for hosted decoders: a row of a pass has the same bits alone, in a window and next to any rows that it does not see.

It is PyTorch's own attention, called in a form in which nothing depends on the size of the pass. Keys come in whole blocks, in which the
keys that a row does not see are masked: the CPU kernel sums blocks of 512 keys, and a shorter last block would be summed in another order.
The number of query rows is a multiple of `MULTIPLE`: the kernel takes 32 of them at a time, and a last group of fewer than 4 takes another
product. Measured on an AMD EPYC in float32 and bfloat16, for head widths 64 and 128, 120 to 980 keys, 1 to 32 rows, with and without
grouped queries: no bit differs. Blocks of 256 keys or fewer do differ.

Grouped queries are folded into the rows, so keys are never repeated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from engine.kernels.attention_backends import without_cudnn

NAME = "foretoken"
MULTIPLE = 4
CPU_BLOCK, OTHER_BLOCK = 512, 8


def block_of(device: torch.device) -> int:
    """The number of keys in a block."""
    return CPU_BLOCK if device.type == "cpu" else OTHER_BLOCK


def whole_blocks(count: int, device: torch.device) -> int:
    """A number of keys, rounded up to whole blocks."""
    block = block_of(device)
    return -(-count // block) * block


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    joint: Any = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """The attention function of transformers: query [B, heads, R, D], key and value [B, key heads, K, D] -> [B, R, heads, D].

    attention_mask : bool [B or 1, 1, R, K], True = visible. It is never None, because keys come in whole blocks.
    joint : of several runs (hosted.py), which has the keys, values and masks itself
    """
    if joint is not None:
        return joint.attend(module, query, scaling), None
    assert attention_mask is not None, "this attention is for hosted decoders; use another copy of the model for its own generate"
    branches, heads, count, width = query.shape
    groups, mask = heads // key.shape[1], attention_mask
    missing = -count % MULTIPLE
    if missing:
        query = F.pad(query, (0, 0, 0, missing))
        mask = torch.cat([mask, mask[:, :, -1:].expand(-1, -1, missing, -1)], 2)
    rows = count + missing
    if groups > 1:
        query, mask = query.reshape(branches, -1, groups * rows, width), mask.repeat(1, 1, groups, 1)
    with without_cudnn(query.device):
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return out.reshape(branches, heads, rows, width)[:, :, :count].transpose(1, 2), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)

"""Linear layers whose weights are stored in 8 or 4 bits and expanded for each product.

int8 : one scale per output channel, the largest magnitude divided by 127; symmetric, rounded to nearest.
nf4  : 4-bit NormalFloat, QLoRA (arXiv 2305.14314), appendix E: 16 quantiles of a normal distribution; blocks of 64 numbers of the flattened
       weight, each with the block's largest magnitude as its scale; two codes per byte.

The weight that a layer uses is the expanded one, in the model's dtype. A row has the same bits alone and in every window, as in
`steady_linear.py`, so exact methods stay exact relative to these weights. That is why the layers are ours: the products of bitsandbytes
0.50 and torchao 0.18 give a row other bits alone than in a window (measured on a CPU in float32: 5 of 10 numbers of rows below 33 differ).

Fewest bytes of a product: 1 per number in int8, 0.53 in nf4. PyTorch's int8 product on a CPU in bfloat16 moves no more; all other forms
also write and read the expanded weight, so they save memory and no time. On a CPU a weight is expanded in tiles that stay in its cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.kernels.cpu.steady_linear import WHOLE, Form, SteadyLinear, is_steady
from engine.memory import FULL, INT8, NF4, NF4_BLOCK

AS_IS = Form(WHOLE, 1)
FORMS = (Form(WHOLE), Form(WHOLE, 16), Form(WHOLE, 16, fixed=True))  # on a CPU, where plain products of few rows depend on their number
QUANTILES = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495,
    0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
TILE = 2**19  # numbers of a weight that are expanded at once on a CPU: they stay in its cache
PAIR = {torch.float32: torch.int64, torch.bfloat16: torch.int32, torch.float16: torch.int32}  # an integer as wide as two numbers


class StoredWeight(NamedTuple):
    """A stored weight. codes : int8 [out, in], or uint8 [blocks * 32] for nf4; scales : [out, 1] or [blocks, 1] in the model's dtype"""

    codes: Tensor
    scales: Tensor


def compress_int8(weight: Tensor) -> StoredWeight:
    """The int8 form of a weight [out, in]."""
    scales = (weight.abs().amax(1, keepdim=True).float() / 127).to(weight.dtype)
    codes = (weight.float() / scales.float().clamp(min=torch.finfo(torch.float32).tiny)).round().clamp(-127, 127)
    return StoredWeight(codes.to(torch.int8), scales)


def compress_nf4(weight: Tensor) -> StoredWeight:
    """The nf4 form of a weight [out, in]; the last block is filled with zeros."""
    flat = F.pad(weight.flatten(), (0, -weight.numel() % NF4_BLOCK)).view(-1, NF4_BLOCK)
    scales = flat.abs().amax(1, keepdim=True)
    quantiles = torch.tensor(QUANTILES, device=weight.device)
    parts = (flat.float() / scales.float().clamp(min=torch.finfo(torch.float32).tiny)).flatten()
    codes = torch.bucketize(parts, (quantiles[1:] + quantiles[:-1]) / 2).to(torch.uint8)
    return StoredWeight(codes[0::2] << 4 | codes[1::2], scales)


def expand_nf4(stored: StoredWeight, pairs: Tensor) -> Tensor:
    """The numbers of an nf4 weight [blocks * 64]. pairs : see `pair_table`"""
    numbers = pairs.index_select(0, stored.codes.int()).view(stored.scales.dtype)
    return numbers.view(-1, NF4_BLOCK).mul_(stored.scales).flatten()


def pair_table(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The two numbers of each byte, as one integer: [256]."""
    byte, quantiles = torch.arange(256, device=device), torch.tensor(QUANTILES, device=device).to(dtype)
    return torch.stack([quantiles[byte >> 4], quantiles[byte & 15]], -1).view(PAIR[dtype]).flatten()


class CompressedLinear(SteadyLinear):
    """A linear layer for inference that stores its weight in int8 or nf4."""

    def __init__(self, weight: Tensor, bias: Tensor | None, kind: str, form: Form):
        """weight : [out, in] in the model's dtype; bias : [out] or None; kind : "int8" or "nf4"; form : of the product's rows"""
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        self.kind, self.form, self.dtype = kind, form, weight.dtype
        stored = compress_int8(weight) if kind == INT8 else compress_nf4(weight)
        self.register_buffer("codes", stored.codes)
        self.register_buffer("scales", stored.scales)
        self.register_buffer("bias", bias)
        self.register_buffer("pairs", pair_table(weight.dtype, weight.device) if kind == NF4 else None, persistent=False)
        fits = self.in_features % 16 == 0 and self.out_features % 4 == 0  # PyTorch crashes with other shapes
        self.multiplies_codes = kind == INT8 and fits and weight.device.type == "cpu" and weight.dtype == torch.bfloat16

        self.tile = self.out_features  # output channels that are expanded at once
        if weight.device.type == "cpu" and (kind == INT8 or self.in_features % NF4_BLOCK == 0):
            self.tile = max(1, TILE // self.in_features)

    def expanded(self) -> Tensor:
        """The weight that products use, [out, in]."""
        return self._expand(0, self.out_features)

    def _expand(self, first: int, last: int) -> Tensor:
        """The output channels first .. last - 1 of the weight. For nf4 they are whole blocks, or all."""
        if self.kind == INT8:
            return self.codes[first:last].to(self.dtype).mul_(self.scales[first:last])
        blocks = slice(first * self.in_features // NF4_BLOCK, -(-last * self.in_features // NF4_BLOCK))
        codes = self.codes[blocks.start * (NF4_BLOCK // 2) : blocks.stop * (NF4_BLOCK // 2)]
        numbers = expand_nf4(StoredWeight(codes, self.scales[blocks]), self.pairs)
        return numbers[: (last - first) * self.in_features].view(last - first, self.in_features)

    def _product(self, rows: Tensor) -> Tensor:
        if self.multiplies_codes:
            out = torch._weight_int8pack_mm(rows.contiguous(), self.codes, self.scales.flatten())
        else:
            firsts = range(0, self.out_features, self.tile)
            parts = [F.linear(rows, self._expand(first, min(first + self.tile, self.out_features))) for first in firsts]
            out = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        return out if self.bias is None else out + self.bias


def compress(module: nn.Module, kind: str, device: str | torch.device, dtype: torch.dtype | None = None) -> nn.Module:
    """Replaces every linear layer inside a module by a compressed one on a device; returns the module, unchanged for the kind "full".

    Each layer is converted to the dtype (None: its own), moved and compressed before the next one, so besides the compressed layers the
    device holds one plain layer at a time, and the machine none if the weights are mapped from files.
    """
    forms: dict[tuple[int, int], Form] = {}
    for child in [child for child in module.modules() if kind != FULL and not isinstance(child, nn.Linear)]:
        for name in [name for name, layer in child.named_children() if isinstance(layer, nn.Linear)]:
            setattr(child, name, _compressed(getattr(child, name), kind, device, dtype, forms))
    return module


def _compressed(
    layer: nn.Linear, kind: str, device: str | torch.device, dtype: torch.dtype | None, forms: dict[tuple[int, int], Form]
) -> CompressedLinear:
    weight = layer.weight.detach().to(device, dtype)
    small = CompressedLinear(weight, None if layer.bias is None else layer.bias.detach().to(device, dtype), kind, AS_IS)
    if weight.device.type == "cpu":
        shape = (small.out_features, small.in_features)
        small.form = forms[shape] = forms.get(shape) or _steady_form(small)
    return small


def _steady_form(layer: CompressedLinear) -> Form:
    for form in (AS_IS, *FORMS) if layer.multiplies_codes else FORMS:
        layer.form = form
        if is_steady(layer, layer.dtype):
            break
    return layer.form

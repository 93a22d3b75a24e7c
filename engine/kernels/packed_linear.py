"""Linear layers of a processor with weights packed once, in the blocks that oneDNN multiplies.

In float32 a layer of many weights is faster packed from two rows on (a third to nine tenths of the time); a small one is not, and stays
as it is. In bfloat16, on processors that multiply it in hardware, x and W are
rounded to bfloat16, products summed in float32, the result rounded to bfloat16.

A row's result must not depend on how many rows are computed with it: otherwise plain decoding and a window would see different
laws, and `match seed` would drift. In bfloat16 oneDNN divides long sums among threads in a way that depends on the number of rows, so
the inner dimension is cut into pieces of at most 448, for which it does not (the test compares rows bit by bit, in both types).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.machine import has_fast_bfloat16

PIECE = 448
WIDTH_HINT = 64  # rows that the packed layout is chosen for
LARGE = 2**17  # weights from which a layer is faster packed, in float32


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """True where packed layers of a type work and are fast."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and (dtype == torch.float32 or has_fast_bfloat16())


class PackedLinear(nn.Linear):
    """A linear layer, out of a plain one; with gradients it computes as that one did, for packed products know none."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype = torch.float32):
        """dtype : of products and result; bfloat16 is for layers without bias."""
        nn.Module.__init__(self)  # the weights are there already
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        pieces = 1 if dtype == torch.float32 else -(-self.in_features // PIECE)
        self.dtype, self.width = dtype, -(-self.in_features // pieces)
        parts = layer.weight.detach().to(dtype).split(self.width, 1)
        self.packed = [torch.ops.mkldnn._reorder_linear_weight(p.contiguous(), WIDTH_HINT) for p in parts]

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        if torch.is_grad_enabled():
            return super().forward(x)
        x = x.to(self.dtype)
        if len(self.packed) == 1:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed[0], self.bias, "none", [], "")
        parts = zip(x.split(self.width, -1), self.packed, strict=True)
        return sum(torch.ops.mkldnn._linear_pointwise(a.contiguous(), w, None, "none", [], "") for a, w in parts)


def packed_linear_reference(x: Tensor, layer: nn.Linear, dtype: torch.dtype = torch.float32) -> Tensor:
    """The same function with float32 sums in plain PyTorch: [..., in] -> [..., out]."""
    return F.linear(x.to(dtype).float(), layer.weight.to(dtype).float(), layer.bias).to(dtype)


def pack(module: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """Replaces the linear layers inside a module that gain by it: in float32 the large ones, in bfloat16 all without bias. What changes a
    weight later is not seen."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and (child.weight.numel() >= LARGE if dtype == torch.float32 else child.bias is None):
            setattr(module, name, PackedLinear(child, dtype))
        else:
            pack(child, dtype)

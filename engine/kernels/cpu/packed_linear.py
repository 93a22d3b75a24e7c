"""Linear layers for CPUs, with weights packed once into the blocks that oneDNN multiplies.

In float32 a large layer is faster packed from two rows on (a third to nine tenths of the time); a small one is not, and is left as it
is. In bfloat16, on CPUs that multiply it in hardware, x and W are rounded to bfloat16, products are summed in float32, and the result
is rounded to bfloat16.

A row's result must not depend on the number of rows computed with it: otherwise plain decoding and a window would see different
distributions, and `match seed` would drift. In bfloat16 oneDNN divides long sums among threads in a way that depends on the number of
rows. So the inner dimension is cut into pieces of at most 448, where it does not (a test compares rows bit by bit, in both types).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.machine import has_fast_bfloat16

PIECE = 448
WIDTH_HINT = 64  # the number of rows that the packed layout is optimised for
LARGE = 2**17  # the number of weights from which a layer is faster packed, in float32


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """Whether packed layers of a type work and are fast here."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and (dtype == torch.float32 or has_fast_bfloat16())


class PackedLinear(nn.Linear):
    """A packed copy of a plain linear layer. Packed products have no gradient; with gradients enabled it computes as the plain layer."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype = torch.float32):
        """dtype : of products and result; bfloat16 is for layers without bias."""
        nn.Module.__init__(self)  # the weights exist already
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
    """Replaces the linear layers inside a module that gain from packing: in float32 the large ones, in bfloat16 all without bias. Later
    changes of a weight have no effect."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and (child.weight.numel() >= LARGE if dtype == torch.float32 else child.bias is None):
            setattr(module, name, PackedLinear(child, dtype))
        else:
            pack(child, dtype)

"""Linear layers for CPUs, with weights packed once into the blocks that oneDNN multiplies.

In float32 a large layer is faster packed from two rows on (a third to nine tenths of the time); a small one is not, and is left as it
is. A row's result does not depend on the number of rows computed with it (a test compares bits): otherwise plain decoding and a window
would see different distributions, and `match seed` would drift.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.machine import has_fast_bfloat16

WIDTH_HINT = 64  # the number of rows that the packed layout is optimised for
LARGE = 2**17  # the number of weights from which a layer is faster packed


def can_pack(dtype: torch.dtype = torch.float32) -> bool:
    """True if packed layers of this type work and are fast here."""
    known = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return known and (dtype == torch.float32 or has_fast_bfloat16())


class PackedLinear(nn.Linear):
    """A packed copy of a plain float32 layer. Packed products have no gradient; with gradients enabled it computes as the plain layer."""

    def __init__(self, layer: nn.Linear):
        nn.Module.__init__(self)  # the weights exist already
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach().contiguous(), WIDTH_HINT)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        if torch.is_grad_enabled():
            return super().forward(x)
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def pack(module: nn.Module) -> None:
    """Replaces the large linear layers inside a module. Later changes of a weight have no effect."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and child.weight.numel() >= LARGE:
            setattr(module, name, PackedLinear(child))
        else:
            pack(child)

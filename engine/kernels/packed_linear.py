"""Linear layers on a processor's bfloat16 matrix units (AMX), with weights packed once.

y = x W^T with x and W rounded to bfloat16, products summed in float32, the result rounded to bfloat16. On such a processor a pass over
64 rows costs little more than over two, which is what makes wide verification passes pay.

A row's result must not depend on how many rows are computed with it: otherwise plain decoding and a window would see different
laws, and `match seed` would drift. oneDNN divides long sums among threads in a way that depends on the number of rows, so
the inner dimension is cut into pieces of at most 448, for which it does not (the test compares rows bit by bit).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.machine import has_matrix_units

PIECE = 448
WIDTH_HINT = 64  # rows that the packed layout is chosen for


def is_supported() -> bool:
    """True where packed layers work and are fast."""
    return has_matrix_units() and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class PackedLinear(nn.Module):
    """A linear layer without bias; bfloat16 out."""

    def __init__(self, weight: Tensor):
        """weight : [out, in]"""
        super().__init__()
        pieces = -(-weight.shape[1] // PIECE)
        self.width = -(-weight.shape[1] // pieces)
        parts = weight.detach().bfloat16().split(self.width, 1)
        self.packed = [torch.ops.mkldnn._reorder_linear_weight(p.contiguous(), WIDTH_HINT) for p in parts]

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        x = x.bfloat16()
        if len(self.packed) == 1:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed[0], None, "none", [], "")
        parts = zip(x.split(self.width, -1), self.packed, strict=True)
        return sum(torch.ops.mkldnn._linear_pointwise(a.contiguous(), w, None, "none", [], "") for a, w in parts)


def packed_linear_reference(x: Tensor, weight: Tensor) -> Tensor:
    """The same function with float32 sums in plain PyTorch: [..., in], [out, in] -> [..., out]."""
    return F.linear(x.bfloat16().float(), weight.bfloat16().float()).bfloat16()


def pack(module: nn.Module) -> None:
    """Replaces every bias-free linear layer inside a module by its packed form; for generation only, there is no way back."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and child.bias is None:
            setattr(module, name, PackedLinear(child.weight))
        else:
            pack(child)

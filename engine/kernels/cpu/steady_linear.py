"""Linear layers for CPUs whose result for a row does not depend, bit for bit, on how many rows are computed with it.

`match seed` promises the tokens of plain decoding. In bfloat16 two ways to compute the same row differ by a part in 256, which is enough
to change a token. What PyTorch's products do (AMD EPYC with AVX-512 bfloat16, 17 shapes, 1 to 128 rows, 1 and 2 threads): from two rows
on a row has the same bits whatever the number of rows; a single row is computed another way and differs. In float32 plain products depend
on the number of rows up to 10, packed ones again only where there is a single row.

So weights are packed once, and a single row is computed with a second one of zeros. It costs the same time, because the weights have to
be read anyway. Other CPUs may divide a sum differently, so each shape is tried when a model is loaded: packed whole, packed in pieces of
the inner dimension, else in blocks of a fixed number of rows. The first form that gives equal bits is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.kernels.cpu.packed_linear import WIDTH_HINT, can_pack

PIECE = 448  # of the inner dimension: in bfloat16 oneDNN divides longer sums among threads by the number of rows
TRIED = (2, 3, 4, 5, 7, 8, 11, 16, 17, 31, 32, 33, 64)  # numbers of rows that a form must agree on


@dataclass(frozen=True)
class Form:
    """Form in which a product is computed.

    piece : longest piece of the inner dimension that is multiplied at once
    least : fewest rows that are multiplied at once; fewer are padded with zeros
    fixed : whether rows are multiplied in blocks of exactly `least`
    """

    piece: int
    least: int = 2
    fixed: bool = False


WHOLE = 2**30
FORMS = (Form(WHOLE), Form(PIECE), Form(WHOLE, 16, fixed=True))


class SteadyLinear(nn.Module):
    """A linear layer for inference, which keeps only packed weights."""

    def __init__(self, weight: Tensor, bias: Tensor | None, form: Form):
        """weight : [out, in]; bias : [out] or None"""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.form, self.bias, self.dtype = form, bias, weight.dtype
        pieces = -(-self.in_features // form.piece)
        self.width = -(-self.in_features // pieces)
        self.packed = [torch.ops.mkldnn._reorder_linear_weight(part.contiguous(), WIDTH_HINT) for part in weight.split(self.width, 1)]

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        rows = x.reshape(-1, self.in_features)
        count, least = len(rows), self.form.least
        missing = -count % least if self.form.fixed else max(0, least - count)
        if missing:
            rows = F.pad(rows, (0, 0, 0, missing))
        blocks = rows.split(least) if self.form.fixed else [rows]
        out = torch.cat([self._product(block) for block in blocks]) if len(blocks) > 1 else self._product(blocks[0])
        return out[:count].view(*x.shape[:-1], self.out_features)

    @torch.inference_mode()
    def expanded(self) -> Tensor:
        """The weight [out, in] that the layer was packed from: its products with the rows of the identity, which are exact."""
        bias, self.bias = self.bias, None
        try:
            return self(torch.eye(self.in_features, dtype=self.dtype)).T.contiguous()
        finally:
            self.bias = bias

    def _product(self, rows: Tensor) -> Tensor:
        multiply = torch.ops.mkldnn._linear_pointwise
        if len(self.packed) == 1:
            return multiply(rows, self.packed[0], self.bias, "none", [], "")
        out = multiply(rows[:, : self.width].contiguous(), self.packed[0], self.bias, "none", [], "")
        for part, weight in zip(rows.split(self.width, 1)[1:], self.packed[1:], strict=True):
            out += multiply(part.contiguous(), weight, None, "none", [], "")
        return out


def is_steady(layer: SteadyLinear, dtype: torch.dtype) -> bool:
    """True if rows of random numbers have the same bits in passes of all `TRIED` numbers of rows and alone."""
    x = torch.randn(max(TRIED), layer.in_features, generator=torch.Generator().manual_seed(0)).to(dtype)
    whole = layer(x)
    return all(torch.equal(layer(x[:count]), whole[:count]) for count in TRIED) and torch.equal(layer(x[5:6]), whole[5:6])


@torch.inference_mode()
def make_steady(modules: Sequence[nn.Module]) -> dict[tuple[int, int], Form]:
    """Replaces every linear layer inside some modules on a CPU. Returns the form of each shape (out, in); {} where layers cannot be packed.

    The plain weights are dropped layer by layer, so no more memory is needed than one layer takes.
    """
    forms: dict[tuple[int, int], Form] = {}
    for module in modules:
        for child in [child for child in module.modules() if not isinstance(child, nn.Linear)]:
            for own in [own for own, layer in child.named_children() if _can_be(layer)]:  # names: a list of layers would keep their weights
                setattr(child, own, _steady(getattr(child, own), forms))
    return forms


def _can_be(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) and layer.weight.device.type == "cpu" and can_pack(layer.weight.dtype)


def _steady(layer: nn.Linear, forms: dict[tuple[int, int], Form]) -> SteadyLinear:
    weight, bias, shape = layer.weight.detach(), None if layer.bias is None else layer.bias.detach(), tuple(layer.weight.shape)
    if shape in forms:
        return SteadyLinear(weight, bias, forms[shape])
    for form in FORMS:
        steady = SteadyLinear(weight, bias, form)
        forms[shape] = form
        if is_steady(steady, weight.dtype):
            break
    return steady

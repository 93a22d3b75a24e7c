"""Packed linear layers: the reference's function, and rows that do not depend on how many are computed together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.kernels.packed_linear import PackedLinear, is_supported, pack, packed_linear_reference

needs_matrix_units = pytest.mark.skipif(not is_supported(), reason="this CPU has no bfloat16 matrix units (AMX)")
SHAPES = [(320, 960), (320, 320), (320, 1792), (896, 320), (7, 63), (1000, 65)]


@needs_matrix_units
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_it_is_the_reference_up_to_the_last_rounding(inner: int, outer: int) -> None:
    torch.manual_seed(0)
    weight, x = torch.randn(outer, inner) / inner**0.5, torch.randn(2, 33, inner)
    ours, theirs = PackedLinear(weight)(x).float(), packed_linear_reference(x, weight).float()
    pieces = -(-inner // 448)
    assert (ours - theirs).abs().max() <= pieces * 2**-7 * theirs.abs().max()
    assert PackedLinear(weight)(x).dtype == torch.bfloat16


@needs_matrix_units
@pytest.mark.parametrize(("inner", "outer"), SHAPES[:4])
def test_a_row_does_not_depend_on_the_others(inner: int, outer: int) -> None:
    for trial in range(10):
        torch.manual_seed(trial)
        layer, x = PackedLinear(torch.randn(outer, inner) / inner**0.5), torch.randn(128, inner)
        whole = layer(x)
        for rows in (1, 2, 3, 4, 8, 12, 16, 24, 32, 64, 66):
            assert torch.equal(layer(x[:rows]), whole[:rows]), (rows, trial)


@needs_matrix_units
def test_pack_replaces_every_linear_layer_without_bias() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Sequential(nn.Linear(8, 4, bias=False), nn.Linear(4, 2)))
    pack(model)
    assert isinstance(model[0], PackedLinear) and isinstance(model[1][0], PackedLinear)
    assert isinstance(model[1][1], nn.Linear)

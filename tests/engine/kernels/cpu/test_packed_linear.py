"""Packed linear layers: the plain layer's function, and rows that do not depend on how many are computed together."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from engine.kernels.cpu.packed_linear import PackedLinear, can_pack, pack

pytestmark = pytest.mark.skipif(not can_pack(), reason="this processor has no fast packed layers")
SHAPES = [(320, 960), (320, 320), (320, 1792), (896, 320), (7, 63), (1000, 65)]


def linear(inner: int, outer: int, bias: bool = False, seed: int = 0) -> nn.Linear:
    """A layer with random weights of usual size."""
    torch.manual_seed(seed)
    layer = nn.Linear(inner, outer, bias)
    nn.init.normal_(layer.weight, std=inner**-0.5)
    return layer


@pytest.mark.parametrize(("inner", "outer"), SHAPES)
@torch.no_grad()
def test_it_is_the_plain_layer_up_to_the_last_rounding(inner: int, outer: int) -> None:
    layer, x = linear(inner, outer), torch.randn(2, 33, inner)
    ours, theirs = PackedLinear(layer)(x), layer(x)
    assert (ours - theirs).abs().max() <= 2**-18 * theirs.abs().max()


@pytest.mark.parametrize(("inner", "outer"), [*SHAPES[:4], (320, 4375)])
@torch.no_grad()
def test_a_row_does_not_depend_on_the_others(inner: int, outer: int) -> None:
    for trial in range(10):
        layer, x = PackedLinear(linear(inner, outer, seed=trial)), torch.randn(128, inner)
        whole = layer(x)
        for rows in (1, 2, 3, 4, 8, 12, 16, 24, 32, 64, 66):
            assert torch.equal(layer(x[:rows]), whole[:rows]), (rows, trial)


@torch.no_grad()
def test_a_bias_is_added_and_rows_may_lie_apart() -> None:
    layer, x = linear(192, 700, bias=True), torch.randn(2, 9, 192)
    packed = PackedLinear(layer)
    torch.testing.assert_close(packed(x), layer(x), atol=1e-5, rtol=1e-5)
    assert torch.equal(packed(x[:, ::2]), packed(x[:, ::2].contiguous())) and torch.equal(packed(x[0, 0]), packed(x[0, :1])[0])


def test_gradients_flow_as_through_the_plain_layer() -> None:
    layer, x = linear(320, 960), torch.randn(3, 320, requires_grad=True)
    PackedLinear(layer)(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(0).expand(3, -1))
    assert layer.weight.grad is not None


def test_pack_takes_the_large_layers() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Sequential(nn.Linear(512, 256), nn.Linear(512, 255)))
    state = model.state_dict()
    pack(model)
    assert isinstance(model[1][0], PackedLinear) and not isinstance(model[0], PackedLinear) and not isinstance(model[1][1], PackedLinear)
    assert model.state_dict().keys() == state.keys() and torch.equal(model.state_dict()["1.0.bias"], state["1.0.bias"])

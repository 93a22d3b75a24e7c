"""Linear layers with int8 and nf4 weights: what they store, their product, and the bits of a row in any company."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.kernels.compressed_linear import QUANTILES, CompressedLinear, compress
from engine.memory import FORMS, INT8, NF4, NF4_BLOCK, Size, linear_bytes
from research.train.adapters import restore_linear

KINDS, DTYPES = FORMS[1:], (torch.float32, torch.bfloat16)
SHAPES = [(320, 2000), (8, 7), (6, 63), (48, 20), (1000, 65), (2048, 256)]  # in, out; some are no whole nf4 blocks
COUNTS = (1, 2, 3, 5, 7, 8, 13, 31, 64, 100)


def plain_layer(inner: int, outer: int, dtype: torch.dtype, bias: bool = True) -> nn.Linear:
    """A layer with random weights, one output channel of zeros and one much larger."""
    torch.manual_seed(inner + outer)
    plain = nn.Linear(inner, outer, bias)
    nn.init.normal_(plain.weight, std=inner**-0.5)
    with torch.no_grad():
        plain.weight[0], plain.weight[1] = 0.0, 50 * plain.weight[1]
    return plain.to(dtype).requires_grad_(False)


def compressed(plain: nn.Linear, kind: str) -> CompressedLinear:
    """The compressed layer, as `compress` replaces it."""
    module = compress(nn.Sequential(plain), kind, "cpu")
    assert isinstance(module[0], CompressedLinear)
    return module[0]


def nearest_int8(weight: Tensor) -> Tensor:
    """The reference: each row divided by its scale and rounded."""
    scales = (weight.abs().amax(1, keepdim=True).float() / 127).to(weight.dtype).float()
    return torch.where(scales > 0, (weight.float() / scales).round().clamp(-127, 127) * scales, 0.0)


def nearest_nf4(weight: Tensor) -> Tensor:
    """The reference: for each number of a block the nearest of the sixteen multiples of its scale."""
    flat = F.pad(weight.float().flatten(), (0, -weight.numel() % NF4_BLOCK)).view(-1, NF4_BLOCK, 1)
    choices = torch.tensor(QUANTILES) * flat.abs().amax(1, keepdim=True)
    best = (flat - choices).abs().argmin(-1, keepdim=True)
    return choices.expand(-1, NF4_BLOCK, -1).gather(-1, best).flatten()[: weight.numel()].view(weight.shape)


REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {INT8: nearest_int8, NF4: nearest_nf4}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_it_is_the_product_with_the_nearest_weights(inner: int, outer: int, dtype: torch.dtype, kind: str) -> None:
    plain = plain_layer(inner, outer, dtype)
    own, tolerance = compressed(plain, kind), 2**-16 if dtype == torch.float32 else 2**-7
    expected = REFERENCES[kind](plain.weight)
    assert (own.expanded().float() - expected).abs().max() <= tolerance * expected.abs().max()
    for rows in (1, 7, 63):
        x = torch.randn(2, rows, inner).to(dtype)
        theirs = F.linear(x.float(), own.expanded().float(), plain.bias.float())
        assert own(x).shape == theirs.shape and own(x).dtype == dtype
        assert (own(x).float() - theirs).abs().max() <= tolerance * theirs.abs().max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_a_row_has_the_same_bits_in_any_company(inner: int, outer: int, dtype: torch.dtype, kind: str) -> None:
    own, x = compressed(plain_layer(inner, outer, dtype), kind), torch.randn(130, inner).to(dtype)
    whole = own(x)
    for first, count in (*((0, count) for count in COUNTS), (5, 1), (129, 1), (3, 6), (40, 19)):
        assert torch.equal(own(x[first : first + count]), whole[first : first + count]), (first, count)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_it_holds_the_bytes_of_the_estimate(kind: str, dtype: torch.dtype) -> None:
    """Apart from int8's scales, nf4's table, and the one layer that is expanded."""
    own, each = compressed(plain_layer(512, 256, dtype, bias=False), kind), dtype.itemsize
    numbers = 512 * 256
    held = own.codes.nbytes + own.scales.nbytes
    estimate = linear_bytes(Size(numbers, 1, 1, 1, 1, 1, linear=numbers), each, kind) - numbers * each // 2
    assert held == estimate + (256 * each if kind == INT8 else 0)
    assert not list(own.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_it_becomes_a_plain_layer_for_training(kind: str) -> None:
    module = nn.Sequential(plain_layer(64, 48, torch.float32))
    compress(module, kind, "cpu")
    x = torch.randn(5, 64)
    before = module(x)
    restore_linear(module)
    assert type(module[0]) is nn.Linear
    torch.testing.assert_close(module(x), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_elsewhere_is_one_graph_that_reads_nothing(kind: str) -> None:
    """As a pass that is captured on a GPU needs it; on the meta device every read would fail."""
    layer = compress(nn.Sequential(plain_layer(128, 96, torch.bfloat16)), kind, "meta")[0]
    assert layer.form.least == 1 and layer.tile == 96 and not layer.multiplies_codes
    x = torch.empty(2, 5, 128, dtype=torch.bfloat16, device="meta")
    with torch.inference_mode(False):
        product = torch.compile(layer.forward, backend="eager", fullgraph=True)
        assert product(x).shape == (2, 5, 96) and product(x).device.type == "meta"

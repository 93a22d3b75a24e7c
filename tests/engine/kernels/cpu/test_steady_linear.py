"""The steady linear layer: the bits of a row do not depend on the rows beside it, and the result is that of the plain layer."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from engine.kernels.cpu import steady_linear
from engine.kernels.cpu.packed_linear import can_pack
from engine.kernels.cpu.steady_linear import FORMS, Form, SteadyLinear, is_steady, steady, steady_linear_reference

SHAPES = [(48, 32), (1000, 130), (2048, 512), (512, 2048), (5632, 1024)]  # out, in
KINDS = [pytest.param(kind, marks=pytest.mark.skipif(not can_pack(kind), reason=f"{kind} is not packed here")) for kind in
         (torch.float32, torch.bfloat16)]  # fmt: skip


def layer(shape: tuple[int, int], kind: torch.dtype, bias: bool = True) -> nn.Linear:
    """A random layer."""
    torch.manual_seed(sum(shape))
    return nn.Linear(shape[1], shape[0], bias=bias).to(kind).requires_grad_(False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_product(form: Form, shape: tuple[int, int], kind: torch.dtype) -> None:
    plain = layer(shape, kind)
    packed = SteadyLinear(plain.weight, plain.bias, form)
    with torch.inference_mode():
        for rows in (1, 7, 63):
            x = torch.randn(2, rows, shape[1]).to(kind)
            expected = steady_linear_reference(x, plain.weight, plain.bias)
            assert packed(x).shape == expected.shape and packed(x).dtype == kind
            torch.testing.assert_close(packed(x), expected, atol=1e-5 if kind == torch.float32 else 3e-2, rtol=2e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_in_any_company(shape: tuple[int, int], kind: torch.dtype) -> None:
    """Also for numbers of rows that the probe did not try, and from any place in the pass."""
    module = nn.Sequential(layer(shape, kind))
    forms = steady([module])
    assert isinstance(module[0], SteadyLinear) and list(forms) == [shape]
    with torch.inference_mode():
        x = torch.randn(130, shape[1]).to(kind)
        whole = module(x)
        for first, count in ((0, 1), (77, 1), (129, 1), (3, 6), (40, 19), (0, 100)):
            assert torch.equal(module(x[first : first + count]), whole[first : first + count]), (first, count)


def test_a_form_that_depends_on_the_rows_is_found_out() -> None:
    """A layer whose single rows are computed apart, as plain products do: the probe must see it."""

    class Apart(SteadyLinear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = super().forward(x)
            return found if len(x) > 1 else torch.nextafter(found, found + 1)

    plain = layer((48, 32), torch.float32)
    assert is_steady(SteadyLinear(plain.weight, plain.bias, FORMS[0]), torch.float32)
    assert not is_steady(Apart(plain.weight, plain.bias, FORMS[0]), torch.float32)


@pytest.mark.skipif(not can_pack(), reason="layers are not packed here")
def test_plain_weights_are_dropped_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a large model would need its memory twice."""
    module = nn.Sequential(*(layer((64, 64), torch.float32) for _ in range(5)))
    weights = [weakref.ref(child.weight) for child in module]
    alive = []
    replaced = steady_linear._replaced

    def watched(*given: object) -> SteadyLinear:
        alive.append(sum(weight() is not None for weight in weights))
        return replaced(*given)

    monkeypatch.setattr(steady_linear, "_replaced", watched)
    steady([module])
    assert alive == [5, 4, 3, 2, 1]
    assert all(weight() is None for weight in weights)


def test_blocks_of_fixed_size_are_filled_up() -> None:
    plain = layer((48, 32), torch.float32)
    blocks = SteadyLinear(plain.weight, plain.bias, Form(2**30, 16, fixed=True))
    seen = []
    product = blocks._product
    blocks._product = lambda rows: seen.append(len(rows)) or product(rows)
    with torch.inference_mode():
        assert blocks(torch.randn(35, 32)).shape == (35, 48)
    assert seen == [16, 16, 16]

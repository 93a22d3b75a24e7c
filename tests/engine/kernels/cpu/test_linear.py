"""Linear layers on a processor: each computes the product, and the bits of a row do not depend on its neighbours."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.kernels.cpu import steady_linear
from engine.kernels.cpu.blocks import NativeLinear
from engine.kernels.cpu.library import build
from engine.kernels.cpu.packed_linear import PackedLinear, can_pack, pack
from engine.kernels.cpu.steady_linear import FORMS, Form, SteadyLinear, is_steady, make_steady
from tests.engine.kernels.cpu.test_blocks import HALF, needs_native

pytestmark = pytest.mark.usefixtures("inference")
SHAPES = [(320, 960), (896, 320), (192, 5121), (8, 7), (64, 33), (6, 63), (1000, 65), (2048, 1024)]  # in, out
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 13, 24, 31, 64, 100)
needs_packs = pytest.mark.skipif(not can_pack(), reason="this processor has no fast packed layers")
needs_half_packs = pytest.mark.skipif(not can_pack(torch.bfloat16), reason="bfloat16 is not packed here")
needs_half = pytest.mark.skipif(not HALF, reason="no instruction for products in bfloat16")


def layer(inner: int, outer: int, bias: bool = True, dtype: torch.dtype = torch.float32) -> nn.Linear:
    """A layer with random weights of usual size."""
    torch.manual_seed(inner + outer)
    plain = nn.Linear(inner, outer, bias)
    nn.init.normal_(plain.weight, std=inner**-0.5)
    return plain.to(dtype).requires_grad_(False)


def steady_layer(plain: nn.Linear) -> nn.Module:
    """The steady form that the probe chooses."""
    module = nn.Sequential(plain)
    assert list(make_steady([module])) == [tuple(plain.weight.shape)] and isinstance(module[0], SteadyLinear)
    return module[0]


def form_of(form: Form) -> Callable[[nn.Linear], nn.Module]:
    """A form of steady layers."""
    return lambda plain: SteadyLinear(plain.weight, plain.bias, form)


F32, HALVES = torch.float32, torch.bfloat16
LAYERS = [  # how to convert a plain layer, and the dtype of its products
    pytest.param(lambda plain: NativeLinear(plain, F32), F32, id="native", marks=needs_native),
    pytest.param(lambda plain: NativeLinear(plain, HALVES), HALVES, id="native-half", marks=[needs_native, needs_half]),
    pytest.param(PackedLinear, F32, id="packed", marks=needs_packs),
    pytest.param(steady_layer, F32, id="steady", marks=needs_packs),
    pytest.param(steady_layer, HALVES, id="steady-half", marks=needs_half_packs),
]
EVERY_FORM = [pytest.param(form_of(form), F32, id=f"form-{i}", marks=needs_packs) for i, form in enumerate(FORMS)] + [
    pytest.param(form_of(form), HALVES, id=f"form-{i}-half", marks=needs_half_packs) for i, form in enumerate(FORMS)
]


def rounded_product(x: Tensor, plain: nn.Linear, dtype: torch.dtype) -> Tensor:
    """The product of numbers in a type, summed in float32."""
    return F.linear(x.to(dtype).float(), plain.weight.to(dtype).float(), plain.bias.float())


@pytest.mark.parametrize(("make", "dtype"), LAYERS + EVERY_FORM)
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_it_is_the_product(inner: int, outer: int, make: Callable[[nn.Linear], nn.Module], dtype: torch.dtype) -> None:
    """Also for rows that are not contiguous."""
    expects = dtype if isinstance(make(layer(inner, outer)), SteadyLinear) else F32
    own = make(layer(inner, outer, dtype=expects))
    for rows in (1, 7, 63):
        x = torch.randn(2, rows, inner).to(expects)
        ours, theirs = own(x), rounded_product(x, layer(inner, outer, dtype=expects), dtype)
        assert ours.shape == theirs.shape and ours.dtype == expects
        assert (ours.float() - theirs).abs().max() <= (2**-16 if expects == F32 else 2**-7) * theirs.abs().max()
        if rows > 1:
            assert torch.equal(own(x[:, ::2]), own(x[:, ::2].contiguous()))


@pytest.mark.parametrize(("make", "dtype"), LAYERS)
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_a_row_has_the_same_bits_in_any_company(inner: int, outer: int, make: Callable[[nn.Linear], nn.Module], dtype: torch.dtype) -> None:
    """For any number of rows, including untried ones, any place in the pass and any number of threads."""
    if make is PackedLinear and inner > 1000:
        pytest.skip("wide layers are packed in a steady form")
    kind = dtype if make is steady_layer else F32
    own = make(layer(inner, outer, dtype=kind))
    x = torch.randn(130, inner).to(kind)
    whole = own(x)
    for threads in (1, 2, 3) if isinstance(own, NativeLinear) else (1,):
        torch.set_num_threads(threads)
        for first, count in (*((0, count) for count in COUNTS), (5, 1), (77, 1), (129, 1), (3, 6), (40, 19)):
            assert torch.equal(own(x[first : first + count]), whole[first : first + count]), (first, count, threads)


@pytest.mark.parametrize("make", [LAYERS[0].values[0], PackedLinear])
def test_gradients_flow_as_through_the_plain_layer(make: Callable[[nn.Linear], nn.Module]) -> None:
    if not can_pack() or not build()[0]:
        pytest.skip("no layers of ours here")
    with torch.inference_mode(False), torch.enable_grad():
        plain = layer(320, 960, bias=False).requires_grad_(True)
        own, x = make(plain), torch.randn(3, 320, requires_grad=True)
        own(x).sum().backward()
        torch.testing.assert_close(x.grad, own.weight.detach().sum(0).expand(3, -1))
        assert own.weight.grad is not None


def test_pack_takes_the_large_layers() -> None:
    if not can_pack():
        pytest.skip("this processor has no fast packed layers")
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Sequential(nn.Linear(512, 256), nn.Linear(512, 255)))
    state = model.state_dict()
    pack(model)
    assert isinstance(model[1][0], PackedLinear) and not isinstance(model[0], PackedLinear) and not isinstance(model[1][1], PackedLinear)
    assert model.state_dict().keys() == state.keys() and torch.equal(model.state_dict()["1.0.bias"], state["1.0.bias"])


def test_a_form_that_depends_on_the_rows_is_found_out() -> None:
    """The probe must detect a layer that computes single rows separately, as plain products do."""

    class Apart(SteadyLinear):
        def forward(self, x: Tensor) -> Tensor:
            out = super().forward(x)
            return out if len(x) > 1 else torch.nextafter(out, out + 1)

    plain = layer(32, 48)
    assert is_steady(SteadyLinear(plain.weight, plain.bias, FORMS[0]), F32)
    assert not is_steady(Apart(plain.weight, plain.bias, FORMS[0]), F32)


@needs_packs
def test_plain_weights_are_dropped_layer_by_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a large model would need its memory twice."""
    module = nn.Sequential(*(layer(64, 64) for _ in range(5)))
    weights = [weakref.ref(child.weight) for child in module]
    alive = []
    replaced = steady_linear._steady

    def watch(*arguments: object) -> SteadyLinear:
        alive.append(sum(weight() is not None for weight in weights))
        return replaced(*arguments)

    monkeypatch.setattr(steady_linear, "_steady", watch)
    make_steady([module])
    assert alive == [5, 4, 3, 2, 1]
    assert all(weight() is None for weight in weights)


def test_blocks_of_fixed_size_are_filled_up() -> None:
    plain = layer(32, 48)
    blocks = SteadyLinear(plain.weight, plain.bias, Form(2**30, 16, fixed=True))
    seen = []
    product = blocks._product
    blocks._product = lambda rows: seen.append(len(rows)) or product(rows)
    assert blocks(torch.randn(35, 32)).shape == (35, 48)
    assert seen == [16, 16, 16]

"""The compiled functions against their references, and rows that have the same bits in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import Slab
from engine.errors import NotSupported
from engine.kernels.choice import NATIVE, REFERENCE, TRITON, VARIABLE
from engine.kernels.cpu import library as module
from engine.kernels.cpu.layers import NativeLinear, Row, Turn, attention, attention_to, prepared, product
from engine.kernels.cpu.library import GELU_GATE, LAYER_NORM, ROOT_MEAN_SQUARE, SILU_GATE, built, native, native_choice
from engine.kernels.tree_attention import tree_attention_reference
from engine.machine import has_matrix_units
from engine.networks.transformer import Norm, causal, rotate

pytestmark = pytest.mark.usefixtures("inference")
missing = "" if built()[0] else built()[1]
needs_native = pytest.mark.skipif(bool(missing), reason=missing)
HALF = bool(built()[0] and built()[0].multiplies_half and (built()[0].has_units or not has_matrix_units()))  # else they are not chosen
half = pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not HALF, reason="no instruction for products in bfloat16"))
both = pytest.mark.parametrize("dtype", [torch.float32, half])
SHAPES = [(320, 960), (896, 320), (192, 5121), (8, 7), (64, 33)]
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 13, 24, 31, 64)


def layer(inner: int, outer: int, dtype: torch.dtype, bias: bool = False) -> NativeLinear:
    """A layer with random weights of usual size."""
    torch.manual_seed(0)
    plain = nn.Linear(inner, outer, bias)
    nn.init.normal_(plain.weight, std=inner**-0.5)
    return NativeLinear(plain, native(), dtype)


def near(ours: Tensor, theirs: Tensor, part: float = 2**-18) -> None:
    """Asserts that two results agree to a part of the largest number."""
    assert (ours - theirs).abs().max() <= part * theirs.abs().max()


# --- products ---------------------------------------------------------------------------------------------------------


@needs_native
@both
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_a_product_is_the_reference_up_to_rounding(inner: int, outer: int, dtype: torch.dtype) -> None:
    own = layer(inner, outer, dtype, bias=True)
    for count in (1, 7, 63):
        x = torch.randn(count, inner)
        near(own(x), F.linear(x.to(dtype).float(), own.weight.to(dtype).float(), own.bias), 2**-16)


@needs_native
@both
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_a_row_of_a_product_has_the_same_bits_in_every_pass(inner: int, outer: int, dtype: torch.dtype) -> None:
    own, x = layer(inner, outer, dtype), torch.randn(64, inner)
    whole = own(x)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in COUNTS:
            assert torch.equal(own(x[:count]), whole[:count]), (count, threads)
        assert torch.equal(own(x[5:6]), whole[5:6])


ROWS = {
    "root mean square": (Row(ROOT_MEAN_SQUARE, torch.linspace(0.5, 2, 48), None, (48 * 1e-6) ** 0.5), 48),
    "layer norm": (Row(LAYER_NORM, torch.linspace(0.5, 2, 48), torch.linspace(-1, 1, 48), 1e-5), 48),
    "silu": (Row(SILU_GATE, halves=True), 96),
    "gelu": (Row(GELU_GATE, halves=True), 96),
}


def reference_of(name: str, x: Tensor) -> Tensor:
    """The same in PyTorch."""
    row = ROWS[name][0]
    if name == "root mean square":
        norm = Norm(48)
        norm.weight.copy_(row.weight / norm.scale)
        return norm(x)
    if name == "layer norm":
        return F.layer_norm(x, (48,), row.weight, row.bias, row.constant)
    a, b = x.chunk(2, -1)
    return F.silu(a) * b if name == "silu" else a * F.gelu(b)


@needs_native
@pytest.mark.parametrize("name", ROWS)
def test_a_prepared_row_is_the_reference(name: str) -> None:
    row, width = ROWS[name]
    for scale in (1e-3, 1, 30):
        x = torch.randn(7, width) * scale
        torch.testing.assert_close(prepared(x, row), reference_of(name, x), atol=1e-6 * max(1, scale**2), rtol=1e-5)


@needs_native
@pytest.mark.parametrize("width", [5, 16, 30])
def test_gates_of_any_width_are_whole(width: int) -> None:
    x = torch.randn(3, 2 * width)
    a, b = x.chunk(2, -1)
    torch.testing.assert_close(prepared(x, Row(SILU_GATE, halves=True)), F.silu(a) * b, atol=1e-6, rtol=1e-5)


@needs_native
@both
@pytest.mark.parametrize("name", ROWS)
def test_a_fused_product_has_the_bits_of_its_parts(name: str, dtype: torch.dtype) -> None:
    (row, width), own = ROWS[name], layer(48, 70, dtype, bias=True)
    x, residual = torch.randn(2, 9, width), torch.randn(2, 9, 70)
    fused = product(own, x, row, residual)
    assert torch.equal(fused, residual + own(prepared(x, row)))
    seen = []
    handle = own.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output.clone())))
    assert torch.equal(product(own, x, row, residual), fused)
    handle.remove()
    assert torch.equal(seen[0][0], prepared(x, row)) and torch.equal(residual + seen[0][1], fused)


@needs_native
def test_with_gradients_it_is_the_plain_layer() -> None:
    with torch.inference_mode(False), torch.enable_grad():
        own, x = layer(48, 32, torch.float32), torch.randn(3, 48, requires_grad=True)
        own(x).sum().backward()
        torch.testing.assert_close(x.grad, own.weight.sum(0).expand(3, -1))


# --- attention --------------------------------------------------------------------------------------------------------

HEADS, KEPT = 3, 37


def case(width: int, dtype: torch.dtype, count: int) -> tuple[Tensor, Slab, Turn, Tensor, Tensor]:
    """Mixed rows, a slab with kept rows, norms, cos and sin."""
    torch.manual_seed(1)
    slab = Slab(2, 2, HEADS, 128, width, torch.device("cpu"), dtype)
    slab.block.normal_()
    slab.kept = KEPT
    angles = torch.randn(count, width // 2)
    tables = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
    return torch.randn(2, count, 3 * HEADS * width), slab, Turn(0.3, torch.rand(width) + 1, torch.rand(width) + 1, 0.01), *tables


def parts_of(mixed: Tensor, width: int, turn: Turn, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised and turned queries and keys, and values, [branches, heads, R, width]."""
    q, k, v = mixed.view(*mixed.shape[:2], 3, HEADS, width).unbind(2)
    found = []
    for x, weight in ((q, turn.query), (k, turn.key)):
        length = torch.hypot(x.norm(dim=-1, keepdim=True), torch.tensor(turn.floor))
        found.append(rotate((x / length * weight)[:, :, None], cos, sin)[:, :, 0])
    return *(x.transpose(1, 2) for x in found), v.transpose(1, 2)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("count", [1, 7, 30])
def test_attention_is_the_reference(width: int, dtype: torch.dtype, count: int) -> None:
    mixed, slab, turn, cos, sin = case(width, dtype, count)
    mask = causal(count, KEPT, mixed.device)
    mask[:, 3:9] = False
    before = slab.block.clone()
    ours = attention(mixed, HEADS, turn, slab, 1, mask, cos, sin)
    q, k, v = parts_of(mixed, width, turn, cos, sin)
    assert torch.equal(slab.block[0], before[0]) and torch.equal(slab.block[1, :, :, :, :KEPT], before[1, :, :, :, :KEPT])
    assert torch.equal(slab.block[1, 1, :, :, KEPT : KEPT + count], v.to(dtype))
    torch.testing.assert_close(slab.block[1, 0, :, :, KEPT : KEPT + count].float(), k.to(dtype).float(), atol=1e-5, rtol=2**-7)
    keys, values = (slab.block[1, i, :, :, : KEPT + count].float() for i in (0, 1))
    theirs = tree_attention_reference(q, keys, values, mask, turn.scale).transpose(1, 2).flatten(2)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_has_the_same_bits_in_every_pass(dtype: torch.dtype) -> None:
    mixed, slab, turn, cos, sin = case(64, dtype, 31)
    mask = causal(31, KEPT, mixed.device)
    whole = attention(mixed, HEADS, turn, slab, 0, mask, cos, sin)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in (1, 2, 4, 7, 31):
            part = attention(mixed[:, :count], HEADS, turn, slab, 0, mask[:count, : KEPT + count] if count > 1 else None, cos, sin)
            assert torch.equal(part, whole[:, :count]), (count, threads)


@needs_native
def test_attention_to_fixed_keys_is_the_reference() -> None:
    torch.manual_seed(2)
    queries, (keys, values) = torch.randn(2, 5, HEADS * 32), torch.randn(2, 2, HEADS, 70, 32)
    q = F.normalize(queries.view(2, 5, HEADS, 32), dim=-1).transpose(1, 2)
    theirs = tree_attention_reference(q, keys, values, None, 10.0).transpose(1, 2).flatten(2)
    torch.testing.assert_close(attention_to(queries, keys, values, Turn(10.0)), theirs, atol=1e-5, rtol=1e-4)


@needs_native
def test_a_slab_that_is_full_is_refused() -> None:
    mixed, slab, turn, cos, sin = case(64, torch.float32, 2)
    slab.kept = slab.capacity - 1
    with pytest.raises(AssertionError, match="129 rows do not fit into 128"):
        attention(mixed, HEADS, turn, slab, 0, None, cos, sin)


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder without a library; what this process has built is forgotten before and after."""
    monkeypatch.setattr(module, "folder", lambda: tmp_path / "native")
    built.cache_clear()
    yield tmp_path
    built.cache_clear()


@pytest.mark.parametrize("other", [REFERENCE, TRITON])
def test_a_wish_for_others_is_followed(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    monkeypatch.setenv(VARIABLE, other)
    assert native() is None and native_choice().reason == f"{VARIABLE}={other}."


def test_without_a_compiler_the_reference_runs_and_says_why(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert native() is None and native_choice().reason == "No C compiler was found (cc, gcc, clang)."
    monkeypatch.setenv(VARIABLE, NATIVE)
    with pytest.raises(NotSupported, match=r"native does not work here\. No C compiler was found"):
        native()


def test_a_compiler_that_fails_is_named_with_what_it_said(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    compiler = fresh / "cc"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "no such instruction" >&2\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert native() is None
    assert native_choice().reason == f"{compiler} does not compile native.c (no such instruction)."
    assert not list((fresh / "native").iterdir())


def test_a_damaged_library_is_not_used(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    compiler = fresh / "cc"
    compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && exit 0\nwhile [ "$1" != -o ]; do shift; done\necho no library > "$2"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert native() is None and "could not be compiled or loaded" in native_choice().reason


@needs_native
def test_a_type_without_products_gets_the_reference() -> None:
    assert native_choice(torch.float64).name == REFERENCE and "float64" in native_choice(torch.float64).reason
    assert native_choice().name == NATIVE


@pytest.mark.skipif(not HALF, reason="no instruction for products in bfloat16")
def test_matrix_units_that_the_functions_may_not_use_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_matrix_units", lambda: True)
    monkeypatch.setattr(native(), "has_units", False)
    assert native(torch.bfloat16) is None and "matrix units" in native_choice(torch.bfloat16).reason and native() is not None
    monkeypatch.setenv(VARIABLE, NATIVE)
    assert native(torch.bfloat16) is not None


@needs_native
def test_a_library_is_compiled_once_and_found_again(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    first = native()
    assert first is not None and [path.suffix for path in (fresh / "native").iterdir()] == [".so"]
    monkeypatch.setattr(module, "_compile", lambda *_: pytest.fail("compiled again"))
    built.cache_clear()
    assert native() is not first


def test_libraries_are_kept_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.folder() == tmp_path / "foretoken" / "native"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert module.folder() == Path.home() / ".cache" / "foretoken" / "native"

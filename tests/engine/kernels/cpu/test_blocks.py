"""The compiled functions against their references, and rows that have the same bits in every pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from engine.cache import KVCache
from engine.dispatch.choice import NATIVE, REFERENCE, TRITON, VARIABLE
from engine.errors import NotSupported
from engine.kernels.cpu import library as module
from engine.kernels.cpu.library import build, native, native_choice
from engine.networks.mesh_decoder import MeshDecoder, MeshSettings
from engine.networks.native_blocks import quicken
from engine.networks.transformer import TransformerDecoder, causal_mask

pytestmark = pytest.mark.usefixtures("inference")
missing = "" if build()[0] else build()[1]
needs_native = pytest.mark.skipif(bool(missing), reason=missing)
HALF = bool(build()[0] and build()[0].multiplies_half)
half = pytest.param(torch.bfloat16, marks=pytest.mark.skipif(not HALF, reason="no instruction for products in bfloat16"))
both = pytest.mark.parametrize("dtype", [torch.float32, half])


HEADS, KEPT, LAYERS = 3, 37, 2


class Case:
    """A decoder of pictures or of meshes, plain and in one call, and a cache with kept rows."""

    def __init__(self, kind: str, width: int, inner: int, kv_cache: torch.dtype = torch.float32, dtype: torch.dtype = torch.float32):
        """width : of a head; dtype : of the products"""
        torch.manual_seed(1)
        self.kind, self.width, self.kv_cache = kind, width, kv_cache
        self.plain, self.quick = self.make_network(inner), self.make_network(inner)
        self.quick.load_state_dict(self.plain.state_dict())
        quicken(self.quick, dtype)
        self.kept = torch.randn(LAYERS, 2, 2, HEADS, KEPT, width)
        self.x, angles = torch.randn(2, 31, HEADS * width), torch.randn(31, width // 2)
        self.cos, self.sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
        self.looked = None if kind == "pictures" else self.plain.keys_values(torch.randn(2, 70, HEADS * width))

    def make_network(self, inner: int) -> TransformerDecoder | MeshDecoder:
        if self.kind == "pictures":
            decoder = TransformerDecoder(LAYERS, HEADS * self.width, HEADS, inner)
        else:
            decoder = MeshDecoder(MeshSettings(layers=LAYERS, width=HEADS * self.width, heads=HEADS, inner=inner, length=8))
        for name, p in decoder.named_parameters():
            nn.init.normal_(p, 1.0 if "norm" in name and "weight" in name else 0.0, 0.2 if p.ndim < 2 else p.shape[-1] ** -0.5)
        return decoder.eval()

    def run(self, network: TransformerDecoder | MeshDecoder, count: int, mask: Tensor | None) -> tuple[Tensor, KVCache]:
        """Hidden states of the first rows, and the cache afterwards."""
        kv_cache = KVCache(LAYERS, 2, HEADS, 128, self.width, torch.device("cpu"), self.kv_cache)
        kv_cache.block[:, :, :, :, :KEPT], kv_cache.kept = self.kept.to(self.kv_cache), KEPT
        x, cos, sin = self.x[:, :count], self.cos[:count], self.sin[:count]
        return network(x, cos, sin, mask, kv_cache) if self.looked is None else network(x, mask, self.looked, kv_cache), kv_cache


def window(count: int) -> Tensor:
    """A pass's mask that also hides some of the kept rows."""
    mask = causal_mask(count, KEPT, torch.device("cpu"))
    mask[:, 3:9] = False
    return mask


@needs_native
@pytest.mark.parametrize("kind", ["pictures", "meshes"])
@pytest.mark.parametrize(("width", "inner"), [(16, 80), (32, 5), (64, 30), (128, 64)])
def test_blocks_are_the_reference(kind: str, width: int, inner: int) -> None:
    case = Case(kind, width, inner)
    for count in (1, 7, 30):
        (ours, own), (theirs, other) = (case.run(network, count, window(count)) for network in (case.quick, case.plain))
        torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=1e-4)
        torch.testing.assert_close(own.block, other.block, atol=5e-5, rtol=1e-4)
        assert not torch.allclose(ours, case.run(case.plain, count, None)[0], atol=1e-2)  # a mutant: everything is seen


@needs_native
@pytest.mark.parametrize("width", [16, 64, 128])
def test_a_cache_of_half_precision_is_read_and_written(width: int) -> None:
    case = Case("pictures", width, 48, torch.bfloat16)
    for count in (1, 7):
        (ours, own), (theirs, other) = (case.run(network, count, window(count)) for network in (case.quick, case.plain))
        assert (ours - theirs).norm() < 0.02 * theirs.norm()
        torch.testing.assert_close(own.block[0].float(), other.block[0].float(), atol=2e-2, rtol=2**-6)
        assert own.block[:, :, :, :, KEPT : KEPT + count].any() and not own.block[:, :, :, :, KEPT + count :].any()


@needs_native
@both
@pytest.mark.parametrize("kv_cache", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["pictures", "meshes"])
def test_rows_have_the_same_bits_in_every_pass(kind: str, kv_cache: torch.dtype, dtype: torch.dtype) -> None:
    case = Case(kind, 64, 80, kv_cache, dtype)
    whole, _ = case.run(case.quick, 31, window(31))
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for count in (1, 2, 4, 7, 31):
            assert torch.equal(case.run(case.quick, count, window(count))[0], whole[:, :count]), (count, threads)


@needs_native
@both
def test_products_of_half_precision_are_the_reference_up_to_rounding(dtype: torch.dtype) -> None:
    for kind in ("pictures", "meshes"):
        case = Case(kind, 32, 80, dtype=dtype)
        ours, theirs = (case.run(network, 7, window(7))[0] for network in (case.quick, case.plain))
        assert (ours - theirs).norm() < (0.05 if dtype == torch.bfloat16 else 1e-4) * theirs.norm()


@needs_native
def test_a_cache_that_is_full_is_refused() -> None:
    case = Case("pictures", 64, 80)
    kv_cache = KVCache(LAYERS, 2, HEADS, KEPT + 1, 64, torch.device("cpu"), torch.float32)
    kv_cache.kept = KEPT
    with pytest.raises(AssertionError, match="39 rows do not fit into 38"):
        case.quick(case.x[:, :2], case.cos[:2], case.sin[:2], None, kv_cache)


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder without a library; the process forgets its built library before and after."""
    monkeypatch.setattr(module, "folder", lambda: tmp_path / "native")
    build.cache_clear()
    yield tmp_path
    build.cache_clear()


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
    assert native_choice().reason == f"{compiler} does not compile blocks.c (no such instruction)."
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


@needs_native
def test_a_library_is_compiled_once_and_found_again(monkeypatch: pytest.MonkeyPatch, fresh: Path) -> None:
    first = native()
    assert first is not None and [path.suffix for path in (fresh / "native").iterdir()] == [".so"]
    monkeypatch.setattr(module, "_compile", lambda *_: pytest.fail("compiled again"))
    build.cache_clear()
    assert native() is not first


def test_libraries_are_kept_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.folder() == tmp_path / "foretoken" / "native"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert module.folder() == Path.home() / ".cache" / "foretoken" / "native"
    monkeypatch.setattr(module.sys, "platform", "darwin")
    assert module.folder() == Path.home() / "Library" / "Caches" / "foretoken" / "native"

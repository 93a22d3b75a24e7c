"""A pass of several runs by the compiled functions: every row has the bits of a pass of its own run."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from engine.cache import KVCache
from engine.kernels.cpu.blocks import RunRows
from engine.kernels.cpu.library import build, native
from engine.networks.mesh_decoder import MeshDecoder, MeshSettings
from engine.networks.native_blocks import quicken
from engine.networks.transformer import TransformerDecoder, causal_mask

pytestmark = [pytest.mark.usefixtures("inference"), pytest.mark.skipif(build()[0] is None, reason=str(build()[1]))]
half = pytest.param(torch.bfloat16, marks=pytest.mark.skipif(native(torch.bfloat16) is None, reason="no native products in bfloat16 here"))
HEADS, HEAD, LAYERS = 3, 32, 2
WIDTH = HEADS * HEAD
RUNS = ((2, 1, 7), (1, 5, 0), (2, 9, 40), (1, 1, 3))  # branches, rows and kept rows of each


def spread(module: nn.Module) -> None:
    """Makes weights large enough to reveal a fault."""
    for p in module.parameters():
        if p.ndim > 1:
            nn.init.normal_(p, std=p.shape[-1] ** -0.5)


def caches(dtype: torch.dtype) -> list[KVCache]:
    """A cache for each run, some rows kept."""
    kv_caches = []
    for branches, _, rows in RUNS:
        kv_cache = KVCache(LAYERS, branches, HEADS, 64, HEAD, torch.device("cpu"), dtype)
        kv_cache.block[:, :, :, :, :rows] = torch.randn(LAYERS, 2, branches, HEADS, rows, HEAD).to(dtype)
        kv_cache.kept = rows
        kv_caches.append(kv_cache)
    return kv_caches


def masks() -> list[Tensor | None]:
    """Visibility of the rows of each run: chains, everything, and a tree."""
    tree = torch.rand(9, 49) > 0.3
    tree[:, 0] = True
    return [None, causal_mask(5, 0, torch.device("cpu")), tree, None]


def copies(originals: list[KVCache]) -> list[KVCache]:
    """Copies of the caches."""
    clones = []
    for kv_cache in originals:
        copy = KVCache(LAYERS, kv_cache.branches, HEADS, kv_cache.capacity, HEAD, torch.device("cpu"), kv_cache.block.dtype)
        copy.block, copy.kept = kv_cache.block.clone(), kv_cache.kept
        clones.append(copy)
    return clones


def assert_same_bits(together: Tensor, alone: list[Tensor], joined: list[KVCache], single: list[KVCache]) -> None:
    """The rows, and what was written into the caches."""
    assert torch.equal(together, torch.cat([each.flatten(0, 1) for each in alone]))
    assert all(torch.equal(a.block, b.block) for a, b in zip(joined, single, strict=True))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, half])
def test_a_pass_of_pictures(dtype: torch.dtype, threads: int) -> None:
    torch.set_num_threads(threads)
    decoder = TransformerDecoder(LAYERS, WIDTH, HEADS, 80)
    spread(decoder)
    quicken(decoder, dtype)
    single, seen = caches(dtype), masks()
    joined = copies(single)
    rows = [(torch.randn(branches, count, WIDTH), *torch.randn(2, count, HEAD)) for branches, count, _ in RUNS]
    alone = [decoder.quick(x, mask, kv_cache, cos, sin) for (x, cos, sin), mask, kv_cache in zip(rows, seen, single, strict=True)]
    brought = [RunRows(x, kv_cache, mask, cos, sin) for (x, cos, sin), mask, kv_cache in zip(rows, seen, joined, strict=True)]
    assert_same_bits(decoder.quick.run_together(brought), alone, joined, single)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_pass_of_meshes_over_conditions_of_their_own(threads: int) -> None:
    torch.set_num_threads(threads)
    decoder = MeshDecoder(MeshSettings(layers=LAYERS, width=WIDTH, heads=HEADS, inner=80, memories=2))
    spread(decoder)
    quicken(decoder)
    single, seen = caches(torch.float32), masks()
    joined = copies(single)
    looked = [decoder.keys_values(torch.randn(branches, 11 + i, WIDTH)) for i, (branches, _, _) in enumerate(RUNS)]
    rows = [torch.randn(branches, count, WIDTH) for branches, count, _ in RUNS]
    alone = [decoder.quick(x, mask, kv_cache, condition_kv=own) for x, mask, own, kv_cache in zip(rows, seen, looked, single, strict=True)]
    crossed = [decoder.quick.cross_kv(each) for each in looked]
    brought = [RunRows(x, kv_cache, mask, cross=own) for x, kv_cache, mask, own in zip(rows, joined, seen, crossed, strict=True)]
    assert_same_bits(decoder.quick.run_together(brought), alone, joined, single)


def test_a_hook_or_a_pass_of_another_kind_is_not_joined() -> None:
    decoder = TransformerDecoder(LAYERS, WIDTH, HEADS, 80)
    quicken(decoder)
    kv_cache = caches(torch.float32)[0]
    x, turned = torch.randn(2, 1, WIDTH), torch.randn(2, 1, HEAD)
    brought = RunRows(x, kv_cache, None, *turned)
    assert decoder.quick.run_together([brought, RunRows(x.double(), kv_cache, None, *turned)]) is None
    handle = decoder.blocks[0].attention_out.register_forward_hook(lambda *_: None)
    assert decoder.quick.run_together([brought]) is None
    handle.remove()
    assert decoder.quick.run_together([brought]) is not None

"""Decoders of native blocks: the function of the plain ones, and rows with the same bits in every pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from engine.backbones.lowpoly import Lowpoly
from engine.backbones.pictogram import Pictogram
from engine.cache import FixedView, KVCache
from engine.core import Draft, Prompt, Sampling, Sequence
from engine.dispatch.choice import VARIABLE
from engine.drafters.predictive_stream import RowLora
from engine.kernels.cpu.blocks import NativeLinear, RunRows
from engine.kernels.cpu.library import native
from engine.kernels.tree_attention import Chain, VisibleRows, pack
from engine.networks.mesh_decoder import MeshDecoder, MeshSettings
from engine.networks.native_blocks import quick_linear, quicken
from engine.networks.rows import AdapterRows, RowSplit
from engine.networks.transformer import TransformerDecoder, causal_mask
from research.train.adapters import new_adapter
from tests.engine.backbones import tiny
from tests.engine.kernels.cpu.test_blocks import both, needs_native

pytestmark = pytest.mark.usefixtures("inference")
ROWS = 9


def decoder() -> TransformerDecoder:
    """A plain decoder whose norms and positions have an effect."""
    torch.manual_seed(0)
    network = TransformerDecoder(3, 64, 4, 96, placed=True).eval().requires_grad_(False)
    for name, p in network.named_parameters():
        nn.init.normal_(p, 1.0 if "norm" in name else 0.0, 0.1)
    return network


def passes(network: TransformerDecoder, dtype: torch.dtype = torch.float32) -> Callable[..., Tensor]:
    """Runs the first rows of a fixed input after three kept rows: (count, fork, mask) -> hidden [2, count, 64]."""
    torch.manual_seed(1)
    x, angles = torch.randn(2, 3 + ROWS, 64), torch.randn(3 + ROWS, 8)
    cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))

    def run(count: int, fork: RowSplit | None = None, mask: Tensor | None = None, adapter_rows: AdapterRows | None = None) -> Tensor:
        kv_cache = KVCache(3, 2, 4, 20, 16, x.device, dtype)
        network(x[:, :3], cos[:3], sin[:3], causal_mask(3, 0, x.device), kv_cache)
        kv_cache.keep([0, 1, 2])
        rows = slice(3, 3 + count)
        seen = causal_mask(count, 3, x.device) if mask is None else mask
        return network(x[:, rows], cos[rows], sin[rows], seen, kv_cache, fork, None, adapter_rows)

    return run


@needs_native
@pytest.mark.parametrize("quick", [True, False])
def test_a_chain_is_its_mask(quick: bool) -> None:
    network = decoder()
    if quick:
        quicken(network)
    run = passes(network)
    for count in (2, 5, ROWS):
        assert torch.equal(run(count, mask=Chain(count, 3)), run(count, mask=causal_mask(count, 3, torch.device("cpu"))))
    whole = torch.ones(ROWS, 3 + ROWS, dtype=torch.bool)  # a mutant: a row that sees what comes after it
    assert not torch.equal(run(ROWS, mask=whole), run(ROWS, mask=Chain(ROWS, 3)))


LAYERS = ("query_key_value", "attention_out", "gate_up", "feed_out", "out", "query", "value_gate")


def adapter(network: nn.Module, rank: int, first: int = 0, layers: tuple[str, ...] = LAYERS) -> RowLora:
    """A frozen adapter for some layers of the blocks from `first` on; the same for networks of equal shape."""
    torch.manual_seed(2)
    lora = new_adapter(network, layers, rank, alpha=1.5 * rank, first=first).requires_grad_(False)
    for up in lora.up:
        nn.init.normal_(up, std=0.1)
    return lora


@needs_native
@both
@pytest.mark.parametrize(("rank", "first", "layers"), [(4, 0, LAYERS), (1, 1, LAYERS), (33, 2, LAYERS), (7, 0, ("feed_out", "gate_up"))])
def test_a_pass_in_one_call_wears_an_adapter(rank: int, first: int, layers: tuple[str, ...], dtype: torch.dtype) -> None:
    network = decoder()
    quicken(network, dtype)
    lora, run = adapter(network, rank, first, layers), passes(network, dtype)
    bare = run(ROWS)
    for row in (0, 2, ROWS - 1, ROWS, ROWS + 3):
        worn = run(ROWS, adapter_rows=AdapterRows(lora, row))
        with hook_block(network):
            layered = run(ROWS, adapter_rows=AdapterRows(lora, row))
        assert torch.equal(worn[:, :row], bare[:, :row])
        assert row >= ROWS or not torch.allclose(worn[:, row], bare[:, row], atol=1e-2)
        torch.testing.assert_close(worn, layered, **NEAR[dtype])
        assert row != 2 or not torch.allclose(run(ROWS, adapter_rows=AdapterRows(lora, 3)), layered, atol=1e-2)  # a mutant: one row too few
    assert lora.updates is not None


NEAR = {torch.float32: {"atol": 1e-5, "rtol": 1e-4}, torch.bfloat16: {"atol": 3e-2, "rtol": 3e-2}}  # layer by layer nothing is rounded


@contextmanager
def hook_block(network: nn.Module) -> Iterator[None]:
    """Adds a hook to a block, so that passes call it layer by layer."""
    handle = network.blocks[0].register_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        handle.remove()


@needs_native
@both
@pytest.mark.parametrize("first", [1, 5, ROWS - 1])
def test_rows_with_an_adapter_can_be_those_of_the_first_branch_alone(first: int, dtype: torch.dtype) -> None:
    network = decoder()
    quicken(network, dtype)
    lora, run = adapter(network, 5), passes(network, dtype)
    both_branches, once = (run(ROWS, adapter_rows=AdapterRows(lora, first, once)) for once in (False, True))
    assert torch.equal(once[0], both_branches[0]) and torch.equal(once[1, :first], both_branches[1, :first])
    assert not once[1, first:].any()  # not computed


@needs_native
@both
def test_rows_with_an_adapter_have_the_same_bits_in_every_pass(dtype: torch.dtype) -> None:
    network = decoder()
    quicken(network, dtype)
    lora, run, threads = adapter(network, 5), passes(network, dtype), torch.get_num_threads()
    whole = run(ROWS, adapter_rows=AdapterRows(lora, 1))
    try:
        for many in (1, 2, 3):
            torch.set_num_threads(many)
            for count in (2, 3, 7, 8):
                assert torch.equal(run(count, adapter_rows=AdapterRows(lora, 1)), whole[:, :count]), (many, count)
    finally:
        torch.set_num_threads(threads)


@needs_native
@pytest.mark.parametrize("layer", [1, 2])
def test_a_fork_is_the_plain_one_also_where_its_rows_wear_an_adapter(layer: int) -> None:
    plain, quick = decoder(), decoder()
    quicken(quick)
    fork = RowSplit(layer, torch.tensor([0, 1, 2, 1, 2]), causal_mask(5, 3, torch.device("cpu")))
    loras = [adapter(network, 3, layer) for network in (quick, plain)]
    assert quick.quick is not None and plain.quick is None and plain.state_dict().keys() == quick.state_dict().keys()
    torch.testing.assert_close(*(passes(network)(3, fork) for network in (quick, plain)), atol=1e-5, rtol=1e-4)
    ours, theirs = (
        passes(network)(3, fork, adapter_rows=AdapterRows(lora, 3)) for network, lora in zip((quick, plain), loras, strict=True)
    )
    assert [lora.updates is not None for lora in loras] == [True, False]
    assert not torch.allclose(theirs, passes(plain)(3, fork), atol=1e-2)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@needs_native
def test_an_adapter_that_is_trained_hooks_its_layers() -> None:
    network = decoder()
    quicken(network)
    lora, run = adapter(network, 4), passes(network)
    theirs = run(ROWS, adapter_rows=AdapterRows(adapter(network, 4), 3))
    lora.requires_grad_(True)
    torch.testing.assert_close(run(ROWS, adapter_rows=AdapterRows(lora, 3)), theirs, atol=1e-5, rtol=1e-4)
    assert lora.updates is None
    for up in lora.up:
        up.mul_(0)
    bare = run(ROWS)  # its copy of older weights is not kept
    torch.testing.assert_close(run(ROWS, adapter_rows=AdapterRows(lora, 3)), bare, atol=1e-5, rtol=1e-4)


@needs_native
def test_gradients_and_passes_without_a_cache_run_as_before() -> None:
    with torch.inference_mode(False), torch.enable_grad():
        plain, quick = decoder(), decoder()
        quicken(quick)
        x, angles = torch.randn(2, 5, 64, requires_grad=True), torch.randn(5, 16)
        ours, theirs = (network(x, angles.cos(), angles.sin(), causal_mask(5, 0, x.device)) for network in (quick, plain))
        assert torch.equal(ours, theirs)
        ours.sum().backward()
        assert x.grad is not None


@needs_native
def test_caches_and_masks_of_other_kinds_run_as_before() -> None:
    network = decoder()
    quicken(network)
    x, mask = torch.randn(1, 4, 64), causal_mask(4, 0, torch.device("cpu"))
    kv_cache = KVCache(3, 1, 4, 64, 16, x.device, torch.float32)
    view = FixedView(kv_cache.block, torch.arange(4), 4)
    assert RunRows(x, kv_cache, mask).can_run() and RunRows(x, kv_cache, None).can_run()
    others = ((x, view, mask), (x, None, mask), (x.double(), kv_cache, mask), (x, kv_cache, VisibleRows(pack(mask), 0)))
    assert not any(RunRows(*case).can_run() for case in others)
    assert not RunRows(x, kv_cache, mask, torch.ones(1, 4, 16)).can_run()


@needs_native
@pytest.mark.parametrize("layer", [None, 1])
def test_a_mesh_decoder_wears_an_adapter(layer: int | None) -> None:
    """With and without a fork the rows equal the plain network's, and rows before the adapter keep their bits."""
    settings, outputs = MeshSettings(layers=3, width=32, heads=2, inner=40, length=20, vocabulary=5121), []
    for quick in (False, True):
        torch.manual_seed(3)
        network = MeshDecoder(settings).eval().requires_grad_(False)
        if quick:
            quicken(network)
        lora = adapter(network, 5, layer or 0)
        torch.manual_seed(4)
        x, looked = torch.randn(1, 7, 32), network.keys_values(torch.randn(1, 6, 32))
        kv_cache, mask = KVCache(3, 1, 2, 20, 16, x.device, torch.float32), causal_mask(7, 0, x.device)
        fork = None if layer is None else RowSplit(layer, torch.tensor([0, 1, 2, 3, 1, 2, 3]), mask)
        below, low = (x, mask) if fork is None else (x[:, :4], mask[:4, :4])
        bare, worn = (network(below, low, looked, kv_cache, fork, each) for each in (None, AdapterRows(lora, 4)))
        assert torch.equal(worn[:, :4], bare[:, :4]) and not torch.allclose(worn[:, 4:], bare[:, 4:], atol=1e-2)
        assert (lora.updates is not None) is quick
        outputs.append(worn)
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-4)


def backbones() -> dict[str, Callable[[], tuple[Pictogram | Lowpoly, Prompt]]]:
    """Tiny backbones with prompts."""
    return {
        "pictogram": lambda: (tiny.pictogram(), Prompt(text="two red cats on a table", sampling=Sampling(guidance=2.0))),
        "lowpoly": lambda: (tiny.lowpoly(grammar=False), Prompt(points=tiny.sphere())),
    }


def start(name: str) -> Sequence:
    """A fresh sequence of a backbone with a native decoder."""
    backbone, prompt = deepcopy(backbones()[name]())  # other tests share the tiny models
    quicken(backbone.model.decoder)
    return backbone.start(prompt)


@needs_native
def test_without_the_functions_layers_are_packed_or_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "reference")
    quick = decoder()
    quicken(quick)
    assert quick.quick is None and not isinstance(quick_linear(nn.Linear(4, 4)), NativeLinear)
    monkeypatch.delenv(VARIABLE)
    assert native() is not None and isinstance(quick_linear(nn.Linear(4, 4)), NativeLinear)


@needs_native
@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_a_pass_whose_layers_have_hooks_calls_each_of_them(name: str) -> None:
    first, second = start(name), start(name)
    draft = Draft(torch.tensor([1, 2, 3, 4]))
    whole = first.forward(draft).logits
    network = second.trunk.decoder
    layers = [layer for layer in network.blocks.modules() if isinstance(layer, nn.Linear)]
    calls: list[nn.Module] = []
    handles = [layer.register_forward_hook(lambda layer, inputs, output: calls.append(layer)) for layer in layers]
    torch.testing.assert_close(second.forward(draft).logits, whole, atol=1e-4, rtol=1e-4)
    assert len(calls) > 4
    for handle in handles:
        handle.remove()

"""All blocks of one of our own decoders on a CPU in one call of blocks.c, and single linear layers.

Mathematics. As in `Block` in engine/networks/transformer.py and in engine/networks/mesh_decoder.py, which are the references, and of the
norm after them. Sums are float32; with bfloat16 products the inputs of products are rounded to bfloat16, and so are keys and values in a
cache of that type. An adapter adds s B A x to some rows of its layers (row_lora.py), from the row before it is rounded.
Fewest bytes: the weights once, and keys and values of the visible rows once.

A row has the same bits in a pass of any number of rows and of runs, with any number of threads (tests/engine/kernels/cpu/test_blocks.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import KVCache
from engine.kernels.cpu.library import CompiledLibrary, build
from engine.kernels.tree_attention import Chain, Visibility

WIDTHS = (1, 2, 4, 8)  # of a head, in vectors
TYPES = (torch.float32, torch.bfloat16)  # of keys and values


class NativeLinear(nn.Linear):
    """A plain linear layer with weights also packed for blocks.c. With gradients enabled it computes as the plain layer. Results
    are float32, whatever the type of the products."""

    def __init__(self, layer: nn.Linear, dtype: torch.dtype = torch.float32):
        """dtype : of the products, float32 or bfloat16 (then `in` must be even)"""
        nn.Module.__init__(self)  # the weights exist already
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias, self.half = layer.weight, layer.bias, dtype == torch.bfloat16
        self.panels = panels(layer.weight, 2 * library().lanes, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        if torch.is_grad_enabled():
            return super().forward(x.to(self.weight.dtype)).to(x.dtype)
        x = x.float().contiguous()
        out, scratch = torch.empty(*x.shape[:-1], self.out_features), torch.empty(2 * x.numel() if self.half else 0)
        layer = library().ffi.new("Layer *", (address(self.panels), address(self.bias), self.in_features, self.out_features))
        rows, threads = x.numel() // self.in_features, torch.get_num_threads()
        library().blocks.product_of(address(x), rows, layer, self.half, address(scratch), address(out), threads)
        return out


def panels(weight: Tensor, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Weights [out, in] as blocks.c reads them: [panels, in, width], or [panels, in / 2, width, 2] in bfloat16; missing rows are zeros."""
    outer, inner = weight.shape
    full = F.pad(weight.detach().to(dtype), (0, 0, 0, -outer % width)).view(-1, width, inner)
    if dtype == torch.float32:
        return full.transpose(1, 2).contiguous()
    return full.view(-1, width, inner // 2, 2).transpose(1, 2).contiguous()


@dataclass(frozen=True)
class RowNorm:
    """A norm over rows.

    kind : of blocks.h; weight, bias : float32; constant : its epsilon, or a term added to the length of a row
    """

    kind: str
    weight: Tensor | None = None
    bias: Tensor | None = None
    constant: float = 0.0


@dataclass(frozen=True)
class QKNorm:
    """Normalisation and rotation of the queries and keys of a head.

    scale : of their products; query, key : weights [width] of their root-mean-square norms, or None to scale them to length 1
    floor : is added to their length, as the other leg of a right triangle
    """

    scale: float
    query: Tensor | None = None
    key: Tensor | None = None
    floor: float = 0.0


@dataclass(frozen=True)
class BlockWeights:
    """The weights of a block: layers in the order of blocks.h; the norms before attention, before the query of a condition, and before the
    feed-forward part."""

    layers: tuple[nn.Linear, ...]
    norms: tuple[RowNorm | None, ...]
    heads: QKNorm


class CrossKV:
    """Keys and values of a condition for every block [B, heads, S, head width], as the functions take them."""

    def __init__(self, looked: Sequence[tuple[Tensor, Tensor]]):
        """looked : all of one shape, contiguous float32"""
        self.looked, (keys, _) = looked, looked[0]  # keep their addresses
        self.pointers = library().ffi.new("void *[]", [address(part) for pair in looked for part in pair])
        self.count, self.strides = keys.shape[2], keys.stride()[:2]


def can_cross(looked: Sequence[tuple[Tensor, Tensor]]) -> bool:
    """True if the functions know keys and values of a condition."""
    parts = [part for pair in looked for part in pair]
    return all(part.is_contiguous() and part.shape == parts[0].shape and part.dtype == torch.float32 for part in parts)


@dataclass(frozen=True)
class RunRows:
    """The rows of one run in a pass.

    x : float32 [B, R, width]; mask : bool [R, kept + R], a chain or None; cos, sin : float32 [R, head width] or None
    cross : keys and values of its condition, of a mesh's network
    """

    x: Tensor
    kv_cache: KVCache
    mask: Visibility
    cos: Tensor | None = None
    sin: Tensor | None = None
    cross: CrossKV | None = None

    def by_branch(self, count: int) -> list[RunRows]:
        """The two branches as runs of their own, the second with its first `count` rows alone. `mask` must be a tensor."""
        first, second = (replace(self, x=self.x[i : i + 1], kv_cache=self.kv_cache.branch(i)) for i in range(2))
        kept = self.mask.shape[1] - len(self.mask)
        cos, sin = (None if each is None else each[:count] for each in (self.cos, self.sin))
        return [first, replace(second, x=second.x[:, :count], mask=self.mask[:count, : kept + count], cos=cos, sin=sin)]

    def can_run(self) -> bool:
        """True if the functions know the pass."""
        if torch.is_grad_enabled() or self.x.dtype != torch.float32 or self.x.device.type != "cpu":
            return False
        if not isinstance(self.kv_cache, KVCache) or self.kv_cache.block.dtype not in TYPES:
            return False
        known = self.mask is None or isinstance(self.mask, Chain) or (isinstance(self.mask, Tensor) and self.mask.ndim == 2)
        return known and (self.cos is None or self.cos.ndim == 2)


class Updates:
    """A low-rank adapter as the functions take it: an `Update` for each layer of each block, empty for a layer without one."""

    def __init__(self, stack: Stack, pairs: Iterable[tuple[nn.Module, Tensor, Tensor]], scale: float):
        """pairs : layers of the stack, each with A [rank, in] and B [out, rank], float32; scale : s of s B A x"""
        self.stack, self.kept = stack, []
        self.structs = library().ffi.new("Update[]", len(stack.weights) * library().blocks.LAYERS)
        for layer, down, up in pairs:
            both = [panels(each, 2 * library().lanes) for each in (down, scale * up)]
            self.kept += both  # at their addresses
            self.structs[stack.numbers[id(layer)]] = (*(address(each) for each in both), len(down))


class Stack:
    """All blocks of a network and the final norm as one call. Later changes of a weight have no effect."""

    def __init__(self, weights: Sequence[BlockWeights], last: RowNorm, heads: int, dtype: torch.dtype):
        """heads : of the attention; dtype : of the products"""
        new, most = library().ffi.new, library().blocks.LAYERS
        self.weights, self.heads, self.kept = tuple(weights), heads, [last]  # keep weights at their addresses
        self.last = new("Norm *", _norm(last))
        self.blocks = new("Block[]", [self._block(each, dtype) for each in weights])
        self.numbers = {id(layer): i * most + j for i, each in enumerate(weights) for j, layer in enumerate(each.layers)}

    def _block(self, own: BlockWeights, dtype: torch.dtype) -> dict[str, Any]:
        laid = [panels(layer.weight, 2 * library().lanes, dtype) for layer in own.layers]
        self.kept += laid
        layers = [
            (address(p), address(layer.bias), layer.in_features, layer.out_features) for p, layer in zip(laid, own.layers, strict=True)
        ]
        norms = [_norm(norm) for norm in own.norms]
        query, key = address(own.heads.query), address(own.heads.key)
        rest = {"query": query, "key": key, "floor": own.heads.floor, "scale": own.heads.scale}
        return {"norms": norms, "layers": layers, "count": len(layers), "half": dtype == torch.bfloat16, **rest}

    def __call__(
        self, runs: Sequence[RunRows], updates: Updates | None = None, first: int = 0, begin: int = 0, end: int | None = None
    ) -> Tensor:
        """Hidden states [rows, width] of the rows of all runs, one run after another, each its branches one after another; writes their
        keys and values into the runs' caches.

        updates : an adapter for the rows of each branch of the first run from number `first` on
        begin, end : of the blocks that run; all. The norm comes after the last block of all
        """
        x = torch.cat([run.x.flatten(0, 1) for run in runs]) if len(runs) > 1 else runs[0].x.flatten(0, 1).clone()
        masks = [run.mask.contiguous() if isinstance(run.mask, Tensor) else None for run in runs]  # keep their addresses
        new, end = library().ffi.new, len(self.blocks) if end is None else end
        structs = new("Run[]", [self._run(run, mask, begin) for run, mask in zip(runs, masks, strict=True)])
        call = new("Pass *")
        call.x, call.rows, call.width, call.heads, call.threads = address(x), len(x), x.shape[1], self.heads, torch.get_num_threads()
        call.runs, call.run_count, call.first = structs, len(runs), first
        if updates is not None:
            call.updates = updates.structs + begin * library().blocks.LAYERS
        if end == len(self.blocks):
            call.last = self.last
        work = torch.empty(library().blocks.work_of(self.blocks + begin, end - begin, call))
        call.work = address(work)
        library().blocks.all_blocks(self.blocks + begin, end - begin, call)
        return x

    def _run(self, run: RunRows, mask: Tensor | None, begin: int) -> dict[str, Any]:
        branches, count, _ = run.x.shape
        kv_cache, block = run.kv_cache, run.kv_cache.block
        assert kv_cache.kept + count <= kv_cache.capacity, f"{kv_cache.kept + count} rows do not fit into {kv_cache.capacity}"
        size, steps, cast = block.element_size(), block.stride(), library().ffi.cast
        keys = block.data_ptr() + begin * steps[0] * size
        fields = {
            "branches": branches, "count": count, "kept": kv_cache.kept, "keys": cast("void *", keys),
            "half": block.dtype == torch.bfloat16,
            "values": cast("void *", keys + steps[1] * size), "layer_stride": steps[0] * size, "branch_stride": steps[2],
            "head_stride": steps[3], "chain": isinstance(run.mask, Chain), "seen": address(mask), "cosines": address(run.cos),
            "sines": address(run.sin),
        }  # fmt: skip
        if (cross := run.cross) is not None:
            fields |= {"crossed": cross.pointers + 2 * begin, "cross_count": cross.count}
            fields |= {"cross_branch_stride": cross.strides[0], "cross_head_stride": cross.strides[1]}
        return fields


def _norm(norm: RowNorm | None) -> tuple[Any, ...]:
    """A norm, as a `Norm`."""
    return () if norm is None else (getattr(library().blocks, norm.kind), address(norm.weight), address(norm.bias), norm.constant)


def can_attend(width: int) -> bool:
    """True if heads of this width are supported."""
    return width in [n * library().lanes for n in WIDTHS]


def library() -> CompiledLibrary:
    """The compiled functions; layers that need them exist only where these do."""
    compiled, reason = build()
    assert compiled is not None, reason
    return compiled


def address(x: Tensor | None) -> Any:
    """The address of a tensor, null for None."""
    ffi = library().ffi
    return ffi.NULL if x is None else ffi.cast("void *", x.data_ptr())

"""The blocks of our own decoders in one compiled call, where native kernels are chosen: it replaces 1,060 operations of a pictogram pass.

`quicken` prepares a decoder. Its layers, weights and hooks do not change, so adapters and recipes work as before. A pass that the
call does not support (gradients, sets of bits instead of a mask, no cache, a hook, an adapter that is being trained) runs as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import KVCache
from engine.kernels.cpu.blocks import BlockWeights, CrossKV, NativeLinear, QKNorm, RowNorm, RunRows, Stack, Updates, can_attend, can_cross
from engine.kernels.cpu.library import native
from engine.kernels.cpu.packed_linear import PackedLinear, can_pack, pack
from engine.kernels.tree_attention import Visibility
from engine.networks import mesh_decoder, transformer
from engine.networks.mesh_decoder import ConditionKV, MeshDecoder
from engine.networks.rows import AdapterRows, RowSplit
from engine.networks.transformer import RMSNorm, TransformerDecoder


def quicken(decoder: TransformerDecoder | MeshDecoder, dtype: torch.dtype = torch.float32) -> None:
    """Prepares a decoder on a CPU for passes without gradients: one compiled call where possible, else packed layers, else nothing. Later
    changes of a weight have no effect."""
    first = decoder.blocks[0]
    heads, width = heads_of(first), decoder.norm.weight.numel()
    if native(dtype) is not None and can_attend(width // heads):
        decoder.quick = QuickBlocks(decoder, heads, dtype)
        if isinstance(decoder, TransformerDecoder):
            decoder.place_map = None if decoder.place_map is None else NativeLinear(decoder.place_map)
        else:
            decoder.head = NativeLinear(decoder.head, dtype)
            for block in decoder.blocks:
                block.cross_attention.key_value = NativeLinear(block.cross_attention.key_value, dtype)
    elif can_pack():
        pack(decoder)


def quick_linear(layer: nn.Linear) -> nn.Linear:
    """A float32 layer on a CPU for passes without gradients: native, packed or unchanged."""
    if native() is not None:
        return NativeLinear(layer)
    return PackedLinear(layer) if can_pack() else layer


class QuickBlocks:
    """All blocks of a decoder and its last norm in one call."""

    def __init__(self, decoder: TransformerDecoder | MeshDecoder, heads: int, dtype: torch.dtype):
        """dtype : the number type of the products"""
        self.stack = Stack([weights_of(block) for block in decoder.blocks], norm_of(decoder.norm), heads, dtype)
        self.hooks = [module._forward_hooks for module in (*decoder.blocks.modules(), decoder.norm)]  # empty, or filled later

    def __call__(
        self, x: Tensor, mask: Visibility, kv_cache: KVCache | None, cos: Tensor | None = None, sin: Tensor | None = None,
        condition_kv: list[tuple[Tensor, Tensor]] | None = None, split: RowSplit | None = None, adapter_rows: AdapterRows | None = None,
    ) -> Tensor | None:  # fmt: skip
        """Hidden states [B, R, width] after the last norm, or None for a pass that the call does not support; writes the rows' keys and
        values
        into the cache. condition_kv : in a mesh network, keys and values of the condition for every block"""
        cross = None if condition_kv is None else self.cross_kv(condition_kv)
        run = RunRows(x, kv_cache, mask, cos, sin, cross)
        if any(self.hooks) or (cross is None) != (condition_kv is None) or not run.can_run():
            return None
        updates = None if adapter_rows is None else updates_of(self.stack, adapter_rows)
        if (updates is None) != (adapter_rows is None):
            return None
        if updates is not None and adapter_rows.once and split is None and cross is None:
            branches = run.by_branch(adapter_rows.first)
            return F.pad(self.stack(branches, updates, adapter_rows.first), (0, 0, 0, x.shape[1] - adapter_rows.first)).view(x.shape)
        begin = 0
        if split is not None:
            if not replace(run, mask=split.mask).can_run():
                return None
            x = self.stack([run], end=split.layer).view(x.shape)[:, split.rows]
            cos, sin = (None if each is None else each[split.rows] for each in (cos, sin))
            run, begin = RunRows(x, kv_cache, split.mask, cos, sin, cross), split.layer
        return self.stack([run], updates, 0 if adapter_rows is None else adapter_rows.first, begin).view(x.shape)

    def run_together(self, runs: Sequence[RunRows]) -> Tensor | None:
        """Hidden states [rows, width] of a joint pass of several runs; None if one of them needs another kind of pass."""
        if any(self.hooks) or not all(run.can_run() for run in runs):
            return None
        return self.stack(runs)

    @staticmethod
    def cross_kv(condition_kv: list[tuple[Tensor, Tensor]]) -> CrossKV | None:
        """Keys and values of a condition in the form that the call takes; None if it does not support them."""
        cross_kv = condition_kv.compiled if isinstance(condition_kv, ConditionKV) else None
        if cross_kv is None and can_cross(condition_kv):
            cross_kv = CrossKV(list(condition_kv))
            if isinstance(condition_kv, ConditionKV):
                condition_kv.compiled = cross_kv
        return cross_kv


def updates_of(stack: Stack, adapter_rows: AdapterRows) -> Updates | None:
    """An adapter in the form that the call takes; None if unsupported. It is converted once, so the adapter must not be trained
    afterwards."""
    adapter = adapter_rows.adapter
    if adapter.updates is None or adapter.updates.stack is not stack:
        pairs = list(adapter.pairs())
        if not all(id(layer) in stack.numbers and is_frozen(down) and is_frozen(up) for layer, down, up in pairs):
            return None
        adapter.updates = Updates(stack, pairs, adapter.scale)
    return adapter.updates


def is_frozen(weight: Tensor) -> bool:
    """True if the call supports an adapter's weight."""
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and not weight.requires_grad


def norm_of(norm: RMSNorm | nn.LayerNorm) -> RowNorm:
    """A norm in the form that the call takes."""
    if isinstance(norm, nn.LayerNorm):
        return RowNorm("LAYER_NORM", norm.weight.detach(), norm.bias.detach(), norm.eps)
    return RowNorm("ROOT_MEAN_SQUARE", (norm.weight * norm.scale).detach(), None, float(norm.floor))


def heads_of(block: transformer.TransformerBlock | mesh_decoder.MeshBlock) -> int:
    """The number of heads."""
    return block.heads if isinstance(block, transformer.TransformerBlock) else block.self_attention.heads


def weights_of(block: transformer.TransformerBlock | mesh_decoder.MeshBlock) -> BlockWeights:
    """The weights of a block in the form that the call takes."""
    if isinstance(block, transformer.TransformerBlock):
        query, key = norm_of(block.query_norm), norm_of(block.key_norm)
        heads = QKNorm(block.query_norm.weight.numel() ** -0.5, query.weight, key.weight, query.constant)
        layers = (block.query_key_value, block.attention_out, block.gate_up, block.feed_out)
        return BlockWeights(layers, (norm_of(block.attention_norm), None, norm_of(block.feed_norm)), heads)
    own, cross, feed = block.self_attention, block.cross_attention, block.feed
    norms = tuple(norm_of(norm) for norm in (block.self_norm, block.cross_norm, block.feed_norm))
    layers = (own.query_key_value, own.out, cross.query, cross.out, feed.value_gate, feed.out)
    return BlockWeights(layers, norms, QKNorm(mesh_decoder.COSINE_SCALE))

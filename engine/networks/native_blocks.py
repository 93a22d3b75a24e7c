"""The blocks of our own networks by the compiled functions: a block of pictogram is one call instead of 180 operations.

`quicken` replaces the blocks of a decoder in place. Paths of layers, their weights and their hooks stay as they are, so adapters and
recipes do not notice. A pass that the functions do not know (gradients, sets of bits instead of a mask, no slab, a hook, an adapter that is
being trained) runs as before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engine.cache import Slab
from engine.kernels.cpu.layers import (
    Adapted,
    Brought,
    Crossed,
    NativeLinear,
    Row,
    Stack,
    Turn,
    Updates,
    Whole,
    attention,
    attention_to,
    can_attend,
    over_slab,
    prepared,
    product,
)
from engine.kernels.cpu.library import GELU_GATE, LAYER_NORM, ROOT_MEAN_SQUARE, SILU_GATE, Library, native
from engine.kernels.cpu.packed_linear import PackedLinear, can_pack, pack
from engine.kernels.tree_attention import Chain, Seen
from engine.networks import mesh_decoder, transformer
from engine.networks.mesh_decoder import Looked, MeshDecoder
from engine.networks.transformer import Decoder, Fork, Norm, Worn

SLAB_TYPES = (torch.float32, torch.bfloat16)


def quicken(decoder: Decoder | MeshDecoder, dtype: torch.dtype = torch.float32) -> None:
    """Prepares a decoder on a CPU for passes without gradients: native blocks where the functions are chosen, else packed layers, else
    nothing. Later changes of a weight have no effect."""
    library = native(dtype)
    if library is not None and can_attend(_head_width(decoder)):
        kind = NativeBlock if isinstance(decoder, Decoder) else NativeMeshBlock
        decoder.blocks = nn.ModuleList(kind(block, library, dtype) for block in decoder.blocks)
        decoder.quick = (QuickBlocks if isinstance(decoder, Decoder) else QuickMeshBlocks)(list(decoder.blocks))
        if isinstance(decoder, Decoder):
            decoder.norm = NativeNorm(decoder.norm)
            decoder.place_map = None if decoder.place_map is None else NativeLinear(decoder.place_map, library)
        else:
            decoder.head = NativeLinear(decoder.head, library, dtype)
    elif can_pack(dtype):
        pack(decoder, dtype)


def _head_width(decoder: Decoder | MeshDecoder) -> int:
    first = decoder.blocks[0]
    if isinstance(first, transformer.Block):
        return first.query_norm.weight.numel()
    return first.self_attention.out.in_features // first.self_attention.heads


def is_native(decoder: Decoder) -> bool:
    """Whether a decoder's blocks are native."""
    return isinstance(decoder.blocks[0], NativeBlock)


def quick_linear(layer: nn.Linear) -> nn.Linear:
    """A float32 layer on a CPU for passes without gradients: native, packed, or as it is."""
    library = native()
    if library is not None:
        return NativeLinear(layer, library)
    return PackedLinear(layer) if can_pack() else layer


def runs(x: Tensor, mask: Tensor | Chain | Seen | None, slab: Slab | None) -> bool:
    """Whether the functions know a pass."""
    if torch.is_grad_enabled() or x.dtype != torch.float32 or x.device.type != "cpu" or not isinstance(slab, Slab) or slab.whole > 1:
        return False
    steps = slab.block.stride()
    known = mask is None or isinstance(mask, Chain) or (isinstance(mask, Tensor) and mask.ndim == 2)
    return known and slab.block.dtype in SLAB_TYPES and steps[5] == 1 and steps[4] == slab.block.shape[5]


def runs_all(stack: Stack, x: Tensor, mask: Tensor | Chain | Seen | None, slab: Slab | None, fork: Fork | None, worn: Worn | None) -> bool:
    """Whether the functions know a pass through all blocks."""
    if not runs(x, mask, slab) or not stack.can_run() or not (fork is None or runs(x, fork.mask, slab)):
        return False
    return worn is None or adapted_of(stack, worn) is not None


def stacked(blocks: Sequence[NativeBlock | NativeMeshBlock]) -> Stack:
    """Blocks as one call, which is refused while one of them has a hook."""
    stack = Stack([block.whole for block in blocks], [block.turn for block in blocks])
    stack.hooks += [block._forward_hooks for block in blocks]
    return stack


def adapted_of(stack: Stack, worn: Worn | None) -> Adapted | None:
    """What an adapter changes in a pass; None without one, and for one that the functions do not know. What they make of its weights is
    kept with it, so it must not be trained any more."""
    if worn is None:
        return None
    adapter = worn.adapter
    if adapter.made is None or adapter.made.stack is not stack:
        pairs = list(adapter.pairs())
        if not all(stack.has(layer) and is_frozen(down) and is_frozen(up) for layer, down, up in pairs):
            return None
        adapter.made = Updates(stack, pairs, adapter.scale)
    return Adapted(adapter.made, worn.first)


def is_frozen(weight: Tensor) -> bool:
    """Whether an adapter's weight is one that the functions take."""
    return weight.dtype == torch.float32 and weight.device.type == "cpu" and not weight.requires_grad


def row_of(norm: Norm | nn.LayerNorm) -> Row:
    """A norm, as the functions compute it."""
    if isinstance(norm, nn.LayerNorm):
        return Row(LAYER_NORM, norm.weight.detach(), norm.bias.detach(), norm.eps)
    return Row(ROOT_MEAN_SQUARE, (norm.weight * norm.scale).detach(), None, float(norm.floor))


def _layer(child: nn.Module, library: Library, dtype: torch.dtype) -> nn.Module:
    return NativeLinear(child, library, dtype) if isinstance(child, nn.Linear) else child


class NativeNorm(Norm):
    """A root-mean-square norm in one call."""

    def __init__(self, norm: Norm):
        nn.Module.__init__(self)
        self.weight, self.scale, self.row = norm.weight, norm.scale, row_of(norm)
        self.register_buffer("floor", norm.floor, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width]"""
        if torch.is_grad_enabled() or x.dtype != torch.float32 or x.device.type != "cpu":
            return super().forward(x)
        return prepared(x, self.row)


class NativeBlock(transformer.Block):
    """A block of transformer.py."""

    def __init__(self, block: transformer.Block, library: Library, dtype: torch.dtype):
        nn.Module.__init__(self)
        self.heads = block.heads
        for name, child in block.named_children():
            setattr(self, name, _layer(child, library, dtype))
        self.attention_row, self.feed_row, self.gate = row_of(block.attention_norm), row_of(block.feed_norm), Row(SILU_GATE, halves=True)
        query, key = row_of(block.query_norm), row_of(block.key_norm)
        self.turn = Turn(block.query_norm.weight.numel() ** -0.5, query.weight, key.weight, query.constant)
        layers = (self.query_key_value, self.attention_out, self.gate_up, self.feed_out)
        self.whole = Whole(layers, (self.attention_row, self.feed_row), self.gate_up.out_features)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | Seen | None, slab: Slab | None, layer: int) -> Tensor:
        """As in transformer.py."""
        if cos.ndim != 2 or not runs(x, mask, slab):
            return super().forward(x, cos, sin, mask, slab, layer)
        if self.whole.can_run():
            shape = (*x.shape[:2], 3 * x.shape[2])
            mask = None if mask is None else mask.contiguous()
            return self.whole(x, over_slab(shape, self.heads, self.turn, slab, layer, mask, cos, sin))
        mixed = product(self.query_key_value, x, self.attention_row)
        seen = attention(mixed, self.heads, self.turn, slab, layer, mask, cos, sin)
        x = product(self.attention_out, seen, residual=x)
        return product(self.feed_out, product(self.gate_up, x, self.feed_row), self.gate, x)


class QuickBlocks:
    """All blocks of transformer.py in one call."""

    def __init__(self, blocks: list[NativeBlock]):
        self.heads, self.stack = blocks[0].heads, stacked(blocks)

    def __call__(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | Chain | Seen | None, slab: Slab | None, fork: Fork | None = None,
        worn: Worn | None = None,
    ) -> Tensor | None:  # fmt: skip
        """The last block's output, or None for a pass that the functions do not know."""
        if cos.ndim != 2 or not runs_all(self.stack, x, mask, slab, fork, worn):
            return None
        if fork is not None:
            x = self.stack(x, self.heads, slab, mask, cos, sin, end=fork.layer)
            x, cos, sin, mask = x[:, fork.rows], cos[fork.rows], sin[fork.rows], fork.mask
        return self.stack(x, self.heads, slab, mask, cos, sin, None, adapted_of(self.stack, worn), 0 if fork is None else fork.layer)

    def together(self, brought: Sequence[Brought]) -> Tensor | None:
        """The last block's output [rows, width] of a pass of several runs; None if one of them needs another kind of pass."""
        if not self.stack.can_run() or not all(each.cos.ndim == 2 and runs(each.x, each.mask, each.slab) for each in brought):
            return None
        return self.stack.together(brought, self.heads)


class NativeMeshBlock(mesh_decoder.Block):
    """A block of mesh_decoder.py."""

    def __init__(self, block: mesh_decoder.Block, library: Library, dtype: torch.dtype):
        nn.Module.__init__(self)
        for name, child in block.named_children():
            setattr(self, name, child)
            for own, layer in list(child.named_children()):
                setattr(child, own, _layer(layer, library, dtype))
        self.rows = [row_of(norm) for norm in (block.self_norm, block.cross_norm, block.feed_norm)]
        self.gate, self.turn = Row(GELU_GATE, halves=True), Turn(mesh_decoder.COSINE_SCALE)
        own, cross, feed = self.self_attention, self.cross_attention, self.feed
        layers = (own.query_key_value, own.out, cross.query, cross.out, feed.value_gate, feed.out)
        self.whole = Whole(layers, tuple(self.rows), feed.value_gate.out_features)

    def forward(self, x: Tensor, mask: Tensor | Seen | None, looked: tuple[Tensor, Tensor], slab: Slab | None, layer: int) -> Tensor:
        """As in mesh_decoder.py."""
        if not runs(x, mask, slab) or not all(part.is_contiguous() and part.dtype in SLAB_TYPES for part in looked):
            return super().forward(x, mask, looked, slab, layer)
        own, cross, feed = self.self_attention, self.cross_attention, self.feed
        if self.whole.can_run():
            mask = None if mask is None else mask.contiguous()
            return self.whole(x, over_slab((*x.shape[:2], 3 * x.shape[2]), own.heads, self.turn, slab, layer, mask, None, None), looked)
        mixed = product(own.query_key_value, x, self.rows[0])
        x = product(own.out, attention(mixed, own.heads, self.turn, slab, layer, mask), residual=x)
        query = product(cross.query, x, self.rows[1])
        x = product(cross.out, attention_to(query, *looked, self.turn), residual=x)
        return product(feed.out, product(feed.value_gate, x, self.rows[2]), self.gate, x)


class QuickMeshBlocks:
    """All blocks of mesh_decoder.py in one call."""

    def __init__(self, blocks: list[NativeMeshBlock]):
        self.heads, self.stack = blocks[0].self_attention.heads, stacked(blocks)

    def __call__(
        self, x: Tensor, mask: Tensor | Chain | Seen | None, looked: list[tuple[Tensor, Tensor]], slab: Slab | None,
        fork: Fork | None = None, worn: Worn | None = None,
    ) -> Tensor | None:  # fmt: skip
        """The last block's output, or None for a pass that the functions do not know."""
        if not runs_all(self.stack, x, mask, slab, fork, worn) or (crossed := self.crossed(looked)) is None:
            return None
        if fork is not None:
            x = self.stack(x, self.heads, slab, mask, None, None, crossed, end=fork.layer)[:, fork.rows]
            mask = fork.mask
        return self.stack(x, self.heads, slab, mask, None, None, crossed, adapted_of(self.stack, worn), 0 if fork is None else fork.layer)

    def together(self, brought: Sequence[Brought]) -> Tensor | None:
        """The last block's output [rows, width] of a pass of several runs, with their conditions; None if one of them needs another kind of
        pass."""
        known = self.stack.can_run() and all(each.crossed is not None and runs(each.x, each.mask, each.slab) for each in brought)
        return self.stack.together(brought, self.heads) if known else None

    @staticmethod
    def crossed(looked: list[tuple[Tensor, Tensor]]) -> Crossed | None:
        """Keys and values of a condition as the functions take them; None if they do not know them."""
        crossed = looked.crossed if isinstance(looked, Looked) else None
        if crossed is None:
            shape, dtype = looked[0][0].shape, looked[0][0].dtype
            if dtype not in SLAB_TYPES or not all(
                part.is_contiguous() and part.shape == shape and part.dtype == dtype for pair in looked for part in pair
            ):
                return None
            crossed = Crossed(list(looked))
            if isinstance(looked, Looked):
                looked.crossed = crossed
        return crossed

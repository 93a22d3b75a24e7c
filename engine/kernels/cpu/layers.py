"""Linear layers and attention by the compiled functions of native.c, for passes of our own networks on a CPU.

Mathematics. `product` gives prepare(x) W^T + bias + residual, where prepare is a norm or a gated activation of each row. `attention` norms
the queries and keys of a pass, turns them by their places, stores keys and values in the slab, and gives softmax(scale q k^T) v. Sums are
float32; with bfloat16 weights the prepared row is rounded to bfloat16, and so are keys and values in a slab of that type. A stack adds
s B A prepare(x) to some rows of its products (row_lora.py), from the row as it was before it was rounded.
Fewest bytes: the weights once, and keys and values of the visible rows once.

The references are the modules that they replace: `nn.Linear` after a norm, and `tree_attention_reference`. A row has the same bits in a
pass of any number of rows, with any number of threads, and on whichever way a layer is called (tests/engine/kernels/cpu/test_native.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import Slab
from engine.kernels.cpu.library import AS_IT_IS, LAYERS, Attention, Block, Layer, Library, Part, Pass, Update, built
from engine.kernels.cpu.library import Norm as NativeNorm
from engine.kernels.tree_attention import Chain

WIDTHS = (1, 2, 4, 8)  # of a head, in vectors


@dataclass(frozen=True)
class Row:
    """What is done to a row before it is multiplied.

    kind : see library.py; weight, bias : of a norm, float32; constant : its epsilon, or what is added to the length of a row
    halves : whether a row is twice as long before as after
    """

    kind: int = AS_IT_IS
    weight: Tensor | None = None
    bias: Tensor | None = None
    constant: float = 0.0
    halves: bool = False


QUERIES = 4  # rows that read a key together; as in native.c
PLAIN = Row()


class NativeLinear(nn.Linear):
    """A plain linear layer whose weights also lie in the panels of native.c. With gradients enabled it computes as the plain layer. Results
    are float32, whatever the type of the products."""

    def __init__(self, layer: nn.Linear, library: Library, dtype: torch.dtype = torch.float32):
        """dtype : of the products, float32 or bfloat16 (then `in` must be even)"""
        nn.Module.__init__(self)  # the weights exist already
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias
        self.half = dtype == torch.bfloat16
        self.panels = panels(layer.weight.detach().to(dtype), 2 * library.lanes)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]"""
        if torch.is_grad_enabled():
            return super().forward(x.to(self.weight.dtype)).to(x.dtype)
        return _multiplied(self, x.float(), PLAIN, None)


def panels(weight: Tensor, width: int) -> Tensor:
    """Weights [out, in] as native.c reads them: [panels, in, width], or [panels, in / 2, width, 2] in bfloat16; missing rows are zeros."""
    outer, inner = weight.shape
    full = F.pad(weight, (0, 0, 0, -outer % width)).view(-1, width, inner)
    if weight.dtype == torch.float32:
        return full.transpose(1, 2).contiguous()
    return full.view(-1, width, inner // 2, 2).transpose(1, 2).contiguous()


def product(layer: NativeLinear, x: Tensor, row: Row = PLAIN, residual: Tensor | None = None) -> Tensor:
    """prepare(x) W^T + bias + residual: x float32 [..., in] (twice as wide for a gate) -> [..., out]. Hooks of the layer are called."""
    if not layer._forward_hooks:
        return _multiplied(layer, x, row, residual)
    found = layer(x if row is PLAIN else prepared(x, row))
    return found if residual is None else found.add_(residual)


def prepared(x: Tensor, row: Row) -> Tensor:
    """The rows as they are multiplied: [..., width] -> the same shape, or half as wide after a gate."""
    x = x.contiguous()
    width = x.shape[-1] // 2 if row.halves else x.shape[-1]
    out = torch.empty(*x.shape[:-1], width)
    rows = out.numel() // width
    library().prepare(
        x.data_ptr(), rows, x.shape[-1], width, row.kind, at(row.weight), at(row.bias), row.constant, out.data_ptr(), threads()
    )
    return out


def _multiplied(layer: NativeLinear, x: Tensor, row: Row, residual: Tensor | None) -> Tensor:
    x = x.contiguous()
    inner, outer = layer.in_features, layer.out_features
    out = torch.empty(*x.shape[:-1], outer)
    rows = out.numel() // outer
    scratch = None if row is PLAIN and not layer.half else torch.empty(rows * inner * 2)
    library().linear(
        x.data_ptr(), rows, x.shape[-1], inner, row.kind, at(row.weight), at(row.bias), row.constant, at(scratch),
        layer.panels.data_ptr(), layer.half, at(layer.bias), at(residual), out.data_ptr(), outer, threads(),
    )  # fmt: skip
    return out


@dataclass(frozen=True)
class Turn:
    """What is done to the queries and keys of a head.

    query, key : weights [width] of their root-mean-square norms, or None: they are brought to length 1
    floor : is added to their length, as the other leg of a right triangle; scale : of their products
    """

    scale: float
    query: Tensor | None = None
    key: Tensor | None = None
    floor: float = 0.0


def attention(
    mixed: Tensor, heads: int, turn: Turn, slab: Slab, layer: int, mask: Tensor | None, cos: Tensor | None = None, sin: Tensor | None = None
) -> Tensor:
    """Attention [B, R, width] of the rows of a pass, after their keys and values have been written into the slab.

    mixed : float32 [B, R, 3 * width], queries, keys and values; mask : bool [R, kept + R] or None
    cos, sin : float32 [R, head width], rotary positions, or None
    """
    mixed, mask = mixed.contiguous(), None if mask is None else mask.contiguous()
    arguments, start, width = over_slab(mixed.shape, heads, turn, slab, layer, mask, cos, sin), mixed.data_ptr(), mixed.shape[2] // 3
    arguments.queries, arguments.new_keys, arguments.new_values = start, start + 4 * width, start + 8 * width
    return _attention(arguments, mixed)


def over_slab(
    shape: torch.Size, heads: int, turn: Turn, slab: Slab, layer: int, mask: Tensor | None, cos: Tensor | None, sin: Tensor | None
) -> Attention:
    """The arguments of a pass over a slab, without the addresses of its rows: mixed ones of this shape, [B, R, 3 * width]."""
    branches, count, wide = shape
    assert slab.kept + count <= slab.capacity, f"{slab.kept + count} rows do not fit into {slab.capacity}"
    block = slab.block
    size, steps = block.element_size(), block.stride()
    keys = block.data_ptr() + layer * steps[0] * size
    width = wide // 3 // heads
    return Attention(
        0, 0, 0, wide, branches, heads, count, width, slab.kept, keys, keys + steps[1] * size, steps[2], steps[3],
        at(turn.query), at(turn.key), at(cos), at(sin), at(mask), 0, 0, scratch_of(count, width, slab.kept),
        turn.floor, turn.scale, block.dtype == torch.bfloat16, threads(),
    )  # fmt: skip


def scratch_of(count: int, width: int, kept: int) -> int:
    """The numbers that a thread needs for attention: queries, a key, the scores of four rows, and for more rows keys and values that it
    widens."""
    return (count + 1) * width + 4 * (kept + count + 16) + (2 * (kept + count) * width if count > QUERIES else 0)


def attention_to(queries: Tensor, keys: Tensor, values: Tensor, turn: Turn) -> Tensor:
    """Attention [B, R, width] to fixed keys and values, of which everything is seen.

    queries : float32 [B, R, width]; keys, values : [B, heads, S, head width], contiguous, of one type; keys are as they will be compared
    """
    queries = queries.contiguous()
    branches, count, wide = queries.shape
    heads, seen, width = keys.shape[1:]
    return _attention(
        Attention(
            queries.data_ptr(), 0, 0, wide, branches, heads, count, width, seen, keys.data_ptr(), values.data_ptr(), *keys.stride()[:2],
            norm_query=at(turn.query), floor=turn.floor, scale=turn.scale, half=keys.dtype == torch.bfloat16,
        ), queries
    )  # fmt: skip


def _attention(a: Attention, like: Tensor) -> Tensor:
    out = torch.empty(*like.shape[:2], a.heads * a.width)
    a.threads, a.scratch_size = threads(), scratch_of(a.count, a.width, a.kept)
    scratch = torch.empty(a.threads * a.scratch_size)
    a.out, a.scratch = out.data_ptr(), scratch.data_ptr()
    library().attend(ctypes.byref(a))
    return out


@dataclass(frozen=True)
class Whole:
    """A block as one call: its layers in the order of native.c, and what is done to rows before the first, the third and the fifth.

    most : numbers of a row in the widest result between two layers
    """

    layers: tuple[NativeLinear, ...]
    rows: tuple[Row, ...]
    most: int

    def can_run(self) -> bool:
        """Whether no layer has a hook, which would have to be called between two layers."""
        return not any(layer._forward_hooks for layer in self.layers)

    def block(self) -> Block:
        """Its weights, as the functions take them."""
        norms = (NativeNorm * 3)(*((at(row.weight), at(row.bias), row.constant, row.kind) for row in self.rows))
        layers = (Layer * LAYERS)(*((at(o.panels), at(o.bias), o.in_features, o.out_features) for o in self.layers))
        return Block(half=self.layers[0].half, norms=norms, layers=layers)

    def __call__(self, x: Tensor, attention: Attention, cross: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The block's output [B, R, width] from x float32 [B, R, width] and the arguments that `over_slab` returns.

        cross : keys and values of the condition, of a mesh's block
        """
        x = x.contiguous()
        out, rows, inner = torch.empty_like(x), x.shape[0] * x.shape[1], max(layer.in_features for layer in self.layers)
        if cross is not None:
            attention.scratch_size = max(attention.scratch_size, scratch_of(attention.count, attention.width, cross[0].shape[2]))
        scratch = max(2 * rows * inner, attention.threads * attention.scratch_size)
        work = torch.empty(rows * (4 * x.shape[2] + self.most) + scratch)
        block = self.block()
        block.x, block.out, block.work, block.rows = x.data_ptr(), out.data_ptr(), work.data_ptr(), rows
        block.threads, block.attention = attention.threads, attention
        if cross is None:
            library().picture_block(ctypes.byref(block))
            return out
        keys, values = cross
        block.cross_keys, block.cross_values, block.cross_count = keys.data_ptr(), values.data_ptr(), keys.shape[2]
        (block.cross_branch_stride, block.cross_head_stride), block.cross_half = keys.stride()[:2], keys.dtype == torch.bfloat16
        library().mesh_block(ctypes.byref(block))
        return out


class Crossed:
    """Keys and values of a condition for every block [B, heads, S, head width], as the functions take them."""

    def __init__(self, looked: Sequence[tuple[Tensor, Tensor]]):
        """looked : all of one shape and type, contiguous"""
        self.looked, (keys, _) = looked, looked[0]  # keep their addresses
        self.pointers = (c_void_p * (2 * len(looked)))(*(part.data_ptr() for pair in looked for part in pair))
        self.count, self.strides, self.half = keys.shape[2], keys.stride()[:2], keys.dtype == torch.bfloat16


@dataclass(frozen=True)
class Brought:
    """What one run brings to a pass of several.

    x : float32 [B, R, width]; mask : bool [R, kept + R], a chain or None; cos, sin : float32 [R, head width] or None
    crossed : keys and values of its condition for every block, of a mesh's network
    """

    x: Tensor
    slab: Slab
    mask: Tensor | Chain | None
    cos: Tensor | None = None
    sin: Tensor | None = None
    crossed: Crossed | None = None


class Updates:
    """A low-rank adapter as the functions take it: an `Update` for each layer of each block, empty for a layer without one."""

    def __init__(self, stack: Stack, pairs: Iterable[tuple[nn.Module, Tensor, Tensor]], scale: float):
        """pairs : layers of the stack, each with A [rank, in] and B [out, rank], float32; scale : s of s B A x"""
        self.stack = stack
        self.structures, self.kept, self.rank = (Update * (LAYERS * len(stack.wholes)))(), [], 0
        for layer, down, up in pairs:
            both = [panels(each, 2 * library().lanes) for each in (down.detach(), scale * up.detach())]
            self.kept += both  # at their addresses
            self.structures[stack.numbers[id(layer)]] = Update(at(both[0]), at(both[1]), len(down))
            self.rank = max(self.rank, len(down))


@dataclass(frozen=True)
class Adapted:
    """What an adapter changes in a pass: the rows of each branch from number `first` on."""

    updates: Updates
    first: int


class Stack:
    """All blocks of a network as one call. Later changes of a weight have no effect."""

    def __init__(self, wholes: Sequence[Whole], turns: Sequence[Turn]):
        self.wholes, self.turns = tuple(wholes), tuple(turns)  # keep the weights at their addresses
        self.blocks = (Block * len(wholes))(*(whole.block() for whole in wholes))
        for block, turn in zip(self.blocks, turns, strict=True):
            block.attention = Attention(norm_query=at(turn.query), norm_key=at(turn.key), floor=turn.floor, scale=turn.scale)
        self.inner = max(layer.in_features for whole in wholes for layer in whole.layers)
        self.hooks = [layer._forward_hooks for whole in wholes for layer in whole.layers]  # empty, or filled later

        self.numbers = {id(layer): i * LAYERS + j for i, whole in enumerate(wholes) for j, layer in enumerate(whole.layers)}

    def has(self, layer: nn.Module) -> bool:
        """Whether a layer is one of its own."""
        return id(layer) in self.numbers

    def can_run(self) -> bool:
        """Whether nothing has a hook."""
        return not any(self.hooks)

    def __call__(
        self, x: Tensor, heads: int, slab: Slab, mask: Tensor | Chain | None, cos: Tensor | None, sin: Tensor | None,
        crossed: Crossed | None = None, adapted: Adapted | None = None, begin: int = 0, end: int | None = None,
    ) -> Tensor:  # fmt: skip
        """The last block's output [B, R, width] from x float32 [B, R, width]; writes the rows' keys and values into the slab.

        mask : bool [R, kept + R], a chain or None; crossed : keys and values of the condition for every block, of a mesh's network
        begin, end : of the blocks that run; all
        """
        x, is_chain = x.clone(memory_format=torch.contiguous_format), isinstance(mask, Chain)
        mask = None if is_chain or mask is None else mask.contiguous()
        rows, width, block = x.shape[0] * x.shape[1], x.shape[2], slab.block
        attention = over_slab((*x.shape[:2], 3 * width), heads, self.turns[0], slab, begin, mask, cos, sin)
        attention.chain = is_chain
        call = Pass(rows=rows, layer_stride=block.stride(0) * block.element_size(), threads=attention.threads)
        if crossed is not None:
            call.crossed = ctypes.addressof(crossed.pointers) + begin * 2 * ctypes.sizeof(c_void_p)
            call.cross_count, call.cross_half = crossed.count, crossed.half
            call.cross_branch_stride, call.cross_head_stride = crossed.strides
            attention.scratch_size = max(attention.scratch_size, scratch_of(attention.count, attention.width, crossed.count))
        rank = 0
        if adapted is not None:
            rank, call.first = adapted.updates.rank, adapted.first
            call.updates = ctypes.addressof(adapted.updates.structures) + begin * LAYERS * ctypes.sizeof(Update)
        scratch = max(rows * (2 * self.inner + rank), attention.threads * attention.scratch_size)
        work = torch.empty(rows * (4 * width + self.wholes[0].most) + scratch)
        call.x, call.work, call.attention = x.data_ptr(), work.data_ptr(), attention
        blocks = ctypes.addressof(self.blocks) + begin * ctypes.sizeof(Block)
        library().all_blocks(blocks, (len(self.blocks) if end is None else end) - begin, ctypes.byref(call))
        return x

    def together(self, runs: Sequence[Brought], heads: int) -> Tensor:
        """The last block's output [rows, width] of the rows of several runs, one run after another, each its branches one after another.
        Weights are read once for all of them; every run attends to its own slab, and writes into it."""
        x = torch.cat([run.x.flatten(0, 1) for run in runs])
        rows, width = x.shape
        masks = [run.mask.contiguous() if isinstance(run.mask, Tensor) else None for run in runs]  # keep their addresses
        parts, first = (Part * len(runs))(), 0
        for part, run, mask in zip(parts, runs, masks, strict=True):
            _fill(part, run, over_slab((*run.x.shape[:2], 3 * width), heads, self.turns[0], run.slab, 0, mask, run.cos, run.sin), first)
            first += run.x.shape[0] * run.x.shape[1]
        most = max(part.attention.scratch_size for part in parts)
        scratch = max(2 * rows * self.inner, threads() * most)
        work, room = torch.empty(rows * (4 * width + self.wholes[0].most) + scratch), (Attention * len(runs))()
        for part in parts:
            part.attention.scratch_size = most
        call = Pass(x=x.data_ptr(), work=work.data_ptr(), rows=rows, threads=threads(), part_count=len(runs))
        call.parts, call.room = ctypes.addressof(parts), ctypes.addressof(room)
        library().all_blocks(self.blocks, len(self.blocks), ctypes.byref(call))
        return x


def _fill(part: Part, run: Brought, attention: Attention, first: int) -> None:
    """Writes what a run brings, whose rows begin at `first`, as the functions take it."""
    attention.chain = isinstance(run.mask, Chain)
    part.first, part.layer_stride = first, run.slab.block.stride(0) * run.slab.block.element_size()
    if (crossed := run.crossed) is not None:
        part.crossed, part.cross_count, part.cross_half = ctypes.addressof(crossed.pointers), crossed.count, crossed.half
        part.cross_branch_stride, part.cross_head_stride = crossed.strides
        attention.scratch_size = max(attention.scratch_size, scratch_of(attention.count, attention.width, crossed.count))
    part.attention = attention


def can_attend(width: int) -> bool:
    """Whether heads of a width are supported here."""
    return width in [n * library().lanes for n in WIDTHS]


def library() -> Library:
    """The compiled functions; layers that need them exist only where they are."""
    found, reason = built()
    assert found is not None, reason
    return found


def at(x: Tensor | None) -> int:
    """The address of a tensor, 0 for None."""
    return 0 if x is None else x.data_ptr()


def threads() -> int:
    """The number of threads, PyTorch's."""
    return torch.get_num_threads()

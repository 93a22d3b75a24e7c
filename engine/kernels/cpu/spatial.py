"""Row and column heads on a CPU by the compiled function of native_spatial.c: one call from the states around some slots to their logits.

Mathematics. `SpatialHeads` in engine/drafters/spatial_heads.py, for heads that read mixed states, with the inputs that `Around` names.
Fewest bytes: the weights of the heads and of the output layer once, a state and an embedding for each slot.

A slot has the same bits in a call of any number of slots, with any number of threads (tests/engine/kernels/cpu/test_spatial.py).
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_long, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.kernels.cpu.layers import NativeLinear, Row, at, threads
from engine.kernels.cpu.library import Library


class Product(ctypes.Structure):
    """The weights of a product and of a norm."""

    _fields_ = (("panels", c_void_p), ("norm", c_void_p), ("floor", c_float))


class Spatial(ctypes.Structure):
    """The arguments of `spatial_heads`; native_spatial.c describes them."""

    _fields_ = (
        ("states", c_void_p), ("branch_stride", c_long), ("branches", c_long), ("guidance", c_float), ("tokens", c_void_p),
        ("first_token", c_long), ("table", c_void_p),
        *((name, c_long) for name in ("width", "inner", "reach", "wide", "start", "count", "newest", "known")), ("rows", c_int),
        ("columns", c_int), *((name, Product) for name in ("state", "token", "above", "left", "feed", "down", "head")),
        *((name, c_void_p) for name in ("no_row", "places", "scale", "bias", "head_bias")), ("half", c_int), ("vocabulary", c_long),
        ("logits", c_void_p), ("work", c_void_p), ("threads", c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Weights:
    """The weights of the heads, float32: layers, and what stands before them.

    state, token, feed : norms; no_row, scale, bias : [width]; places : [2 reach + 1, width]
    """

    state: Row
    token: Row
    feed: Row
    above: NativeLinear
    left: NativeLinear
    gate_up: NativeLinear
    down: NativeLinear
    no_row: Tensor
    places: Tensor
    scale: Tensor
    bias: Tensor


class NativeSpatial:
    """The heads of one run. Later changes of a weight have no effect."""

    def __init__(self, library: Library, weights: Weights, output: NativeLinear, table: Tensor, branches: int, guidance: float, wide: int):
        """output : the backbone's, of either type; table : [V, width], mixed embeddings; wide : of a row of the picture"""
        w, self.library, self.output = weights, library, output
        vectors = [x.detach().contiguous() for x in (w.no_row, w.places, w.scale, w.bias)]
        self.kept = weights, output, table, vectors  # keeps their addresses
        no_row, places, scale, bias = map(at, vectors)
        self.fixed = Spatial(
            branches=branches, guidance=guidance, table=table.data_ptr(), width=output.in_features, inner=w.down.in_features,
            reach=(len(w.places) - 1) // 2, wide=wide, state=_norm(w.state), token=_norm(w.token), above=_layer(w.above),
            left=_layer(w.left), feed=_layer(w.gate_up, w.feed), down=_layer(w.down), head=_layer(output), no_row=no_row, places=places,
            scale=scale, bias=bias, head_bias=at(output.bias), half=output.half, vocabulary=output.out_features,
        )  # fmt: skip

    def can_run(self, states: Tensor) -> bool:
        """Whether the function knows states, and no hook of the output layer has to be called."""
        known = states.dtype == torch.float32 and states.device.type == "cpu" and states.is_contiguous()
        return known and not torch.is_grad_enabled() and not self.output._forward_hooks

    def __call__(
        self, states: Tensor, tokens: Tensor, first_token: int, slots: range, newest: int, known: int, rows: bool, columns: bool
    ) -> Tensor:  # fmt: skip
        """Guided logits [N, V] of consecutive slots.

        states : float32 [branches, positions, width]; tokens : int64, of the positions from `first_token` on; the others as for `Around.of`
        """
        call = Spatial.from_buffer_copy(self.fixed)
        call.states, call.branch_stride = states.data_ptr(), states.stride(0)
        call.tokens, call.first_token = tokens.data_ptr(), first_token
        call.start, call.count, call.newest, call.known = slots.start, len(slots), newest, known
        call.rows, call.columns, call.threads = rows, columns, threads()
        logits, work = torch.empty(len(slots), self.output.out_features), torch.empty(self.library.spatial_work(ctypes.byref(call)))
        call.logits, call.work = logits.data_ptr(), work.data_ptr()
        self.library.spatial_heads(ctypes.byref(call))
        return logits


def native_layers(layers: list[nn.Linear], output: object, library: Library | None) -> bool:
    """Whether the function knows the layers of heads, and the output layer behind them."""
    if library is None or not isinstance(output, NativeLinear):
        return False
    return all(isinstance(layer, NativeLinear) and not layer.half for layer in layers) and output.in_features % library.lanes == 0


def _layer(layer: NativeLinear, before: Row | None = None) -> Product:
    """A layer's panels, and the norm before it."""
    norm = Product() if before is None else _norm(before)
    return Product(panels=layer.panels.data_ptr(), norm=norm.norm, floor=norm.floor)


def _norm(row: Row) -> Product:
    """A norm of rows."""
    return Product(norm=at(row.weight), floor=row.constant)

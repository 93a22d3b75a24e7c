"""A pass in fixed shapes, so that a GPU can replay it as one CUDA graph instead of being told every operation again.

The host says in one small tensor what a pass is: how many rows of the slab are kept, and of each row its id, its slot and what it sees of
the other rows. Everything else follows on the device: embeddings, mask, trunk, head. The shapes are a bucket's: rows are filled up to 1, 4,
8, 16, ... with rows that see only themselves and what is kept, and the slab is read up to a power of two. What the fillers write lies after
the last row that anybody keeps.

`fixed_pass` is that computation, a function of tensors that changes nothing but the slab. `Static` runs it for a sequence: on a GPU it
captures a graph for each bucket, and elsewhere, for tests, it calls the function. The results of a graph lie in memory that its next replay
overwrites, so a pass hands out copies.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import FixedView, Laid, Slab
from engine.errors import NotSupported
from engine.kernels.tree_attention import packed, unpacked

VARIABLE = "FORETOKEN_STEP"
STATIC, DYNAMIC = "static", "dynamic"
ROWS = (1, 4, 8, 16, 32, 64, 128, 256)  # of a pass
LEAST_SPAN = 512  # rows of the slab that a pass reads, at least
WARMED = 2  # calls before a capture: libraries allocate what they need in the first


def is_static(device: torch.device) -> bool:
    """Whether passes on a device have fixed shapes: on an NVIDIA GPU, unless FORETOKEN_STEP says otherwise; raises NotSupported for an
    unknown value of it."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", STATIC, DYNAMIC):
        raise NotSupported(f"{VARIABLE}={wanted} is unknown. Set it to {STATIC} or {DYNAMIC}, or unset it.")
    return wanted == STATIC if wanted else device.type == "cuda"


class FixedTrunk(Protocol):
    """What a trunk needs for such passes, besides `Trunk`: its `run` depends on slots, mask and slab through tensors alone, and it says
    `fixed = True`."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[R] ids -> [1 or branches, R, H]"""
        ...

    def ended(self, x: Tensor, ends: Tensor) -> Tensor:
        """By models whose rows have ends: x [branches, P, H] with row ends where bool [P] says so."""
        ...


@dataclass(frozen=True)
class Pass:
    """What a pass is.

    pending : the first row's id; drafted : int64 [R-1], the ids of the others, anywhere; laid : where the rows are, on the host
    """

    pending: int
    drafted: Tensor
    laid: Laid


@dataclass(frozen=True)
class Bucket:
    """The shapes of a pass: places, and rows of the slab that it reads."""

    rows: int
    span: int


def bucket(count: int, kept: int, capacity: int) -> Bucket | None:
    """The smallest bucket for `count` places after `kept` rows of a slab; None if none fits into it."""
    rows = next((rows for rows in ROWS if rows >= count), None)
    if rows is None or kept + rows > capacity:
        return None
    span = LEAST_SPAN
    while span < kept + rows:
        span *= 2
    return Bucket(rows, min(span, capacity))


def said(what: Pass, kept: int, rows: int) -> Tensor:
    """All that the host says about a pass, int64 [rows, 6 + words], filled up: the kept rows, id, row, end, last place and slot of each
    place, and its set."""
    laid = what.laid
    known = torch.tensor([what.pending, *(what.drafted.tolist() if what.drafted.device.type == "cpu" else [-1] * len(what.drafted))])
    columns = (torch.full((rows,), kept), known, laid.rows, laid.ends.long(), laid.last, laid.slots)
    fill = rows - len(laid.slots)
    visible = F.pad(laid.visible, (0, fill, 0, fill)) | torch.eye(rows, dtype=torch.bool)
    return torch.cat([torch.stack([F.pad(each, (0, rows - len(each))) for each in columns], 1), packed(visible)], 1)


def fixed_pass(trunk: Any, block: Tensor, told: Tensor, drafted: Tensor, span: int) -> tuple[Tensor, Tensor]:
    """Hidden states [branches, R, H] and logits [branches, R, V] of the rows of a pass; writes their keys and values into the slab.

    block : the slab's; told : int64 [R, 6 + words], see `said`; drafted : int64 [R], the ids that the host does not know (-1)
    """
    rows, branches = len(told), block.shape[2]
    kept, ids, of, ends, last, slots = told[:, :6].unbind(1)
    within = torch.arange(rows, device=told.device)
    at = kept + within
    visible = unpacked(told[:, 6:])
    every = torch.arange(span, device=told.device)
    own = every - kept[:, None]  # [R, span]: the number of each row of the slab in this pass
    mask = (own < 0) | (visible.gather(1, own.clamp(0, rows - 1)) & (own < rows))
    x = trunk.embed(torch.where(ids < 0, drafted, ids))
    x = x[:, of].expand(branches, -1, -1)
    if hasattr(trunk, "ended"):
        x = trunk.ended(x, ends > 0)
    hidden = trunk.run(x, slots, mask, FixedView(block, at, span))[:, last]
    return hidden, trunk.head(hidden)


class Graph:
    """A captured call of a function without arguments. Its results are the same tensors at every replay."""

    def __init__(self, function: Callable[[], tuple[Tensor, ...]], pool: Any):
        """pool : of memory, shared by the graphs of a run; they never run at the same time"""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARMED):
                function()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):  # another thread may load a model meanwhile
            self.found = function()

    def __call__(self) -> tuple[Tensor, ...]:
        self.graph.replay()
        return tuple(each.clone() for each in self.found)


class Static:
    """The passes of one run in fixed shapes: the tensors that the host writes into, and a graph for each bucket in use."""

    def __init__(self, trunk: Any, slab: Slab):
        self.trunk, self.slab = trunk, slab
        self._captures = slab.block.device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self._captures else None
        self._calls: dict[Bucket, tuple[Tensor, Tensor, Callable[[], tuple[Tensor, ...]]]] = {}

    def run(self, what: Pass) -> tuple[Tensor, Tensor] | None:
        """Hidden states and logits of the rows of a pass, or None if it fits into no bucket."""
        shape = bucket(len(what.laid.slots), self.slab.kept, self.slab.capacity)
        if shape is None:
            return None
        count = 1 + len(what.drafted)
        staged = said(what, self.slab.kept, shape.rows)
        if self._captures:
            staged = staged.pin_memory()
        known = shape in self._calls
        told, drafted, call = self._calls[shape] if known else self._prepared(shape, staged.shape[1])
        told.copy_(staged, non_blocking=True)
        if what.drafted.device.type != "cpu":
            drafted[1:count].copy_(what.drafted)
        if not known:
            call = Graph(call, self._pool) if self._captures else call
            self._calls[shape] = told, drafted, call
        hidden, logits = call()
        return hidden[:, :count], logits[:, :count]

    def _prepared(self, shape: Bucket, width: int) -> tuple[Tensor, Tensor, Callable[[], tuple[Tensor, ...]]]:
        device = self.slab.block.device
        told = torch.zeros(shape.rows, width, dtype=torch.int64, device=device)
        drafted = torch.zeros(shape.rows, dtype=torch.int64, device=device)
        return told, drafted, partial(fixed_pass, self.trunk, self.slab.block, told, drafted, shape.span)

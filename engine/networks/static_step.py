"""A pass in fixed shapes, so that a GPU can replay it as one CUDA graph instead of being told every operation again.

The host says in one small tensor what a pass is: how many rows of the slab are kept, and of each row its id, its slot and what it sees of
the other rows. Everything else follows on the device: embeddings, mask, trunk, head. The shapes are a bucket's: rows are filled up to 1, 4,
8, 16, ... with rows that see only themselves and what is kept, and the slab is read up to a power of two. What the fillers write lies after
the last row that anybody keeps.

`fixed_pass` is that computation, a function of tensors that changes nothing but the slab. `Static` runs it for a sequence: on a GPU it
captures a graph for each bucket, and elsewhere, for tests, it calls the function. The results of a graph lie in memory that its next replay
overwrites, so a pass hands out copies. A drafter's passes can be replayed beside it (engine/drafters/feature_draft.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import FixedView, Laid, Slab
from engine.errors import NotSupported

VARIABLE = "FORETOKEN_STEP"
STATIC, DYNAMIC = "static", "dynamic"
ROWS = (1, 4, 8, 16, 32, 64, 128, 256)  # of a pass
LEAST_SPAN = 512  # rows of the slab that a pass reads, at least
WARMED = 2  # calls before a capture: libraries allocate what they need in the first


def bits(visible: Tensor) -> Tensor:
    """Sets of bits from bool [R, C], C a multiple of 64: int64 [R, C / 64]."""
    return (visible.view(len(visible), -1, 64).long() << torch.arange(64, device=visible.device)).sum(-1)


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
    sets = bits(F.pad(visible, (0, -rows % 64)))
    return torch.cat([torch.stack([F.pad(each, (0, rows - len(each))) for each in columns], 1), sets], 1)


def seen(sets: Tensor, kept: Tensor, span: int) -> Tensor:
    """The mask bool [R, span] of rows that see the first `kept` int64 [R] rows of a slab, and of those after them what their sets say."""
    own = torch.arange(span, device=kept.device) - kept[:, None]
    visible = (sets[:, :, None] >> torch.arange(64, device=kept.device) & 1).flatten(1).bool()
    width = visible.shape[1]
    return (own < 0) | (visible.gather(1, own.clamp(0, width - 1)) & (own < width))


def fixed_pass(trunk: Any, block: Tensor, told: Tensor, drafted: Tensor | None, span: int) -> tuple[Tensor, Tensor]:
    """Hidden states [branches, R, H] and logits [branches, R, V] of the rows of a pass; writes their keys and values into the slab.

    block : the slab's; told : int64 [R, 6 + words], see `said`; drafted : int64 [R], the ids that the host does not know (-1); None:
    it knows all
    """
    rows, branches = len(told), block.shape[2]
    kept, ids, of, ends, last, slots = told[:, :6].unbind(1)
    within = torch.arange(rows, device=told.device)
    at, mask = kept + within, seen(told[:, 6:], kept, span)
    x = trunk.embed(ids if drafted is None else torch.where(ids < 0, drafted, ids))
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


class Replays:
    """Functions of tensors that are called in fixed shapes on one device: on a GPU a graph for each key, elsewhere plain calls."""

    def __init__(self, device: torch.device):
        self.device, self._captures = device, device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self._captures else None
        self._known: dict[Hashable, tuple[tuple[Tensor, ...], Callable[[], tuple[Tensor, ...]]]] = {}

    def call(self, key: Hashable, function: Callable[..., tuple[Tensor, ...]], *given: Tensor) -> tuple[Tensor, ...]:
        """The results of a function of some tensors, which may be anywhere.

        key : stands for the function and for the shapes and types of its inputs
        """
        known = key in self._known
        held, call = self._known[key] if known else self._held(function, given)
        for place, tensor in zip(held, given, strict=True):
            sent = tensor.pin_memory() if self._captures and tensor.device.type == "cpu" else tensor
            place.copy_(sent, non_blocking=True)
        if not known:
            call = Graph(call, self._pool) if self._captures else call
            self._known[key] = held, call
        return call()

    def _held(self, function: Callable[..., tuple[Tensor, ...]], given: tuple[Tensor, ...]) -> Any:
        """The tensors that a call reads, and the call."""
        held = tuple(torch.zeros(each.shape, dtype=each.dtype, device=self.device) for each in given)
        return held, partial(function, *held)


class Static:
    """The passes of one run in fixed shapes. Its drafter may use the same `replays`, so that graphs share their memory."""

    def __init__(self, trunk: Any, slab: Slab):
        self.trunk, self.slab = trunk, slab
        self.replays = Replays(slab.block.device)

    def run(self, what: Pass) -> tuple[Tensor, Tensor] | None:
        """Hidden states and logits of the rows of a pass, or None if it fits into no bucket."""
        shape = bucket(len(what.laid.slots), self.slab.kept, self.slab.capacity)
        if shape is None:
            return None
        given = [said(what, self.slab.kept, shape.rows)]
        count = 1 + len(what.drafted)
        is_known = what.drafted.device.type == "cpu"
        if not is_known:
            given.append(F.pad(what.drafted, (1, shape.rows - count)))
        whole = partial(_fixed_pass, self.trunk, self.slab.block, shape.span)
        hidden, logits = self.replays.call((shape, is_known), whole, *given)
        return hidden[:, :count], logits[:, :count]


def _fixed_pass(trunk: Any, block: Tensor, span: int, told: Tensor, drafted: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return fixed_pass(trunk, block, told, drafted, span)

"""The memory and the graphs of passes in fixed shapes: they belong to a model, and its runs borrow them.

A graph reads and writes tensors at the addresses that it was captured with. A `Workspace` has a key/value block and copies of the tensors
of one run, so that a graph captured in one run serves the next one, whatever its prompt; two runs at the same time have a workspace each.
A capture takes as long as some tens of passes. So a pass takes a bucket that has been captured, though larger, before its own, and a shape
that a run needs once or twice is computed without a graph.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from threading import Lock

import torch
from torch import Tensor

from engine.cache import WHOLE_ROWS, KVCache
from engine.networks.cuda_graph import Graph

ROWS = (1, *range(8, 257, 8))  # of a pass
LEAST_SPAN = 512  # rows of the cache that a pass reads, at least
PATIENCE = 32  # passes of a run in a larger bucket, before its own is used
USES = 3  # the pass of a run, in one bucket, at which this is captured
KINDS = 48  # of functions whose graphs are kept; a run has up to eight, or three for each of the widths of an adaptive tree
IDLE = 2  # workspaces that a model keeps: a race has two runs

Call = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Bucket:
    """The shapes of a pass: the number of places, and of cache rows that it reads; or of another function."""

    rows: int
    span: int


def bucket(count: int, kept: int, capacity: int) -> Bucket | None:
    """The smallest bucket for `count` places after `kept` rows of a cache; None if there is none."""
    rows = next((rows for rows in ROWS if rows >= count), None)
    return None if rows is None or kept + rows > capacity else Bucket(rows, span(kept + rows, capacity))


def span(count: int, capacity: int) -> int:
    """The rows of the cache that a pass reads if it needs the first `count`."""
    return min(max(LEAST_SPAN, 1 << (count - 1).bit_length()), capacity)


def lengths(count: int, capacity: int) -> Iterator[int]:
    """The number of kept rows with which passes of `count` places begin to read more of a cache."""
    kept = 0
    while (shape := bucket(count, kept, capacity)) is not None:
        yield kept
        kept = shape.span - shape.rows + 1


def capture_on(device: torch.device) -> Callable[[Call], Call] | None:
    """A function that captures a call; captures share their memory. None on a device without graphs."""
    return partial(Graph, pool=torch.cuda.graph_pool_handle()) if device.type == "cuda" else None


class Replays:
    """Calls functions of tensors in fixed shapes on one device: on a GPU as one graph per key and bucket, elsewhere directly."""

    def __init__(self, device: torch.device):
        self.device, self._capture = device, capture_on(device)
        self._bound: dict[tuple[Hashable, Bucket], tuple[tuple[Tensor, ...], Call]] = {}  # the tensors that a call reads, and the call
        self._graphs: dict[Hashable, dict[Bucket, Call]] = {}  # by key; the one used last is the last
        self._waited: Counter[tuple[Hashable, Bucket]] = Counter()  # passes of the run in a larger bucket than their own
        self._used: Counter[tuple[Hashable, Bucket]] = Counter()  # passes of the run without a graph

    @property
    def count(self) -> int:
        """The number of captured passes: on a GPU, of graphs."""
        return sum(len(buckets) for buckets in self._graphs.values())

    def begin(self) -> None:
        """Begins a run. The graphs of the kinds unused for longest go if there are too many."""
        kept = dict(list(self._graphs.items())[-KINDS:])
        self._graphs, self._bound = kept, {slot: each for slot, each in self._bound.items() if slot[0] in kept}
        self._waited.clear()
        self._used.clear()

    def choose(self, key: Hashable, count: int, kept: int, capacity: int) -> Bucket | None:
        """The bucket for `count` places after `kept` rows: the smallest one, or for some passes a larger one that has been captured."""
        own, captured = bucket(count, kept, capacity), self._graphs.get(key, {})
        if own is None or own in captured:
            return own
        larger = [each for each in captured if each.rows > own.rows and each.span == span(kept + each.rows, capacity) >= kept + each.rows]
        self._waited[key, own] += 1
        return own if not larger or self._waited[key, own] > PATIENCE else min(larger, key=lambda each: each.rows)

    def call(self, key: Hashable, shape: Bucket, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
        """The results of a function of some tensors, which may be on any device.

        key : identifies the function, and the types of its inputs; with the bucket also their shapes
        """
        if (key, shape) not in self._bound:
            self._bound[key, shape] = self._bind(function, inputs)
        (buffers, call), graphs = self._bound[key, shape], self._graphs.pop(key, {})
        self._graphs[key] = graphs
        for place, tensor in zip(buffers, inputs, strict=True):
            sent = tensor.pin_memory() if self.device.type == "cuda" and tensor.device.type == "cpu" else tensor
            place.copy_(sent, non_blocking=True)
        if shape not in graphs:
            self._used[key, shape] += 1
            if self._used[key, shape] < USES:
                return call()
            graphs[shape] = call if self._capture is None else self._capture(call)
        return graphs[shape]()

    def _bind(self, function: Callable[..., tuple[Tensor, ...]], inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Call]:
        buffers = tuple(torch.zeros(each.shape, dtype=each.dtype, device=self.device) for each in inputs)
        return buffers, partial(function, *buffers)


class Workspace:
    """What one run at a time uses: a block for its cache, tensors by name, and the replays that read them."""

    def __init__(self, kv_cache: KVCache, number: int):
        """number : a smaller one is borrowed first"""
        self.number, self.replays, self._held = number, Replays(kv_cache.device), {}
        *outer, capacity, width = kv_cache.shape
        self.block = self.zeros("block", (*outer, -(-capacity // WHOLE_ROWS) * WHOLE_ROWS, width), kv_cache.dtype)

    def fits(self, kv_cache: KVCache) -> bool:
        """True if a cache can use the block."""
        (*ours, room, width), (*theirs, needed, other) = self.block.shape, kv_cache.shape
        return (ours, width, self.block.dtype) == (theirs, other, kv_cache.dtype) and room >= needed

    def zeros(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros, in the same tensor whenever name, shape and type are the same."""
        key = name, tuple(shape), dtype
        if key not in self._held:
            with torch.inference_mode(False):  # the tensors of this mode may not be changed outside of it
                self._held[key] = torch.empty(shape, dtype=dtype, device=self.replays.device)
        return self._held[key].zero_()

    def hold(self, name: str, tensor: Tensor) -> Tensor:
        """A copy of a tensor of the run, in the same tensor whenever name, shape and type are the same."""
        return self.zeros(name, tensor.shape, tensor.dtype).copy_(tensor)


class WorkspacePool:
    """The workspaces of a model. Threads may borrow at the same time."""

    def __init__(self) -> None:
        self._idle: list[Workspace] = []  # the one used last is the last
        self._lock, self._numbers = Lock(), itertools.count()

    def __deepcopy__(self, memo: object) -> WorkspacePool:
        """A copy of a model has workspaces of its own."""
        return WorkspacePool()

    def borrow(self, kv_cache: KVCache) -> Workspace:
        """A workspace that no other run uses; its block, of zeros, becomes the cache's."""
        with self._lock:
            workspace = min((each for each in self._idle if each.fits(kv_cache)), key=lambda each: each.number, default=None)
            if workspace is not None:
                self._idle.remove(workspace)
        workspace = self._make(kv_cache) if workspace is None else workspace
        workspace.replays.begin()
        kv_cache.use(workspace.block.zero_())
        return workspace

    def give_back(self, workspace: Workspace) -> None:
        """Makes a workspace free for other runs. The one unused for longest goes if there are too many."""
        with self._lock:
            self._idle = [*self._idle, workspace][-IDLE:]

    def release(self) -> None:
        """Frees the workspaces that no run uses."""
        with self._lock:
            self._idle = []

    def _make(self, kv_cache: KVCache) -> Workspace:
        try:
            return Workspace(kv_cache, next(self._numbers))
        except torch.OutOfMemoryError:
            self.release()
            return Workspace(kv_cache, next(self._numbers))

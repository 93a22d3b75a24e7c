"""The key/value cache: one preallocated block for all layers. A pass writes after the kept rows, and commit keeps a path of them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from engine.cache.keep import keep_rows

WHOLE_ROWS = 256  # the capacity of a block that runs share is a multiple of this, so that it does not depend on the length of usual prompts


@dataclass(frozen=True)
class PassRows:
    """The cache rows of a pass, its *places*: one or more for each row (engine/networks/hosted.py).

    rows : int64 [P], the row of each place; ends : bool [P], True for row ends; last : int64 [R], the last place of each row
    slots : int64 [P]; visible : bool [P, P], True where a place sees another; all on the host
    most : the number of places that a pass of so many rows in a chain may have anywhere in the sequence
    """

    rows: Tensor
    ends: Tensor
    last: Tensor
    slots: Tensor
    visible: Tensor
    most: int


class KVCache:
    """Keys and values of every layer, [layers, 2, branches, heads, capacity, head width], and the number of kept rows.

    write() stores the rows of a pass after the kept rows. keep() makes some of them permanent, moves these together and discards
    the others. The block is allocated at its first use, unless `use` gives another one.
    """

    def __init__(self, layers: int, branches: int, heads: int, capacity: int, width: int, device: torch.device, dtype: torch.dtype):
        self.shape, self.device, self.dtype = (layers, 2, branches, heads, capacity, width), device, dtype
        self.kept, self.branches = 0, branches

    @cached_property
    def block(self) -> Tensor:
        """The keys and values of every layer."""
        return torch.zeros(self.shape, device=self.device, dtype=self.dtype)

    def use(self, block: Tensor) -> None:
        """Makes a block of zeros, with at least this capacity, the cache's."""
        self.shape, self.block = tuple(block.shape), block

    def branch(self, number: int) -> KVCache:
        """A view of one branch, for a pass that is kept in this cache."""
        view = copy(self)
        view.branches, view.block = 1, self.block[:, :, number : number + 1]
        return view

    @property
    def capacity(self) -> int:
        """The most rows that fit."""
        return self.shape[4]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores [branches, heads, R, width] after the kept rows; returns all visible keys and values."""
        end = self.kept + keys.shape[2]
        assert end <= self.capacity, f"{end} rows do not fit into {self.capacity}"  # torch would drop a single row silently
        kv_cache = self.block[layer]
        kv_cache[0, :, :, self.kept : end] = keys
        kv_cache[1, :, :, self.kept : end] = values
        return kv_cache[0, :, :, :end], kv_cache[1, :, :, :end]

    def span(self, count: int) -> int:
        """Number of rows that a pass of `count` rows sees, its own included."""
        return self.kept + count

    def places(self, count: int) -> Tensor:
        """The rows of the cache that a pass writes, int64 [count]."""
        return torch.arange(self.kept, self.kept + count, device=self.block.device)

    @property
    def below(self) -> KVCache:
        """The cache that contains the places."""
        return self

    def begin_pass(self, slots: Tensor, visible: Tensor) -> PassRows:
        """Begins a pass over rows at slots int64 [R] with visibility `visible` bool [R, R]; other caches may add places."""
        own = torch.arange(len(slots))
        return PassRows(own, torch.zeros(len(slots), dtype=torch.bool), own, slots, visible, len(slots))

    def place(self, slots: Tensor, row: int) -> int:
        """The number of a row's place in a pass over some slots; other caches may add places."""
        return row

    def keep(self, rows: list[int]) -> None:
        """Keeps rows of the last pass, numbered from its first row, in this order; discards the rest."""
        if rows != list(range(len(rows))):  # a chain needs no move
            keep_rows(self.block, self.kept, torch.tensor(rows, device=self.block.device))
        self.kept += len(rows)

    def copy(self, other: KVCache, rows: list[int]) -> None:
        """Makes the first rows those of another cache, in this order, and discards the rest."""
        assert max(rows, default=-1) < other.kept, (rows, other.kept)
        self.block[..., : len(rows), :] = other.block[..., rows, :]
        self.kept = len(rows)

    def rewind(self, length: int) -> None:
        """Discards everything from `length` on."""
        assert length <= self.kept, (length, self.kept)
        self.kept = length


class FixedView:
    """The cache for a pass in fixed shapes: a tensor gives the rows to write, and the pass reads all rows up to a fixed one.

    block : the cache's; at : int64 [R], the rows that the pass writes, some of them after the last row ever kept
    """

    kept = 0  # only the mask knows which rows are kept

    def __init__(self, block: Tensor, at: Tensor, end: int):
        self.block, self.at, self.end = block, at, end
        self.branches = block.shape[2]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores [branches, heads, R, width]; returns the keys and values of all rows up to the fixed one."""
        kv_cache = self.block[layer]
        kv_cache[0].index_copy_(2, self.at, keys)
        kv_cache[1].index_copy_(2, self.at, values)
        return kv_cache[0, :, :, : self.end], kv_cache[1, :, :, : self.end]

    def span(self, count: int) -> int:
        """The number of rows that a pass reads."""
        return self.end

    def places(self, count: int) -> Tensor:
        """The rows that the pass writes, int64 [count]."""
        return self.at

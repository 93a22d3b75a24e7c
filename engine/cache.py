"""The key/value slab: one preallocated block for all layers. A pass writes after the kept rows, and commit keeps a path of them."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.slab_keep import slab_keep


class Slab:
    """Keys and values of every layer, [layers, 2, branches, heads, capacity, head width], and the number of kept rows.

    write() stores the rows of a pass after the kept rows. keep() makes some of them permanent, moves these together and discards
    the others. Nothing is allocated after construction.
    """

    def __init__(
        self, layers: int, branches: int, heads: int, capacity: int, width: int, device: torch.device, dtype: torch.dtype, whole: int = 1
    ):
        """whole : write() returns keys and values in whole blocks of so many rows; a mask must hide those after the visible ones"""
        self.block = torch.zeros(layers, 2, branches, heads, -(-capacity // whole) * whole, width, device=device, dtype=dtype)
        self.kept, self.branches, self.whole = 0, branches, whole

    @property
    def capacity(self) -> int:
        """The most rows that fit."""
        return self.block.shape[4]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores [branches, heads, R, width] after the kept rows; returns all visible keys and values, in whole blocks."""
        end = self.kept + keys.shape[2]
        assert end <= self.capacity, f"{end} rows do not fit into {self.capacity}"  # torch would drop a single row silently
        slab = self.block[layer]
        slab[0, :, :, self.kept : end] = keys
        slab[1, :, :, self.kept : end] = values
        shown = -(-end // self.whole) * self.whole
        return slab[0, :, :, :shown], slab[1, :, :, :shown]

    def place(self, slots: Tensor, row: int) -> int:
        """The number of a row in a pass over some slots; other slabs may add rows of their own."""
        return row

    def keep(self, rows: list[int]) -> None:
        """Keeps rows of the last pass, numbered from its first, in this order; discards the rest."""
        if rows != list(range(len(rows))):  # a chain needs no move
            slab_keep(self.block, self.kept, torch.tensor(rows, device=self.block.device))
        self.kept += len(rows)

    def rewind(self, length: int) -> None:
        """Discards everything from `length` on."""
        assert length <= self.kept, (length, self.kept)
        self.kept = length

"""The key/value slab: one preallocated block for all layers; a pass writes behind the kept part, commit keeps a path of it."""

from __future__ import annotations

import torch
from torch import Tensor


class Slab:
    """Keys and values of every layer, [layers, 2, branches, heads, capacity, head width], and how much of it is kept.

    write() lays down the rows of a pass behind the kept part; keep() makes some of them permanent and forgets the others by
    moving the kept ones together. Nothing is allocated after construction.
    """

    def __init__(self, layers: int, branches: int, heads: int, capacity: int, width: int, device: torch.device, dtype: torch.dtype):
        self.block = torch.zeros(layers, 2, branches, heads, capacity, width, device=device, dtype=dtype)
        self.kept, self.branches = 0, branches

    @property
    def capacity(self) -> int:
        """How many rows fit."""
        return self.block.shape[4]

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Lays down [branches, heads, R, width] behind the kept rows; returns all visible keys and values."""
        end = self.kept + keys.shape[2]
        assert end <= self.capacity, f"{end} rows do not fit into {self.capacity}"  # torch would drop a single row silently
        slab = self.block[layer]
        slab[0, :, :, self.kept : end] = keys
        slab[1, :, :, self.kept : end] = values
        return slab[0, :, :, :end], slab[1, :, :, :end]

    def keep(self, rows: list[int]) -> None:
        """Keeps rows of the last pass, numbered from its first, in this order; forgets the rest."""
        if rows != list(range(len(rows))):  # a chain needs no move
            source = self.kept + torch.tensor(rows, device=self.block.device)
            self.block[:, :, :, :, self.kept : self.kept + len(rows)] = self.block[:, :, :, :, source]
        self.kept += len(rows)

    def rewind(self, length: int) -> None:
        """Forgets everything from `length` on."""
        assert length <= self.kept, (length, self.kept)
        self.kept = length

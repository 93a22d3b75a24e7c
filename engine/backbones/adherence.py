"""Adherence: a vertex becomes less probable with its distance from the points of the prompt.

The vertices of a mesh lie on its surface, so a token that would set one elsewhere is a mistake, whatever the model thinks of it. The logit
of a token loses `strength` times the distance of the cell that it names from the nearest point: the product of the model's distribution
with the likelihood exp(-strength * distance). A token of a block names all cells of the block and loses by the nearest of them. This
changes the distribution of the model, for plain decoding and every method alike, and "exact" then means relative to it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.errors import NotSupported
from engine.mesh.bpt_tokens import BPT, TokenLevels

FAR = 10  # cells; greater distances count as this one. Two squares are added in an unsigned byte: 10^2 + 9^2 fit


class Adherence:
    """A state machine of pure functions, like the grammar: its state is the block that an offset would be in.

    points   : float [N, 3] in the model's frame
    strength : nats for each unit of distance; the model's cube has a side of 2
    """

    def __init__(self, points: np.ndarray, strength: float, levels: TokenLevels = BPT):
        if levels.depth != 2:
            raise NotSupported(f"Adherence reads the blocks and offsets of bpt, which {levels.name} does not have.")
        blocks, offsets = levels.per_axis
        side = levels.cells
        cells = np.clip(np.floor((points + 1) / 2 * side), 0, side - 1).astype(np.int64)
        split = squares(cells, side).reshape(blocks, offsets, blocks, offsets, blocks, offsets)
        self._squares = split.transpose(0, 2, 4, 1, 3, 5).reshape(blocks**3, offsets**3)
        self._lost = torch.from_numpy(np.sqrt(np.arange(FAR**2 + 1)) * (strength * 2 / side)).float()  # by the square of a distance
        self._offsets, self._special, self._blocks = levels.first[1], levels.special, blocks**3
        named = self._lost[torch.from_numpy(self._squares.min(1)).long()]
        self._plain = torch.zeros(levels.vocabulary)
        self._plain[: self._blocks] = named
        self._plain[self._special : self._special + self._blocks] = named
        self._losses: dict[int, Tensor] = {}
        self.start = 0

    def next(self, state: int, token: int) -> int:
        """The block after a token."""
        if 0 <= token < self._blocks:
            return token
        return token - self._special if 0 <= token - self._special < self._blocks else state

    def favourite(self, state: int) -> None:
        """No token: many are near the points."""

    def loss(self, state: int) -> Tensor:
        """The penalty on the logits of the next token, float32 [V]; 0 for the end."""
        if state not in self._losses:
            lost = self._plain.clone()
            lost[self._offsets : self._special] = self._lost[torch.from_numpy(self._squares[state]).long()]
            self._losses[state] = lost
        return self._losses[state]


def squares(cells: np.ndarray, side: int) -> np.ndarray:
    """The squared distance of every cell from the nearest of some cells int [N, 3], uint8 [side, side, side], at most FAR^2: the squares
    along one axis after the other are added."""
    out = np.full((side, side, side), FAR**2, np.uint8)
    out[tuple(cells.T)] = 0
    for axis in range(3):
        before = np.moveaxis(out, axis, 0).copy()
        least = before.copy()
        for step in range(1, FAR):
            there = before + np.uint8(step**2)
            np.minimum(least[step:], there[:-step], out=least[step:])
            np.minimum(least[:-step], there[step:], out=least[:-step])
        out = np.moveaxis(least, 0, axis)
    return np.ascontiguousarray(out)

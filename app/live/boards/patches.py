"""Small pictures of single tokens."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.core import Backbone

BLOCK = 5  # a token is drawn in the middle of a block of copies, so that no other token affects its patch
ACROSS = 16  # blocks per row
PLAIN, SIDE = 64, 8  # a sheet's patches per row, and pixels per side of a patch


class Patches:
    """Small pictures of tokens, drawn by the model's own preview when first needed.

    A patch shows a token among copies of itself; in a picture its neighbours change it. Needs the capability "sketch".
    """

    def __init__(self, backbone: Backbone):
        self.backbone = backbone
        self._known: dict[int, np.ndarray] = {}

    @property
    def is_available(self) -> bool:
        """True if the model can draw single tokens cheaply."""
        return "sketch" in self.backbone.capabilities

    def of(self, tokens: Iterable[int]) -> np.ndarray:
        """The patches of tokens: uint8 [tokens, 8, 8, 3]."""
        wanted = list(tokens)
        fresh = list(dict.fromkeys(token for token in wanted if token not in self._known))
        if fresh:
            self._known |= zip(fresh, self._draw(fresh), strict=True)
        return np.stack([self._known[token] for token in wanted]) if wanted else np.zeros((0, SIDE, SIDE, 3), np.uint8)

    def sheet(self, tokens: Iterable[int]) -> np.ndarray:
        """uint8 [8 * rows, 8 * 64, 3]: the patches of tokens in order, PLAIN per row."""
        patches = self.of(tokens)
        rows = max(1, -(-len(patches) // PLAIN))
        sheet = np.zeros((rows * PLAIN, SIDE, SIDE, 3), np.uint8)
        sheet[: len(patches)] = patches
        return sheet.reshape(rows, PLAIN, SIDE, SIDE, 3).transpose(0, 2, 1, 3, 4).reshape(rows * SIDE, PLAIN * SIDE, 3)

    def _draw(self, tokens: list[int]) -> list[np.ndarray]:
        rows = -(-len(tokens) // ACROSS)
        grid = np.zeros(rows * ACROSS, np.int64)
        grid[: len(tokens)] = tokens
        blocks = grid.reshape(rows, ACROSS).repeat(BLOCK, 0).repeat(BLOCK, 1)
        pixels = self.backbone.sketch(blocks, range(len(blocks)), False)
        factor = len(pixels) // len(blocks)
        step, middle = factor // SIDE, BLOCK // 2 * factor
        patches = []
        for i in range(len(tokens)):
            top, left = (i // ACROSS) * BLOCK * factor + middle, (i % ACROSS) * BLOCK * factor + middle
            patches.append(pixels[top : top + factor : step, left : left + factor : step].copy())
        return patches

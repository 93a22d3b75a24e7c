"""Renders a growing picture at a bounded cost: changed rows are sketched, and occasionally decoded finely."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from engine.core import Backbone

MISSING = -1  # in a grid of tokens
FINE_SHARE = 0.02  # maximum share of a run's time for the fine decoder while the picture grows
# rows redrawn on each side of a change: all that it affects in a sketch, and most of it in the fine decoder, by `fine`
MARGIN = {False: 2, True: 1}
FIRST_FINE = 0.25  # seconds of a run before the first fine decoding
FINER = 20  # assumed cost of the fine decoder relative to a sketch, until it has been timed


class Growing:
    """A picture redrawn repeatedly from a grid of tokens that changes little between draws.

    It stores two pictures: a sketch, always current, and the newest fine picture. A token is shown finely if it has not changed since the
    fine picture, else as sketched. A backbone without the capability "sketch" is decoded whole, as rarely as the fine decoder runs.
    """

    def __init__(self, backbone: Backbone, size: int | None, shape: tuple[int, int], clock: Callable[[], float] = time.perf_counter):
        self.backbone, self.size, self.clock = backbone, size, clock
        self._tokens = {fine: np.full(shape, MISSING, np.int64) for fine in (False, True)}
        self._pixels: dict[bool, np.ndarray] = {}
        self._spent = 0.0
        self._cost: float | None = None  # of a fine picture

    def draw(self, grid: np.ndarray, seconds: float) -> np.ndarray:
        """uint8 [H, W, 3]: the picture of a grid, int64 [rows, columns], MISSING where there is no token. seconds: of the run so far"""
        fine = self._may_be_fine(seconds)
        if "sketch" not in self.backbone.capabilities:
            return self._whole(grid, fine)
        start = self.clock()
        first = not self._pixels
        self._update(grid, fine=False)
        if first:  # the whole picture
            self._cost = FINER * (self.clock() - start)
            fine = self._may_be_fine(seconds)
        if fine:
            start = self.clock()
            self._update(grid, fine=True)
            self._cost = self.clock() - start
            self._spent += self._cost
        if True not in self._pixels:
            return self._pixels[False]
        factor = len(self._pixels[True]) // len(grid)
        is_fine = (self._tokens[True] == grid).repeat(factor, 0).repeat(factor, 1)
        return np.where(is_fine[:, :, None], self._pixels[True], self._pixels[False])

    def _may_be_fine(self, seconds: float) -> bool:
        """True if the fine decoder's share of the run's time allows another picture."""
        return seconds >= FIRST_FINE and self._spent + (self._cost or 0.0) <= FINE_SHARE * seconds

    def _update(self, grid: np.ndarray, fine: bool) -> None:
        """Redraws all rows from the first to the last that changed."""
        changed = np.flatnonzero((grid != self._tokens[fine]).any(1))
        if fine not in self._pixels:
            changed = np.arange(len(grid))
        if not len(changed):
            return
        margin = MARGIN[fine]
        rows = range(max(0, int(changed[0]) - margin), min(len(grid), int(changed[-1]) + 1 + margin))
        pixels = self.backbone.sketch(grid, rows, fine)
        factor = len(pixels) // len(rows)
        whole = self._pixels.get(fine)
        if whole is None:
            whole = pixels
        else:
            whole[rows.start * factor : rows.stop * factor] = pixels
        self._pixels[fine], self._tokens[fine] = whole, grid.copy()

    def _whole(self, grid: np.ndarray, fine: bool) -> np.ndarray:
        """The picture of a backbone that cannot sketch; the previous one while the share of time is used up."""
        if fine or False not in self._pixels:
            start, flat = self.clock(), grid.ravel()
            at = np.flatnonzero(flat != MISSING)
            self._pixels[False] = self.backbone.render(flat[at].tolist(), at.tolist(), False, self.size)
            self._cost = self.clock() - start
            self._spent += self._cost
        return self._pixels[False]

"""Measured cost of a model's passes by their number of rows."""

from __future__ import annotations

from collections import deque
from statistics import median

RECENT = 9  # a cost is the median of this many passes


class PassCosts:
    """Seconds of a pass over those of a plain pass, by rows up to a power of two."""

    def __init__(self) -> None:
        self.ratios: dict[int, deque[float]] = {}

    def add(self, rows: int, ratio: float) -> None:
        """Takes a pass of `rows` rows that took `ratio` times as long as a plain one."""
        self.ratios.setdefault(bucket(rows), deque(maxlen=RECENT)).append(ratio)

    def of(self, rows: int) -> float:
        """Plain passes that a pass of this many rows takes. Where none was measured: that of a larger pass, or in proportion to the rows
        of a smaller one, the less of the two; a pass with one row takes 1."""
        if rows <= 1:
            return 1.0
        size = bucket(rows)
        if size in self.ratios:
            return median(self.ratios[size])
        above = [median(self.ratios[other]) for other in sorted(self.ratios) if other > size]
        below = [median(self.ratios[other]) * size / other for other in sorted(self.ratios) if other < size]
        return min([*above[:1], *below[-1:], float(rows)])


def bucket(rows: int) -> int:
    """The smallest power of two not below `rows`."""
    return 1 << (rows - 1).bit_length()

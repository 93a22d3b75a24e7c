"""Layouts: the row, column and neighbours of each position, in a picture (raster) or in a plain sequence (line)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar


@dataclass(frozen=True)
class Raster:
    """Tokens of a picture, row by row. `factor` is the width of a token in pixels.

    small : tokens along a side of a small picture of the same scene, which is written first; `rows` x `columns` is the number of all tokens
    """

    rows: int
    columns: int
    factor: int = 8
    small: int = 0

    @cached_property
    def starts(self) -> list[int]:
        """The first position of every row of the small picture and of the whole one, then the number of tokens."""
        first = self.small * self.small
        return [*range(0, first, self.small or 1), *range(first, self.rows * self.columns + 1, self.columns)]

    @cached_property
    def widths(self) -> list[int]:
        """Tokens of each of these rows."""
        return [stop - start for start, stop in pairwise(self.starts)]

    def row_of(self, position: int) -> int:
        """The number of the row, in `starts`, that holds a position."""
        return bisect_right(self.starts, position) - 1

    def place(self, position: int) -> tuple[int, int]:
        """(row, column) of a position on a map that shows all tokens in rows of `columns`."""
        return divmod(position, self.columns)

    def left(self, position: int) -> int | None:
        """The position to the left, None in column 0."""
        first, width = self._picture(position)
        return position - 1 if (position - first) % width else None

    def above(self, position: int) -> int | None:
        """The position above, None in row 0."""
        first, width = self._picture(position)
        return position - width if position - first >= width else None

    def under(self, position: int) -> int | None:
        """The position of the small picture that shows the same place; None within the small picture, or without one."""
        first, width = self._picture(position)
        if not first:
            return None
        row, column = divmod(position - first, width)
        return row * self.small // (self.rows - first // width) * self.small + column * self.small // width

    def _picture(self, position: int) -> tuple[int, int]:
        """The first position and the width of the picture that holds a position."""
        first = self.small * self.small
        return (first, self.columns) if position >= first else (0, self.small)

    @property
    def reach(self) -> int:
        """The greatest distance back to a neighbour, in positions."""
        return self.columns


def fine_rows(coarse: Raster, fine: Raster, first: int, stop: int) -> tuple[int, int]:
    """The rows of a finer raster within coarser rows first..stop-1: the first row, and one past the last."""
    return -(-first * fine.rows // coarse.rows), -(-stop * fine.rows // coarse.rows)


@dataclass(frozen=True)
class Line:
    """Tokens without a grid (a mesh before it is parsed): one row, in which the left neighbour is the previous token."""

    reach: ClassVar[int] = 1  # the greatest distance back to a neighbour, in positions
    small: ClassVar[int] = 0  # no small picture comes first

    def place(self, position: int) -> tuple[int, int]:
        """(row, column) of a position."""
        return 0, position

    def left(self, position: int) -> int | None:
        """The previous position."""
        return position - 1 if position else None

    def above(self, position: int) -> int | None:
        """None: a line has no rows above."""
        return None


Layout = Raster | Line

"""Layouts: the row, column and neighbours of each position, in a picture (raster) or in a plain sequence (line)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Raster:
    """Tokens of a picture, row by row. `factor` is the width of a token in pixels."""

    rows: int
    columns: int
    factor: int = 8

    def place(self, position: int) -> tuple[int, int]:
        """(row, column) of a position."""
        return divmod(position, self.columns)

    def left(self, position: int) -> int | None:
        """The position to the left, None in column 0."""
        return position - 1 if position % self.columns else None

    def above(self, position: int) -> int | None:
        """The position above, None in row 0."""
        return position - self.columns if position >= self.columns else None

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

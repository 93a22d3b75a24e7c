"""Drafts without a network: vertices that close the surface of a mesh or repeat one of its parts.

Closing. On a closed surface every edge belongs to two faces. A fan goes round its centre: its next face is (centre, r, x), where r is the
newest vertex of the ring. If one face of an earlier fan has an edge x -> r that no face has in the other direction yet, then x is the
next vertex. The same holds for the first ring vertex of a fan and the centre.
Repeating. Four legs of a table are one leg in four places. Their ids differ, because an id is a place; the steps from vertex to vertex are
the same. So the newest two steps are looked up among the earlier ones, and the step that followed them is repeated.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.mesh.bpt_tokens import NOTHING, TokenLevels

STEPS = 2  # number of steps that must agree


class NextVertices:
    """The surface that committed tokens spell, and its likely continuation. A vertex is a packed cell, x << 20 | y << 10 | z.

    levels : spelling of a cell, by a block and an offset (two levels)
    """

    def __init__(self, levels: TokenLevels):
        assert levels.depth == 2, f"vertices of {levels.name} have {levels.depth} ids"
        self.levels = levels
        self.open_into: dict[int, set[int]] = {}  # r -> all x whose edge x -> r has no other face yet
        self._all: list[tuple[int, bool]] = []
        self._followed: dict[tuple[tuple[int, bool], ...], int] = {}  # steps -> the number of the vertex after their last occurrence
        self._centre: int | None = None
        self._ring: list[int] = []
        self._register: int | None = None  # the block of the next vertex unless another one is written
        self._waiting: tuple[int, bool] | None = None  # a block without its offset yet, and True if it opens a fan

    # --- committed tokens -------------------------------------------------------------------------------------------

    def add(self, tokens: Iterable[int]) -> None:
        """Appends committed tokens. Ids outside the vocabulary change nothing, as in the parser."""
        for token in tokens:
            kind = self.levels.kind_list[token] if token < self.levels.vocabulary else NOTHING
            if kind == 1:
                self._complete(self.levels.amounts[token])
            elif kind >= 0:
                self._waiting = self.levels.amounts[token], kind == 2

    def _complete(self, offset: int) -> None:
        """Takes the offset that completes a vertex."""
        block, opens = self._waiting or (self._register or 0, False)
        opens, self._waiting = opens or self._centre is None, None
        self._register = None if opens and self._centre is not None else block
        vertex = block + offset
        if (steps := _steps(self._all[-STEPS - 1 :])) is not None:
            self._followed[steps] = len(self._all)
        self._all.append((vertex, opens))
        if opens:
            self._centre, self._ring = vertex, []
            return
        if self._ring:
            for a, b in ((self._centre, self._ring[-1]), (self._ring[-1], vertex), (vertex, self._centre)):
                self._edge(a, b)
        self._ring.append(vertex)

    def _edge(self, a: int, b: int) -> None:
        """Takes the edge a -> b of a new face."""
        there = self.open_into.get(a)
        if there is not None and b in there:
            there.remove(b)
        else:
            self.open_into.setdefault(b, set()).add(a)

    # --- continuation -----------------------------------------------------------------------------------------------

    def continuation(self, count: int) -> list[int]:
        """Up to `count` tokens that may follow; [] if the next vertex cannot be guessed."""
        tail, ring, centre = self._all[-STEPS - 1 :], self._ring[-2:], self._centre
        register, waiting, tokens = self._register, self._waiting, []
        place: int | None = None
        while len(tokens) < count:
            vertex = None if waiting is not None and waiting[1] else self._closing(centre, ring)
            opens = False
            if vertex is not None:
                place = None
            else:
                place = self._place(tail) if place is None else place + 1
                if place is None or place >= len(self._all):
                    break
                vertex, opens = tail[-1][0] + self._all[place][0] - self._all[place - 1][0], self._all[place][1]
            ids = self._spell(vertex, opens, register, waiting)
            if ids is None:
                break
            tokens += ids
            tail = [*tail[-STEPS:], (vertex, opens)]
            centre, ring = (vertex, []) if opens else (centre, [*ring[-1:], vertex])
            register, waiting = None if opens else self._block(vertex), None
        return tokens[:count]

    def _closing(self, centre: int | None, ring: list[int]) -> int | None:
        """The vertex that closes the newest vertex's open edge; None if there is none or more than one."""
        if centre is None:
            return None
        newest = ring[-1] if ring else centre
        behind = {centre, *ring[-2:-1]}
        ahead = [x for x in self.open_into.get(newest, ()) if x not in behind]
        return ahead[0] if len(ahead) == 1 else None

    def _place(self, tail: list[tuple[int, bool]]) -> int | None:
        """The number of the vertex after the last earlier occurrence of the newest steps."""
        steps = _steps(tail)
        return None if steps is None else self._followed.get(steps)

    def _spell(self, vertex: int, opens: bool, register: int | None, waiting: tuple[int, bool] | None) -> list[int] | None:
        """The ids of a vertex; None outside the grid, or if another block has been written."""
        levels, (blocks, offsets) = self.levels, self.levels.per_axis
        cell = [vertex >> shift & 1023 for shift in (20, 10, 0)]
        if vertex < 0 or max(cell) >= levels.cells:
            return None
        coarse = fine = 0
        for axis in levels.axes:
            coarse, fine = coarse * blocks + cell[axis] // offsets, fine * offsets + cell[axis] % offsets
        fine += levels.first[1]
        block = self._block(vertex)
        if waiting is not None:
            return [fine] if waiting == (block, opens) else None
        if opens:
            return [levels.special + coarse, fine]
        return [fine] if block == register else [levels.first[0] + coarse, fine]

    def _block(self, vertex: int) -> int:
        """A vertex without its offset."""
        width = self.levels.per_axis[1]
        return sum((vertex >> shift & 1023) // width * width << shift for shift in (20, 10, 0))


def _steps(tail: list[tuple[int, bool]]) -> tuple[tuple[int, bool], ...] | None:
    """The steps between the newest vertices, each with True if it leads to the centre of a fan; None if there are too few."""
    if len(tail) <= STEPS:
        return None
    return tuple((b - a, opens) for (a, _), (b, opens) in zip(tail[-STEPS - 1 : -1], tail[-STEPS:], strict=True))

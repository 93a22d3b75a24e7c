"""Drafts without a network: vertices that close the surface of a mesh, repeat one of its parts, or complete its symmetry.

Closing. On a closed surface every edge belongs to two faces. A fan goes round its centre: its next face is (centre, r, x), where r is the
newest vertex of the ring. If one face of an earlier fan has an edge x -> r that no face has in the other direction yet, then x is the
next vertex. The same holds for the first ring vertex of a fan and the centre.
Repeating. Four legs of a table are one leg in four places. Their ids differ, because an id is a place; the steps from vertex to vertex are
the same. So the newest two steps are looked up among the earlier ones, and the step that followed them is repeated.
Symmetry. Most models are mirrored, or look the same after a turn about the upright axis. If the image of the newest edge has a face on its
other side, the image of that face's third vertex is next; a fan begins where the images of the faces around its centre begin. A symmetry is
used while it has been right at least as often as wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

import numpy as np

from engine.mesh.bpt_tokens import NOTHING, OFFSET, SPECIAL, TokenLevels, sort_keys

STEPS = 2  # number of steps that must agree


class Symmetry(NamedTuple):
    """A symmetry of the cube about its upright axis, y: x and z change places, then each is mirrored."""

    swaps: bool
    mirrors_x: bool
    mirrors_z: bool

    @property
    def inverse(self) -> Symmetry:
        """The symmetry that undoes this one."""
        return Symmetry(self.swaps, self.mirrors_z, self.mirrors_x) if self.swaps else self

    def image(self, vertex: int, cells: int) -> int:
        """The packed cell at which a packed cell appears. cells : along each axis of the cube"""
        x, y, z = vertex >> 20, vertex >> 10 & 1023, vertex & 1023
        if self.swaps:
            x, z = z, x
        return (cells - 1 - x if self.mirrors_x else x) << 20 | y << 10 | (cells - 1 - z if self.mirrors_z else z)


SYMMETRIES = [Symmetry(*each) for each in product((False, True), repeat=3)][1:]


class NextVertices:
    """The surface that committed tokens spell, and its likely continuation. A vertex is a packed cell, x << 20 | y << 10 | z.

    levels : spelling of a cell
    symmetric : use the rule of symmetry
    """

    def __init__(self, levels: TokenLevels, symmetric: bool = True):
        self.levels, self._symmetries = levels, SYMMETRIES if symmetric else ()
        self.open_into: dict[int, set[int]] = {}  # r -> all x whose edge x -> r has no other face yet
        self._faces: dict[int, dict[int, int]] = {}  # a -> b -> c of the faces (a, b, c), each from all its corners
        self._right = dict.fromkeys(self._symmetries, 0)  # how often a symmetry was right, minus how often it was wrong
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
            if kind == OFFSET:
                self._complete(self.levels.amounts[token])
            elif kind >= 0:
                self._waiting = self.levels.amounts[token], kind == SPECIAL

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
            for symmetry in self._symmetries:
                if (image := self._image(symmetry, self._centre, self._ring)) is not None:
                    self._right[symmetry] += 1 if image == vertex else -1
            corners = self._centre, self._ring[-1], vertex
            for i, a in enumerate(corners):
                self._edge(a, corners[i - 2])
                self._faces.setdefault(a, {})[corners[i - 2]] = corners[i - 1]
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
            vertex, opens = None, False
            if waiting is None or not waiting[1]:
                closing = self._closing(centre, ring)
                vertex = self._symmetric(centre, ring) if closing is None else closing
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

    def _symmetric(self, centre: int | None, ring: list[int]) -> int | None:
        """The vertex that completes the symmetry that was right most often; None if there is none."""
        if centre is None:
            return None
        images = [(self._right[each], self._image(each, centre, ring)) for each in self._symmetries if self._right[each] >= 0]
        return max((each for each in images if each[1] is not None), default=(0, None))[1]

    def _image(self, symmetry: Symmetry, centre: int, ring: list[int]) -> int | None:
        """The vertex after centre and ring if the mesh has a symmetry; None if the face at its image is not known, or not new."""
        source, cells, is_mirrored = symmetry.inverse, self.levels.cells, sum(symmetry) % 2  # a mirrored face has the opposite winding
        written = self._faces.get(centre, {})
        if not ring:
            around = self._faces.get(source.image(centre, cells), {}).items()
            images = [(symmetry.image(u, cells), symmetry.image(v, cells)) for u, v in around]
            edges = {u: v for u, v in (each[::-1] if is_mirrored else each for each in images) if written.get(u) != v}
            return min(edges.keys() - set(edges.values()) or edges, key=_sort_key, default=None)
        edge = source.image(centre, cells), source.image(ring[-1], cells)
        a, b = edge[::-1] if is_mirrored else edge
        third = self._faces.get(a, {}).get(b)
        vertex = None if third is None else symmetry.image(third, cells)
        return None if vertex in (centre, *ring[-2:], written.get(ring[-1])) else vertex

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
        for digit in cell:
            coarse, fine = coarse * blocks + digit // offsets, fine * offsets + digit % offsets
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


def _sort_key(vertex: int) -> int:
    """The place of a vertex in the order of a mesh."""
    return int(sort_keys(np.array([[vertex >> 20, vertex >> 10 & 1023, vertex & 1023]]))[0])


def _steps(tail: list[tuple[int, bool]]) -> tuple[tuple[int, bool], ...] | None:
    """The steps between the newest vertices, each with True if it leads to the centre of a fan; None if there are too few."""
    if len(tail) <= STEPS:
        return None
    return tuple((b - a, opens) for (a, _), (b, opens) in zip(tail[-STEPS - 1 : -1], tail[-STEPS:], strict=True))

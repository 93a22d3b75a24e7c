"""Converts meshes to tokens and back: quantisation, patches (fans around a centre), and a streaming parser, the only detokenizer.

Paper: Scaling Mesh Generation via Compressive Tokenization (BPT), arXiv 2411.07025. Written from a description, not from its code.

A vertex is a cell of a 128^3 grid, written as a block (8 per axis) and an offset inside it (16 per axis); the block is written only when
it changes. A patch is a centre and the ring of vertices around it: c, r0, r1, ..., for the faces (c, r0, r1), (c, r1, r2), ...
A patch after the first opens with a special id, which is the block of its centre in a second alphabet. All functions are pure and use
integers; coordinates are (x, y, z) with y up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from engine.mesh.surface import is_simple

LONGEST_SIDE = 1.9  # longest side of the bounding box, in the model's cube -1..1
SORT_BLOCKS = 4  # per axis: vertices are sorted by blocks, which are coarser than the blocks of the tokens
BLOCK, OFFSET, SPECIAL = range(3)  # the kinds of ids
NOTHING = -1  # of an id that carries no geometry

Cell = tuple[int, int, int]


@dataclass(frozen=True)
class TokenLevels:
    """Spelling of a cell: the id of its block, then of the offset inside it, in consecutive alphabets; then the special ids and EOS.

    per_axis : blocks per axis, and cells per axis of a block
    """

    per_axis: tuple[int, int]

    @cached_property
    def cells(self) -> int:
        """Cells per axis: 128 for BPT."""
        return math.prod(self.per_axis)

    @cached_property
    def first(self) -> tuple[int, int]:
        """The first id of a block and of an offset."""
        return 0, self.per_axis[0] ** 3

    @cached_property
    def special(self) -> int:
        """The first id that opens a patch; there is one per block."""
        return sum(n**3 for n in self.per_axis)

    @cached_property
    def eos(self) -> int:
        """The id of the end."""
        return self.special + self.per_axis[0] ** 3

    @property
    def vocabulary(self) -> int:
        """Number of ids, EOS included."""
        return self.eos + 1

    @cached_property
    def kinds(self) -> np.ndarray:
        """int8 [vocabulary]: BLOCK, OFFSET, SPECIAL, or NOTHING for EOS."""
        kinds = np.full(self.vocabulary, NOTHING, np.int8)
        for level, (start, n) in enumerate(zip(self.first, self.per_axis)):
            kinds[start : start + n**3] = level
        kinds[self.special : self.eos] = SPECIAL
        return kinds

    @cached_property
    def kind_list(self) -> list[int]:
        """`kinds` as Python integers, which are faster to read in a loop."""
        return self.kinds.tolist()

    @cached_property
    def amounts(self) -> list[int]:
        """The part of each id in a packed cell (x << 20 | y << 10 | z); the parts of a vertex add up to its cell."""
        amounts = np.zeros(self.vocabulary, np.int64)
        width = self.cells
        for level, (start, n) in enumerate(zip(self.first, self.per_axis)):
            width //= n
            digits = np.stack(np.unravel_index(np.arange(n**3), (n, n, n)))
            amounts[start : start + n**3] = (digits * width << np.array([[20], [10], [0]])).sum(0)
            if level == 0:
                amounts[self.special : self.special + n**3] = amounts[: n**3]
        return amounts.tolist()

    def spell(self, vertices: np.ndarray) -> np.ndarray:
        """Ids of the blocks and offsets of cells int [V, 3], int64 [V, 2]."""
        ids = np.empty((len(vertices), 2), np.int64)
        rest, width = np.asarray(vertices, np.int64), self.cells
        for level, (start, n) in enumerate(zip(self.first, self.per_axis)):
            width //= n
            digits, rest = rest // width, rest % width
            ids[:, level] = start + (digits[:, 0] * n + digits[:, 1]) * n + digits[:, 2]
        return ids


BPT = TokenLevels((8, 16))


# --- floats to cells and back -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CubeFrame:
    """The transform of a mesh into the model's cube: model = (world - centre) * scale."""

    centre: tuple[float, float, float]
    scale: float

    def to_model(self, points: np.ndarray) -> np.ndarray:
        """World points float [N, 3] in the model's cube."""
        return (np.asarray(points, np.float64) - self.centre) * self.scale

    def from_model(self, points: np.ndarray) -> np.ndarray:
        """Points of the model's cube float [N, 3] in the world."""
        return np.asarray(points, np.float64) / self.scale + self.centre


def frame_of(vertices: np.ndarray) -> CubeFrame:
    """The frame that centres the bounding box of vertices float [V, 3] and makes its longest side 1.9."""
    if not len(vertices):
        return CubeFrame((0.0, 0.0, 0.0), 1.0)
    vertices = np.asarray(vertices, np.float64)
    low, high = vertices.min(0), vertices.max(0)
    return CubeFrame(tuple(((low + high) / 2).tolist()), LONGEST_SIDE / (float((high - low).max()) + 1e-6))


def quantize(vertices: np.ndarray) -> tuple[np.ndarray, CubeFrame]:
    """Cells int64 [V, 3] of world vertices float [V, 3], and the frame to transform back."""
    frame = frame_of(vertices)
    scaled = (frame.to_model(np.reshape(vertices, (-1, 3))) + 1) / 2 * BPT.cells - 0.5
    return np.clip(np.round(scaled), 0, BPT.cells - 1).astype(np.int64), frame


def dequantize(cells: np.ndarray) -> np.ndarray:
    """Centres of cells int [..., 3] in the model's cube, float64 in -1..1."""
    return (np.asarray(cells, np.float64) + 0.5) / BPT.cells * 2 - 1


# --- the order of vertices and faces ----------------------------------------------------------------------------------


def sort_keys(vertices: np.ndarray) -> np.ndarray:
    """int64 [V]: the sort key of cells int [V, 3]; equal cells have equal keys.

    The order is by block, 4 per axis, then within a block; both by y, x, z.
    """
    yxz = np.asarray(vertices, np.int64)[:, [1, 0, 2]]
    block = yxz // (BPT.cells // SORT_BLOCKS)
    key = np.zeros(len(yxz), np.int64)
    for digit, base in ((block, SORT_BLOCKS), (yxz, BPT.cells)):
        for axis in range(3):
            key = key * base + digit[:, axis]
    return key


def _rows_key(rows: np.ndarray, base: int) -> np.ndarray:
    """One int64 per row of int [N, 3], in the same order as the rows (base below 2^21)."""
    return (rows[:, 0] * base + rows[:, 1]) * base + rows[:, 2]


def _distinct_faces(faces: np.ndarray, count: int) -> np.ndarray:
    """Indices of the faces int [F, 3] to keep: those with three different vertices, without repeats of an oriented face."""
    simple = np.flatnonzero(is_simple(faces))
    _, first = np.unique(_rows_key(_rotate(faces[simple]), count), return_index=True)
    return simple[np.sort(first)]


def _rotate(faces: np.ndarray) -> np.ndarray:
    """Faces with their smallest vertex first and their winding unchanged."""
    turn = (faces.argmin(1)[:, None] + np.arange(3)) % 3 if len(faces) else np.zeros((0, 3), np.int64)
    return np.take_along_axis(faces, turn, 1)


def clean(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The canonical form of a quantised triangle mesh: (cells int64 [V, 3], faces int64 [F, 3]).

    Vertices with equal cells are merged. Faces with a repeated vertex, repeats of an oriented face and unused vertices are dropped.
    Vertices are in the order of `sort_keys`; a face begins with its smallest vertex; faces are sorted by their sorted triple.
    """
    vertices, faces = np.reshape(vertices, (-1, 3)).astype(np.int64), np.reshape(faces, (-1, 3)).astype(np.int64)
    _, first, inverse = np.unique(sort_keys(vertices), return_index=True, return_inverse=True)
    faces = inverse.reshape(-1)[faces]
    faces = faces[_distinct_faces(faces, len(first))]
    used = np.zeros(len(first), bool)
    used[faces] = True
    faces = _rotate((np.cumsum(used) - 1)[faces])
    count = int(used.sum())
    # Two opposite faces have the same sorted triple; their unsorted triples then decide, so that the order of the input never matters.
    order = np.lexsort((_rows_key(faces, count), _rows_key(np.sort(faces, 1), count)))
    return vertices[first[used]], faces[order]


# --- serialisation ----------------------------------------------------------------------------------------------------


def patches(faces: np.ndarray, count: int) -> list[list[int]]:
    """The fans of a clean mesh, each as [centre, ring...], from faces int [F, 3] of `count` vertices; every face is in one fan.

    The next centre is the vertex of the first face without a fan that has most such faces. The fan's ring begins at the smallest
    vertex that occurs once in the link or, if the link is closed, at the smallest of all. It is continued by the first face that fits,
    until there is none. If the first face taken has the opposite winding, the ring is reversed.
    """
    triples = np.asarray(faces).tolist()
    incident: list[list[int]] = [[] for _ in range(count)]
    for face, (a, b, c) in enumerate(triples):
        incident[a].append(face)
        incident[b].append(face)
        incident[c].append(face)
    degree = [len(faces_here) for faces_here in incident]
    waiting = bytearray(b"\1") * len(triples)
    fans: list[list[int]] = []
    pointer, last = 0, len(triples)
    while pointer < last:
        if not waiting[pointer]:
            pointer += 1
            continue
        # The pointer stays: where several fans meet at the centre, the chosen fan may not contain this face.
        a, b, c = triples[pointer]
        centre = a
        if degree[b] > degree[centre]:
            centre = b
        if degree[c] > degree[centre]:
            centre = c
        link = []
        for face in incident[centre]:
            if waiting[face]:
                a, b, c = triples[face]
                u, v = (b, c) if a == centre else (c, a) if b == centre else (a, b)  # centre, u, v is the winding
                link.append((u, v, face, True) if u < v else (v, u, face, False))
        link.sort()
        ends: dict[int, list[int]] = {}
        for place, (u, v, _, _) in enumerate(link):
            ends.setdefault(u, []).append(place)
            ends.setdefault(v, []).append(place)
        current = min((vertex for vertex, places in ends.items() if len(places) == 1), default=link[0][0])
        ring, forward = [current], True
        while True:
            for place in ends[current]:
                u, v, face, ascending = link[place]
                if waiting[face]:
                    break
            else:
                break
            if len(ring) == 1:
                forward = ascending == (current == u)
            waiting[face] = 0
            current = v if current == u else u
            ring.append(current)
            degree[u] -= 1
            degree[v] -= 1
        degree[centre] -= len(ring) - 1
        fans.append([centre, *(ring if forward else ring[::-1])])
    return fans


def serialize(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Tokens int64 [n] of a mesh in the form of `clean`, without EOS.

    The first patch opens with a plain id, every later one with a special id. After a special id the register equals no plain id, so the
    second vertex of the patch is always written in full.
    """
    block, offset = BPT.spell(vertices).T.tolist()
    tokens: list[int] = []
    for patch, ring in enumerate(patches(faces, len(vertices))):
        current = block[ring[0]] + (BPT.special if patch else 0)
        tokens += [current, offset[ring[0]]]
        for vertex in ring[1:]:
            if block[vertex] != current:
                current = block[vertex]
                tokens.append(current)
            tokens.append(offset[vertex])
    return np.array(tokens, np.int64)


def tokenize(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, CubeFrame]:
    """Tokens int64 [n] (without EOS) of a world mesh, float [V, 3] and int [F, 3], and its frame: quantised, cleaned, serialised."""
    cells, frame = quantize(vertices)
    return serialize(*clean(cells, faces)), frame


# --- the parser -------------------------------------------------------------------------------------------------------


class Face(NamedTuple):
    """One triangle of the stream.

    vertices   : three cells (x, y, z): centre, previous ring vertex, new ring vertex
    tokens     : the indices of the tokens of each corner
    owned      : the indices of the tokens whose colour this face shows; every token has at most one owner
    degenerate : True if two corners are the same cell; listed here, dropped in `mesh_of`
    """

    vertices: tuple[Cell, Cell, Cell]
    tokens: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    owned: tuple[int, ...]
    degenerate: bool


class TokenParser:
    """Parses tokens one at a time and returns faces; accepts any integers. `faces` only grows, so a prefix of the tokens gives a prefix.

    Registers: the block (0 at the start), the centre, the previous ring vertex and the tokens since the last vertex. A special id sets
    the block and opens a patch; a plain id sets the block; an offset completes a vertex.
    """

    def __init__(self):
        self.faces: list[Face] = []
        self.length = 0  # tokens pushed, ids without geometry included
        self.skipped = 0  # ids outside the vocabulary
        self._kinds, self._amounts = BPT.kind_list, BPT.amounts
        self._block = 0  # a packed cell
        self._centre: tuple[int, tuple[int, ...]] | None = None  # a packed cell and its token indices
        self._previous: tuple[int, tuple[int, ...]] | None = None
        self._pending: list[int] = []  # tokens of the incomplete vertex
        self._unowned: list[int] = []  # tokens of this patch that have no face yet
        self._lost: list[int] = []  # tokens that will never have a face

    def copy(self) -> TokenParser:
        """A parser that continues from here with an empty list of faces: for faces of a draft that may never be committed.

        Token indices continue; its `dangling` covers only the open patch and later tokens.
        """
        twin = TokenParser.__new__(TokenParser)
        twin.__dict__.update(self.__dict__)
        twin.faces, twin._lost = [], []
        twin._pending, twin._unowned = self._pending[:], self._unowned[:]
        return twin

    def push(self, token: int) -> Face | None:
        """Takes the next token; returns the face that it completes, or None."""
        index = self.length
        self.length = index + 1
        kind = self._kinds[token] if 0 <= token <= BPT.eos else None
        if kind is None or kind == NOTHING:
            self.skipped += kind is None
            self._lost.append(index)
            return None
        if kind == SPECIAL:
            self._lost += self._unowned
            self._block = self._amounts[token]
            self._pending, self._unowned = [index], [index]
            self._centre = self._previous = None
            return None
        self._pending.append(index)
        self._unowned.append(index)
        if kind == BLOCK:
            self._block = self._amounts[token]
            return None
        vertex = (self._block + self._amounts[token], tuple(self._pending))
        self._pending = []
        if self._centre is None:
            self._centre = vertex
            return None
        previous, self._previous = self._previous, vertex
        if previous is None:
            return None
        corners = (self._centre, previous, vertex)
        a, b, c = (cell for cell, _ in corners)
        face = Face(
            ((a >> 20, a >> 10 & 1023, a & 1023), (b >> 20, b >> 10 & 1023, b & 1023), (c >> 20, c >> 10 & 1023, c & 1023)),
            (self._centre[1], previous[1], vertex[1]),
            tuple(self._unowned),
            a == b or b == c or c == a,
        )
        self._unowned = []
        self.faces.append(face)
        return face

    def extend(self, tokens: Iterable[int]) -> list[Face]:
        """Takes several tokens; returns the faces that they complete."""
        before = len(self.faces)
        for token in tokens.tolist() if isinstance(tokens, np.ndarray) else tokens:
            self.push(token)
        return self.faces[before:]

    def dangling(self) -> list[int]:
        """Indices of the tokens without a face so far: of patches without a face, of an incomplete vertex, skipped and EOS."""
        return sorted(self._lost + self._unowned)

    def triangles(self, start: int = 0) -> np.ndarray:
        """Cells of the faces from number `start` on, int64 [F, 3, 3]: face, corner, (x, y, z)."""
        return np.array([face.vertices for face in self.faces[start:]], np.int64).reshape(-1, 3, 3)


def parse(tokens: Iterable[int]) -> TokenParser:
    """A parser that has read all tokens."""
    parser = TokenParser()
    parser.extend(tokens)
    return parser


def mesh_of(faces: Sequence[Face] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The welded mesh of a parser's faces (or of int [F, 3, 3]): cells int64 [V, 3] in order of first use and faces int64 [F, 3].

    Degenerate faces and repeats of an oriented face are dropped; the others keep their order.
    """
    soup = faces if isinstance(faces, np.ndarray) else np.array([face.vertices for face in faces], np.int64)
    points = np.asarray(soup, np.int64).reshape(-1, 3)
    packed = (points[:, 0] << 20) + (points[:, 1] << 10) + points[:, 2]
    _, first, inverse = np.unique(packed, return_index=True, return_inverse=True)
    welded = first[inverse.reshape(-1)].reshape(-1, 3)  # a vertex is identified by the place of its first use
    welded = welded[_distinct_faces(welded, len(points))]
    used, faces_of_used = np.unique(welded, return_inverse=True)
    return points[used], faces_of_used.reshape(-1, 3).astype(np.int64)

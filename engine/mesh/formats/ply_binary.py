"""The body of a binary PLY file. Rows of equal length are a view of the file; rows of different lengths are read one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from engine.mesh.formats.ply_header import Element, Header, Property
from engine.mesh.formats.source import Source, printable, rows_to_keep

Table = dict[str, np.ndarray]
Members = dict[int, tuple[np.ndarray, np.ndarray]]


def read(
    source: Source, file: BinaryIO, head: Header, vertex: Element, wanted: tuple[str, ...], wanted_lists: Mapping[int, Property]
) -> tuple[Table, Members]:
    """Columns of the vertices by name, and the lists that are wanted of other tables: members and sizes, by the table's place."""
    table: Table = {}
    members: Members = {}
    at = file.tell()
    data = np.asarray(np.memmap(source.path, np.uint8, "r"))
    for e in head.elements[: max([vertex.place, *wanted_lists]) + 1]:
        sizes = _first_sizes(source, data, at, e, head.order)
        row = _row(e, head.order, sizes)
        walked = not _fits(data, at, e, row, sizes)
        if walked and e.flat:
            raise source.bad_file(f"its {printable(e.name)} rows end too early")
        rows = _VariableRows(source, data, at, e, head.order) if walked else _FixedRows(np.ndarray(e.count, row, data, at), at, sizes)
        if e is vertex:
            chosen = slice(None) if wanted_lists else rows_to_keep(e.count)  # only the chosen rows of a view are read
            table = {name: rows.column(name, chosen).astype(np.float64) for name in wanted}
        elif e.place in wanted_lists:
            members[e.place] = rows.members(wanted_lists[e.place])
        at = rows.end
    return table, members


def _row(e: Element, order: str, sizes: Mapping[str, int]) -> np.dtype:
    """The dtype of a row whose lists have these sizes."""
    fields: list = []
    for p in e.properties:
        if p.length_type:
            fields.append((f"number of {p.name}", order + p.length_type))
        fields.append((p.name, order + p.type, (sizes[p.name],)) if p.length_type else (p.name, order + p.type))
    return np.dtype(fields)


def _first_sizes(source: Source, data: np.ndarray, at: int, e: Element, order: str) -> dict[str, int]:
    """Lengths of the lists in an element's first row."""
    sizes = {}
    for p in e.properties if e.count else ():
        if p.length_type:
            sizes[p.name] = _length(source, data, at, e, p, order)
            at += np.dtype(p.length_type).itemsize + sizes[p.name] * np.dtype(p.type).itemsize
        else:
            at += np.dtype(p.type).itemsize
    return sizes if e.count else {p.name: 0 for p in e.properties if p.length_type}


def _fits(data: np.ndarray, at: int, e: Element, row: np.dtype, sizes: Mapping[str, int]) -> bool:
    """True if the file has all rows of an element, each with lists of these sizes: the usual case."""
    if at + e.count * row.itemsize > len(data):
        return False
    rows = np.ndarray(e.count, row, data, at)
    return all((rows[f"number of {name}"] == size).all() for name, size in sizes.items())


def _length(source: Source, data: np.ndarray, at: int, e: Element, p: Property, order: str) -> int:
    """Length of a list."""
    kind = np.dtype(p.length_type)
    size = kind.itemsize
    length = int.from_bytes(data[at : at + size].tobytes(), "big" if order == ">" else "little", signed=kind.kind == "i")
    if not 0 <= length <= len(data) or at + size > len(data):
        raise source.bad_file(f"a list of its {printable(e.name)} rows is broken or ends too early")
    return length


class _FixedRows:
    """Elements whose rows have the same number of bytes."""

    def __init__(self, rows: np.ndarray, at: int, sizes: Mapping[str, int]):
        self.rows, self.sizes, self.end = rows, sizes, at + rows.nbytes

    def column(self, name: str, chosen: slice | np.ndarray) -> np.ndarray:
        """Values of some rows."""
        return self.rows[name][chosen]

    def members(self, p: Property) -> tuple[np.ndarray, np.ndarray]:
        """Members of all lists, and the lists' sizes."""
        return self.rows[p.name].reshape(-1), np.full(len(self.rows), self.sizes[p.name], np.int64)


class _VariableRows:
    """Rows of several lengths.

    starts : [properties, rows] offset of each value, or of a list's first member
    sizes  : [properties, rows] lengths of the lists
    """

    def __init__(self, source: Source, data: np.ndarray, at: int, e: Element, order: str):
        source.check_faces(e.count)  # with a byte or two per row this loop would take minutes
        self.data, self.e, self.order, self.start = data, e, order, at
        self.starts, self.sizes = np.zeros((2, len(e.properties), e.count), np.int64)
        widths, heads = [np.dtype(p.type).itemsize for p in e.properties], [p.smallest for p in e.properties]
        for row in range(e.count):
            for i, p in enumerate(e.properties):
                size = 1
                if p.length_type:
                    size = self.sizes[i, row] = _length(source, data, at, e, p, order)
                    at += heads[i]
                self.starts[i, row] = at
                at += size * widths[i]
        if at > len(data):
            raise source.bad_file(f"its {printable(e.name)} rows end too early")
        self.end = at

    def _bytes(self, i: int, sizes: np.ndarray) -> np.ndarray:
        """Values of a property, which are `sizes` bytes in each row."""
        turn = np.zeros(self.end - self.start + 1, np.int8)  # +1 where they begin, -1 after them
        turn[self.starts[i] - self.start] += 1
        turn[self.starts[i] - self.start + sizes] -= 1
        inside = np.cumsum(turn[:-1], dtype=np.int8).astype(bool)
        return self.data[self.start : self.end][inside].view(self.order + self.e.properties[i].type)

    def column(self, name: str, chosen: slice | np.ndarray) -> np.ndarray:
        """Values of some rows."""
        i = [p.name for p in self.e.properties].index(name)
        width = np.dtype(self.e.properties[i].type).itemsize
        return self._bytes(i, np.full(self.e.count, width))[chosen]

    def members(self, p: Property) -> tuple[np.ndarray, np.ndarray]:
        """Members of all lists, and the lists' sizes."""
        i = self.e.properties.index(p)
        return self._bytes(i, self.sizes[i] * np.dtype(p.type).itemsize), self.sizes[i]

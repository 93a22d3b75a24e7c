"""PLY, ASCII and binary, as a cloud or a mesh. Polygons may have any sizes, also mixed; other elements and properties are skipped.

Memory: only the rows to keep are read of a cloud; a mesh is held as a whole and is limited by MESH_BYTES.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.polygons import from_lines, triangles
from engine.mesh.formats.source import MESH_BYTES, Draw, Raw, Source, plain, spread
from engine.mesh.formats.text import as_text, blocks

TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2",
    "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "int64": "i8", "uint64": "u8",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
CORNERS = ("vertex_indices", "vertex_index")
HEAD_LINES, LINE_BYTES = 1_000, 2**20  # comments hold settings


@dataclass
class Property:
    """A value of an element, or a list of values; then `counted` is the type of the list's length."""

    name: str
    type: str
    counted: str | None = None

    @property
    def smallest(self) -> int:
        """The minimum number of bytes it needs."""
        return np.dtype(self.counted or self.type).itemsize


@dataclass
class Element:
    """A table of the file: vertices, faces or something else."""

    name: str
    count: int
    properties: list[Property] = field(default_factory=list)

    @property
    def flat(self) -> bool:
        """Whether all its rows have the same length."""
        return all(p.counted is None for p in self.properties)

    def dtype(self, sizes: dict[str, int] | None = None) -> np.dtype:
        """The type of a row, with lists of the given sizes."""
        fields: list = []
        for p in self.properties:
            if p.counted:
                fields.append((f"number of {p.name}", p.counted))
            fields.append((p.name, p.type, (sizes[p.name],)) if p.counted else (p.name, p.type))
        return np.dtype(fields)


def read(source: Source) -> Raw:
    """The points or the mesh of a PLY file."""
    with source.open_text() as file:
        order, elements, line = _header(source, file)
        names = [e.name for e in elements]
        if "vertex" not in names:
            raise BadFile(f"{source.name} has no vertices; give a cloud or a mesh.")
        vertex = elements[names.index("vertex")]
        if not vertex.flat or not {"x", "y", "z"} <= {p.name for p in vertex.properties}:
            raise BadFile(f"{source.name} has vertices without x, y and z; export it again with them.")
        mesh = any(e.name == "face" and e.count for e in elements)
        if mesh:
            source.check(source.size, MESH_BYTES, "meshes")
            source.vertices(vertex.count)
        shortest = 2 if not order else None  # bytes of a value as text: a digit and a blank
        left = source.size - file.tell() + (not order)  # the last line of a text may have no line end
        for e in elements:
            if len({p.name for p in e.properties}) < len(e.properties):
                raise source.damaged(f"its {plain(e.name)} rows have two values of the same name")
            smallest = sum(shortest or p.smallest for p in e.properties)
            source.claim(e.count, f"{plain(e.name)} rows", smallest, left)
            left -= e.count * smallest
        return (_ascii if not order else _binary)(source, file, elements, mesh, line)


def _header(source: Source, file: BinaryIO) -> tuple[str, list[Element], int]:
    """The byte order ("" = ASCII), the elements, and the number of the line after the header."""
    order, elements = None, []
    if file.readline(LINE_BYTES).strip() != b"ply":
        raise source.damaged("it does not start with the line 'ply'")
    for number in range(2, HEAD_LINES):
        words = file.readline(LINE_BYTES).decode("latin-1").split()
        try:
            match words:
                case ["end_header", *_] if order is not None:
                    return order, elements, number + 1
                case ["format", name, *_]:
                    order = ORDERS[name]
                case ["element", name, count]:
                    elements.append(Element(name, int(count)))
                case ["property", "list", counted, kind, name]:
                    counted, kind = TYPES[counted], TYPES[kind]
                    if counted[0] == "f":
                        raise KeyError("float")
                    elements[-1].properties.append(Property(name, (order or "") + kind, (order or "") + counted))
                case ["property", kind, name]:
                    elements[-1].properties.append(Property(name, (order or "") + TYPES[kind]))
                case ["comment" | "obj_info", *_]:
                    pass
                case _:
                    raise ValueError("unknown")
        except (KeyError, ValueError, IndexError):
            raise source.damaged(f"line {number} of its header is '{plain(' '.join(words))}'") from None
    raise source.damaged("its header has no end")


def _raw(table: dict[str, np.ndarray], faces: np.ndarray | None, total: int) -> Raw:
    """Columns by name -> points and normals."""
    normals = np.stack([table[c] for c in ("nx", "ny", "nz")], 1) if {"nx", "ny", "nz"} <= set(table) else None
    return Raw(np.stack([table[c] for c in "xyz"], 1), normals, faces, total)


def _columns(rows: np.ndarray, names: list[str]) -> dict[str, np.ndarray]:
    return {name: rows[:, i] for i, name in enumerate(names)}


def _ascii(source: Source, file: BinaryIO, elements: list[Element], mesh: bool, line: int) -> Raw:
    lines = iter(as_text(file))
    rows, names, total, faces = np.empty((0, 3)), list("xyz"), 0, None
    for e in elements:
        if e.name == "vertex":
            names, total = [p.name for p in e.properties], e.count
            found: list[np.ndarray] = []
            draw = Draw()
            for block in blocks(lines, source, line, len(names), e.count):
                found.append(block) if mesh else draw.add(block)
            rows = np.concatenate(found) if found else draw.rows(len(names))
            if (seen := len(rows) if mesh else draw.seen) < e.count:
                raise source.damaged(f"it claims {e.count:,} vertices and ends after {seen:,}")
        elif e.name == "face" and e.count:
            at = next((i for i, p in enumerate(e.properties) if p.counted), None)
            if at is None or e.properties[at].name not in CORNERS:
                raise BadFile(f"{source.name} has faces that do not start with a list of vertices.")
            faces = from_lines(source, lines, line, e.count, at)
            break
        else:
            for _ in islice(lines, e.count):
                pass
        line += e.count
    return _raw(_columns(rows, names), faces, total)


def _binary(source: Source, file: BinaryIO, elements: list[Element], mesh: bool, line: int) -> Raw:
    table: dict[str, np.ndarray] = {}
    faces, total, start = None, 0, file.tell()
    data = np.memmap(source.path, np.uint8, "r")
    for e in elements:
        if e.flat and start + e.count * e.dtype().itemsize > len(data):
            raise source.damaged(f"its {plain(e.name)} rows end too early")
        if e.name == "vertex" and e.count:
            rows = np.ndarray(e.count, e.dtype(), data, start)  # a view; only the rows to keep are read
            chosen = slice(None) if mesh else spread(e.count)
            wanted = [p.name for p in e.properties if p.name in (("x", "y", "z") if mesh else ("x", "y", "z", "nx", "ny", "nz"))]
            table, total = {name: rows[name][chosen].astype(np.float64) for name in wanted}, e.count
        if e.flat:
            start += e.count * e.dtype().itemsize
        else:
            corners, sizes, start = _lists(source, data, start, e)
            if e.name == "face" and e.count:
                faces = triangles(source, corners, sizes)
    if not table:
        raise BadFile(f"{source.name} holds no points; give a cloud or a mesh.")
    return _raw(table, faces, total)


def _lists(source: Source, data: np.ndarray, start: int, e: Element) -> tuple[np.ndarray, np.ndarray, int]:
    """The corner lists of an element with rows of any lengths: corners [sum of sizes], sizes [count], and the offset after them."""
    target = next((p for p in e.properties if p.counted and p.name in CORNERS), None)
    empty = np.empty(0, np.int64)
    if not e.count:
        return empty, empty, start
    sizes = _row_sizes(source, data, start, e)
    row = e.dtype(sizes)
    if start + e.count * row.itemsize <= len(data):  # the usual case: every row is like the first
        rows = np.ndarray(e.count, row, data, start)
        if all((rows[f"number of {name}"] == size).all() for name, size in sizes.items()):
            end = start + e.count * row.itemsize
            if target is None:
                return empty, empty, end
            return rows[target.name].reshape(-1), np.full(e.count, sizes[target.name]), end
    source.faces(e.count)
    starts, counts = np.empty(e.count, np.int64), np.zeros(e.count, np.int64)
    at = start
    widths = [(p, np.dtype(p.counted or p.type).itemsize, np.dtype(p.type).itemsize) for p in e.properties]
    for i in range(e.count):
        for p, head, width in widths:
            if p.counted:
                size = _number(source, data, at, p.counted)
                if p is target:
                    starts[i], counts[i] = at + head, size
                at += size * width
            at += head
    if at > len(data):
        raise source.damaged(f"its {plain(e.name)} rows end too early")
    if target is None:
        return empty, empty, at
    turn = np.zeros(at - start + 1, np.int8)  # +1 where the bytes of a list begin, -1 after them
    turn[starts - start] += 1
    turn[starts - start + counts * np.dtype(target.type).itemsize] -= 1
    inside = np.cumsum(turn[:-1], dtype=np.int8).astype(bool)
    return data[start:at][inside].view(target.type), counts, at


def _row_sizes(source: Source, data: np.ndarray, at: int, e: Element) -> dict[str, int]:
    """The lengths of the lists in an element's first row."""
    sizes = {}
    for p in e.properties:
        if p.counted:
            sizes[p.name] = _number(source, data, at, p.counted)
            at += np.dtype(p.counted).itemsize + sizes[p.name] * np.dtype(p.type).itemsize
        else:
            at += np.dtype(p.type).itemsize
    return sizes


def _number(source: Source, data: np.ndarray, at: int, kind: str) -> int:
    """The length of a list."""
    size = np.dtype(kind).itemsize
    found = int.from_bytes(data[at : at + size].tobytes(), "big" if kind[0] == ">" else "little", signed=kind[1] == "i")
    if not 0 <= found <= len(data) or at + size > len(data):
        raise source.damaged("the list of a face's corners is broken or ends too early")
    return found

"""STL, binary and ASCII: triangles without shared vertices."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.dialect import as_decimal
from engine.mesh.formats.source import MESH_BYTES, Raw, Source, printable

HEAD = 84  # bytes: a title of 80 and the number of triangles
TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("colour", "<u2")])
OPEN = (0, 2**32 - 1)  # counts written by exporters that could not return to the header
BLOCK = 2**22  # bytes of text per block
STATEMENT = re.compile(r"\bvertex\s+(\S+)\s+(\S+)\s+(\S+)|\b(endloop)\b|\b(?:end)?solid\b[^\r\n]*?(?=\bfacet\b|\bendsolid\b|[\r\n]|$)")


def read(source: Source) -> Raw:
    """The mesh of an STL file. A binary file may start with the word solid too, so its size decides."""
    source.check_size(source.size, MESH_BYTES)
    head = source.head()
    count = int.from_bytes(head[80:HEAD], "little")
    if source.size != HEAD + count * TRIANGLE.itemsize and _is_text(source):
        raw = _mesh(source, _text(source))
        raw.notes += [] if _is_ended(source) else ["The file does not end with 'endsolid': it may be cut off."]
        return raw
    if len(head) < HEAD:
        raise source.bad_file("it is too short for an STL file")
    notes, rest = [], source.size - HEAD - count * TRIANGLE.itemsize
    if count in OPEN and source.size > HEAD:
        announced, (count, rest) = count, divmod(source.size - HEAD, TRIANGLE.itemsize)
        if rest:
            raise source.bad_file(f"its header leaves the number of faces open ({announced:,}), and its last face is not complete")
        notes.append(f"The header announces {announced:,} faces; the {count:,} that follow were read.")
    elif rest >= TRIANGLE.itemsize:
        notes.append(f"The header announces {count:,} faces; the {rest:,} bytes after them were left out.")
    source.check_claim(count, "faces", TRIANGLE.itemsize, source.size - HEAD)
    source.check_faces(count)
    raw = _mesh(source, np.fromfile(source.path, TRIANGLE, count, offset=HEAD)["corners"].reshape(-1, 3))
    raw.notes += notes
    return raw


def _is_text(source: Source) -> bool:
    """True if the file begins like an ASCII STL, in any encoding."""
    with source.open_text() as file:
        head = file.read(1024).lower()
    return b"\0" not in head and (head.lstrip().startswith(b"solid") or re.search(rb"\bfacet\s+normal\b", head) is not None)


def _is_ended(source: Source) -> bool:
    """True if the last statement of an ASCII file closes a solid."""
    with source.open() as file:
        file.seek(max(0, source.size - 1024))
        return b"endsolid" in file.read().replace(b"\0", b"").lower()


def _text(source: Source) -> np.ndarray:
    """The corners [3 F, 3] of an ASCII file, whose statements may share a line."""
    parts, loops, rest = [], 0, ""
    with source.open_text() as file:
        while block := file.read(BLOCK):
            text = rest + block.decode("utf-8", "replace").lower()
            whole, keyword, rest = text.rpartition("facet" if "facet" in text else "\n")
            rest = keyword + rest
            loops += _statements(source, whole, parts)
    loops += _statements(source, rest, parts)
    corners = np.concatenate(parts) if parts else np.empty((0, 3))
    if len(corners) % 3:
        raise source.bad_file("its last triangle is not complete")
    if loops and 3 * loops != len(corners):
        raise source.bad_file(f"it has {loops:,} faces and {len(corners):,} corners, which are not three for each")
    source.check_faces(len(corners) // 3)
    return corners


def _statements(source: Source, text: str, parts: list[np.ndarray]) -> int:
    """Adds the corners [n, 3] of a text in small letters to `parts`; returns its number of closed faces."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith("vertex")]
    if lines and len(lines) == text.count("vertex"):  # the form of almost all exporters, which NumPy reads faster
        with suppress(ValueError):
            parts.append(np.loadtxt(lines, np.float64, usecols=(1, 2, 3), ndmin=2))
            return text.count("endloop")
    loops, words = 0, []
    for *vertex, loop in STATEMENT.findall(text):
        if loop:
            loops += 1
        elif vertex[0]:
            words.append(vertex)
    try:
        numbers = np.array(words, np.float64)
    except ValueError:
        numbers = np.array([[_number(source, word) for word in vertex] for vertex in words])
    if words:
        parts.append(numbers)
    return loops


def _number(source: Source, word: str) -> float:
    """A coordinate, with a decimal point or comma."""
    value = as_decimal(word)
    if value is None:
        raise source.bad_file(f"a line 'vertex' does not hold three numbers but '{printable(word, 20)}'")
    return value


def _mesh(source: Source, corners: np.ndarray) -> Raw:
    if not len(corners):
        raise BadFile(f"{source.name} holds no faces; give a mesh, or a cloud in another format.")
    return Raw(corners.astype(np.float64), faces=np.arange(len(corners)).reshape(-1, 3))

"""Wavefront OBJ: vertices and polygons, with absolute or relative indices; without faces a cloud. Materials are not opened."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from engine.mesh.formats.polygons import triangles
from engine.mesh.formats.source import MESH_BYTES, Raw, Source, plain
from engine.mesh.formats.text import as_text


def read(source: Source) -> Raw:
    """The mesh, or the points, of an OBJ file; all its objects are joined."""
    source.check(source.size, MESH_BYTES)
    vertices, normals = array("d"), array("d")
    corners, sizes = array("q"), array("q")
    with source.open_text() as file:
        for number, words in _statements(as_text(file)):
            try:
                match words[0]:
                    case "v":
                        vertices.extend((float(words[1]), float(words[2]), float(words[3])))
                    case "vn":
                        normals.extend((float(words[1]), float(words[2]), float(words[3])))
                    case "f":
                        count = len(vertices) // 3
                        found = [_index(word, count) for word in words[1:]]
                        corners.extend(found)
                        sizes.append(len(found))
                        source.faces(len(sizes))
            except (ValueError, IndexError, OverflowError):
                raise source.damaged(f"line {number:,} is '{plain(' '.join(words))}'") from None
    points = np.frombuffer(vertices, np.float64).reshape(-1, 3) if vertices else np.empty((0, 3))
    if sizes:
        return Raw(points, faces=triangles(source, np.frombuffer(corners, np.int64), np.frombuffer(sizes, np.int64)))
    beside = np.frombuffer(normals, np.float64).reshape(-1, 3) if len(normals) == len(vertices) > 0 else None
    return Raw(points, beside, total=len(points))


def _statements(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The words of every non-empty statement, and the number of its line; a backslash continues a line."""
    before = ""
    for number, line in enumerate(lines, 1):
        if line.rstrip("\r\n").endswith("\\"):
            before += line.rstrip("\r\n")[:-1] + " "
            continue
        words = (before + line).split("#", 1)[0].split()
        before = ""
        if words:
            yield number, words


def _index(word: str, count: int) -> int:
    """The vertex of a corner "v/vt/vn": 1 is the first of the file, -1 the latest so far."""
    index = int(word.split("/", 1)[0])
    if index == 0:
        raise ValueError("vertices are numbered from 1")
    return index - 1 if index > 0 else count + index

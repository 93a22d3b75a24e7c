"""Wavefront OBJ: vertices and polygons, with absolute or relative indices; without faces a cloud. Materials are not opened."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.polygons import triangles
from engine.mesh.formats.source import MESH_BYTES, Raw, Source, printable
from engine.mesh.formats.text import as_text

CONTINUED = {
    "v", "vn", "vt", "vp", "f", "fo", "l", "p",
    "curv", "curv2", "surf", "parm", "trim", "hole", "scrv", "sp", "con", "bmat", "deg", "step", "ctech", "stech",
}  # fmt: skip
FREE_FORM = ("curv", "curv2", "surf")


def read(source: Source) -> Raw:
    """The mesh, or the points, of an OBJ file; all its objects are joined.

    Values of a vertex after x, y and z (a weight, colours) are skipped. Raises BadFile for a file with curves, surfaces or lines
    and no faces.
    """
    source.check_size(source.size, MESH_BYTES)
    vertices, normals = array("d"), array("d")
    corners, sizes = array("q"), array("q")
    others: set[str] = set()
    with source.open_text() as file:
        for number, words in _statements(as_text(file)):
            try:
                match words[0]:
                    case "v":
                        vertices.extend((float(words[1]), float(words[2]), float(words[3])))
                    case "vn":
                        normals.extend((float(words[1]), float(words[2]), float(words[3])))
                    case "f" | "fo":  # fo is the older word
                        count = len(vertices) // 3
                        polygon = [_index(word, count) for word in words[1:]]
                        corners.extend(polygon)
                        sizes.append(len(polygon))
                        source.check_faces(len(sizes))
                    case "l" | "p" | "curv" | "curv2" | "surf":
                        others.add(words[0])
            except (ValueError, IndexError, OverflowError):
                raise source.bad_file(f"line {number:,} is '{printable(' '.join(words))}'") from None
    points = np.frombuffer(vertices, np.float64).reshape(-1, 3) if vertices else np.empty((0, 3))
    if sizes:
        notes = ["Free-form curves and surfaces were left out."] if others.intersection(FREE_FORM) else []
        return Raw(points, faces=triangles(source, points, np.array(corners), np.array(sizes)), notes=notes)
    if others.intersection(FREE_FORM):
        raise BadFile(f"{source.name} holds free-form curves or surfaces, which cannot be read, and no faces; save it as polygons.")
    if "l" in others and "p" not in others:
        raise BadFile(f"{source.name} holds lines and no faces; give a cloud or a mesh.")
    directions = np.frombuffer(normals, np.float64).reshape(-1, 3) if len(normals) == len(vertices) > 0 else None
    return Raw(points, directions, total=len(points))


def _statements(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The words of every non-empty statement, and the number of its last line.

    A backslash at the end continues a statement of numbers; in a comment, or in a name such as a path, it is a character.
    """
    number = 1
    pieces: list[str] = []
    for line in lines:
        if not pieces and "\\" not in line and line.endswith("\n"):  # true of nearly all lines
            if words := line.split("#", 1)[0].split():
                yield number, words
            number += 1
            continue
        pieces.append(line)
        if not line.endswith("\n"):
            continue  # a piece of a very long line, or the last line
        text = line.rstrip()
        if text.endswith("\\") and _can_continue(pieces):
            pieces[-1] = text[:-1] + " "
        else:
            if words := _words(pieces):
                yield number, words
            pieces = []
        number += 1
    if words := _words(pieces):
        yield number, words


def _can_continue(pieces: list[str]) -> bool:
    """True for a statement of numbers without a comment."""
    keyword = pieces[0].split(maxsplit=1)[0]
    return keyword in CONTINUED and not any("#" in piece for piece in pieces)


def _words(pieces: list[str]) -> list[str]:
    """Words of a statement without its comment, and without a backslash that continues it to nowhere."""
    return "".join(pieces).split("#", 1)[0].rstrip().removesuffix("\\").split()


def _index(word: str, count: int) -> int:
    """The vertex of a corner "v/vt/vn": 1 is the first of the file, -1 the latest so far."""
    index = int(word.split("/", 1)[0])
    if index == 0:
        raise ValueError("vertices are numbered from 1")
    return index - 1 if index > 0 else count + index

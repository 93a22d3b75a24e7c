"""OFF: a count line, the vertices, the polygons. Colours and normals of the vertices are skipped."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.polygons import from_lines
from engine.mesh.formats.source import MESH_BYTES, Raw, Source
from engine.mesh.formats.text import as_text, blocks


def read(source: Source) -> Raw:
    """The mesh of an OFF file, or the points if it has no faces."""
    source.check(source.size, MESH_BYTES)
    with source.open_text() as file:
        lines = iter(as_text(file))
        rest, number = _counts(source, lines)
        try:
            vertices, faces = int(rest[0]), int(rest[1])
        except (IndexError, ValueError):
            raise source.damaged(f"line {number} does not say how many vertices and faces there are") from None
        source.vertices(vertices)
        source.claim(vertices, "vertices", 6, source.size)  # in text, a coordinate is at least a digit and a blank
        source.claim(faces, "faces", 2, source.size - 6 * vertices)
        found = list(blocks(lines, source, number + 1, count=vertices))
        points = np.concatenate(found) if found else np.empty((0, 3))
        if len(points) < vertices or points.shape[1] < 3:
            raise source.damaged(f"it claims {vertices:,} vertices of three values and holds {points.shape[0]:,} of {points.shape[1]}")
        triangles = from_lines(source, lines, number + 1 + vertices, faces) if faces else None
    return Raw(points[:, :3], faces=triangles, total=len(points))


def _counts(source: Source, lines: Iterator[str]) -> tuple[list[str], int]:
    """The words of the line with the counts, which may follow the word OFF, and its number."""
    started = False
    for number, line in enumerate(lines, 1):
        words = line.split("#", 1)[0].split()
        if not started and words:
            if not re.fullmatch(r"(ST)?C?N?OFF", words[0], re.IGNORECASE):
                break
            if words[1:2] == ["BINARY"]:
                raise BadFile(f"{source.name} is a binary OFF file, which cannot be read; save it as text or as PLY.")
            started, words = True, words[1:]
        if words:
            return words, number
    raise source.damaged("it does not start with the word OFF")

"""STL, binary and ASCII: triangles without shared vertices."""

from __future__ import annotations

from itertools import islice

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.source import MESH_BYTES, Raw, Source
from engine.mesh.formats.text import BLOCK, as_text

HEAD = 84  # bytes: a title of 80 and the number of triangles
TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("colour", "<u2")])


def read(source: Source) -> Raw:
    """The mesh of an STL file. A binary file may start with the word solid too, so its size decides."""
    source.check(source.size, MESH_BYTES)
    with source.open() as file:
        head = file.read(1024)
    count = int.from_bytes(head[80:HEAD], "little")
    if source.size != HEAD + count * TRIANGLE.itemsize and head.lstrip()[:5].lower() == b"solid" and b"\0" not in head:
        return _mesh(source, _text(source))
    if len(head) < HEAD:
        raise source.damaged("it is too short for an STL file")
    source.claim(count, "faces", TRIANGLE.itemsize, source.size - HEAD)
    source.faces(count)
    return _mesh(source, np.fromfile(source.path, TRIANGLE, count, offset=HEAD)["corners"].reshape(-1, 3))


def _text(source: Source) -> np.ndarray:
    """The corners [3 F, 3] of an ASCII file."""
    found = []
    with source.open() as file:
        lines = iter(as_text(file))
        while block := list(islice(lines, BLOCK)):
            corners = [line for line in block if line.lstrip()[:6].lower() == "vertex"]
            if corners:
                try:
                    found.append(np.loadtxt(corners, np.float64, usecols=(1, 2, 3), ndmin=2))
                except ValueError as e:
                    raise source.damaged("a line 'vertex' does not hold three numbers") from e
    corners = np.concatenate(found) if found else np.empty((0, 3))
    if len(corners) % 3:
        raise source.damaged("its last triangle is not complete")
    source.faces(len(corners) // 3)
    return corners


def _mesh(source: Source, corners: np.ndarray) -> Raw:
    if not len(corners):
        raise BadFile(f"{source.name} holds no faces; give a mesh, or a cloud in another format.")
    return Raw(corners.astype(np.float64), faces=np.arange(len(corners)).reshape(-1, 3))

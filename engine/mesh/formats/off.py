"""OFF: counts, vertices, polygons. Colours, normals and texture coordinates are skipped.

Numbers are separated by any blanks, so a vertex or a face may take several lines; what follows a face on its last line is its colour
(Geomview). Many files have vertex values that the header does not announce. So vertices are read by lines if the lines fit, else by
the header's widths; and if there are too few faces, several may share a line.
"""

from __future__ import annotations

import re
from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats import number_text
from engine.mesh.formats.number_text import Numbers, lists
from engine.mesh.formats.polygons import triangles
from engine.mesh.formats.source import MESH_BYTES, Raw, Source, count_text, printable

HEAD_LINES, LINE_BYTES = 1_000, 2**20
WORD = r"(?P<texture>ST)?(?P<colour>C)?(?P<normal>N)?(?P<four>4)?(?P<any>n)?OFF(?P<counts>\d*)"


def read(source: Source) -> Raw:
    """The mesh of an OFF file, or the points if it has no faces."""
    source.check_size(source.size, MESH_BYTES)
    with source.open_text() as file:
        widths, line, rest = _header(source, file)
        numbers = number_text.read(source, file, line, rest)
    return _Body(source, numbers, widths).raw()


def _header(source: Source, file: BinaryIO) -> tuple[list[int], int, bytes]:
    """The possible numbers of values per vertex, the number of the line with the word OFF, and the rest of that line."""
    number, line = 1, file.readline(LINE_BYTES)
    while line and not line.split(b"#", 1)[0].strip() and number < HEAD_LINES:
        number, line = number + 1, file.readline(LINE_BYTES)
    word = (line.split(b"#", 1)[0].split() or [b""])[0].decode("latin-1")
    match = re.fullmatch(WORD, word) or re.fullmatch(WORD.replace("(?P<any>n)", "(?P<any>!)"), word, re.IGNORECASE)
    if not match:
        raise source.bad_file("it does not start with the word OFF")
    rest = line.partition(word.encode("latin-1"))[2]
    if re.match(rb"\s*BINARY\b", rest, re.IGNORECASE):
        raise BadFile(f"{source.name} is a binary OFF file, which cannot be read; save it as text or as PLY.")
    if match["four"] or match["any"]:
        space = "of four dimensions (x y z w)" if match["four"] else "of any number of dimensions"
        raise BadFile(f"{source.name} is an OFF file with vertices {space}, '{printable(word, 20)}', which cannot be read; save it as OFF.")
    fixed = 3 + 3 * bool(match["normal"]) + 2 * bool(match["texture"])
    return [fixed + colour for colour in ((4, 3) if match["colour"] else (0,))], number, match["counts"].encode() + b" " + rest


class _Body:
    """The counts, vertices and faces behind the word OFF."""

    def __init__(self, source: Source, numbers: Numbers, widths: list[int]):
        self.source, self.numbers, self.widths = source, numbers, widths
        self.vertices, self.faces, self.start = self._counts()
        source.check_vertices(self.vertices)
        source.check_claim(self.vertices, "vertices", 6, source.size)  # in text, a coordinate is at least a digit and a blank
        source.check_claim(self.faces, "faces", 2, source.size - 6 * self.vertices)
        source.check_faces(self.faces)

    def _counts(self) -> tuple[int, int, int]:
        """Vertices, faces, and the index after the counts; the number of edges may be missing."""
        ends, values = self.numbers.ends, self.numbers.values
        at = 3
        if len(ends) and ends[0] == 2:
            at = 3 if len(ends) > 1 and ends[1] == 3 else 2
        if len(values) < 2 or not (np.isfinite(values[:2]).all() and (values[:2] == np.floor(values[:2])).all()):
            line = self.numbers.lines[0] if len(self.numbers.lines) else 1
            raise self.source.bad_file(f"line {line:,} does not say how many vertices and faces there are")
        return int(values[0]), int(values[1]), at

    def raw(self) -> Raw:
        """The first reading that fits. A reading that ignores lines must use every number of the file; the others may leave some."""
        first: BadFile | None = None
        for ends_of_lines in (True, False):
            for width in (None, *self.widths):
                try:
                    return self._read(width, ends_of_lines)
                except BadFile as error:
                    first = first or error
        assert first is not None
        raise first

    def _read(self, width: int | None, ends_of_lines: bool) -> Raw:
        """The mesh, with vertices of `width` values, None: one a line; a face may end with its line or with its last corner."""
        xyz, at = self._by_lines() if width is None else self._by_width(width)
        points = self.numbers.numeric(xyz.reshape(-1)).reshape(-1, 3)
        faces = None
        if self.faces:
            starts, sizes, at = self._polygons(at, ends_of_lines)
            corners = self.numbers.whole(lists(starts, sizes))
            if len(corners) and (corners.min() < 0 or corners.max() >= len(points)):
                worst = corners[(corners < 0) | (corners >= len(points))][0]
                raise self.source.bad_file(f"a face refers to vertex {count_text(int(worst))} of {len(points):,}")
            faces = triangles(self.source, points, corners, sizes)
        if (width or not ends_of_lines) and at != len(self.numbers.values):
            raise self.source.bad_file(f"it has {len(self.numbers.values) - at:,} values more than its header claims")
        return Raw(points, faces=faces, total=len(points))

    def _by_lines(self) -> tuple[np.ndarray, int]:
        """Indices [V, 3] of coordinates, and the index after the vertices, if every vertex has a line and all lines are alike."""
        ends = self.numbers.ends
        line = int(np.searchsorted(ends, self.start))  # values after the counts on their line are not vertices
        starts, stops = ends[line : line + self.vertices], ends[line + 1 : line + 1 + self.vertices]
        if len(stops) < self.vertices:
            raise self.source.too_short(self.vertices, "vertices", len(stops))
        sizes = stops - starts
        if self.vertices and (sizes[0] < 3 or (sizes != sizes[0]).any()):
            wrong = 0 if sizes[0] < 3 else int(np.flatnonzero(sizes != sizes[0])[0])
            line = self.numbers.line(starts[wrong])
            raise self.source.bad_file(f"line {line:,} has {sizes[wrong]} values where a vertex has {max(sizes[0], 3)}")
        return starts[:, None] + np.arange(3), int(stops[-1]) if len(stops) else self.start

    def _by_width(self, width: int) -> tuple[np.ndarray, int]:
        """Indices [V, 3] of coordinates, and the index after the vertices, where each has `width` values."""
        stop = self.start + self.vertices * width
        if stop > len(self.numbers.values):
            raise self.source.too_short(self.vertices, "vertices", (len(self.numbers.values) - self.start) // width)
        return np.arange(self.start, stop, width)[:, None] + np.arange(3), stop

    def _polygons(self, at: int, ends_of_lines: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Index of the first corner of each face, numbers of corners, and the index after the faces."""
        ends, values = self.numbers.ends, self.numbers.values
        line = int(np.searchsorted(ends, at, side="right"))
        stops = ends[line : line + self.faces]
        starts = np.concatenate([[at], stops[:-1]]) if len(stops) else stops
        if ends_of_lines and len(stops) == self.faces:  # the usual case: a line each
            sizes = self.numbers.whole(starts)
            if (sizes >= 0).all() and (starts + 1 + sizes <= stops).all():
                return starts + 1, sizes, int(stops[-1])
        starts, sizes = np.empty(self.faces, np.int64), np.empty(self.faces, np.int64)
        for face in range(self.faces):
            if at >= len(values):
                raise self.source.too_short(self.faces, "faces", face)
            size = values[at] if values[at] == values[at] // 1 else self.numbers.whole(np.array([at]))[0]
            stop = at + 1 + int(size)
            if size < 0 or stop > len(values):
                line, left = self.numbers.line(at), len(values) - at - 1
                raise self.source.bad_file(f"line {line:,} announces {count_text(int(size))} corners and {left:,} values follow")
            starts[face], sizes[face] = at + 1, size
            at = int(ends[np.searchsorted(ends, stop - 1, side="right")]) if ends_of_lines else stop
        return starts, sizes, at

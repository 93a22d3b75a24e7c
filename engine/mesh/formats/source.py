"""One input file: its size, the limits of what is read, and the result of a reader."""

from __future__ import annotations

import io
import math
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.text_stream import BLOCK, TextStream
from engine.mesh.random_streams import KEEP, generator

FILE_BYTES = 2**30  # maximum bytes of any file
MESH_BYTES = 2**28  # maximum bytes of a mesh, which is in memory as a whole, and several times during reading
FACES = 5_000_000  # maximum triangles of a mesh
HEAD_BYTES = 4096
CLOUD_POINTS = 200_000  # maximum points of a cloud; a larger one is sampled


def count_text(count: int) -> str:
    """A count with thousands separators; a forged header may contain thousands of digits."""
    return f"{count:,}" if abs(count) < 10**15 else f"about {'-' if count < 0 else ''}10^{round(math.log10(abs(count)))}"


def size_text(size: int) -> str:
    """A size in bytes in a readable unit."""
    if size >= 10**15:
        return f"{count_text(size)} bytes"
    for unit, name in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def printable(text: object, length: int = 60) -> str:
    """Text from a file, or a library's message about it, as a short, printable line for use in a sentence."""
    line = "".join(c if c.isprintable() else "?" for c in str(text)[: length + 1])
    return line if len(line) <= length else line[: length - 3] + "..."


@dataclass
class Raw:
    """The result of a reader, in file coordinates.

    points  : [N, 3] float64; the vertices if there are faces
    normals : [N, 3] or None; of any length, not checked
    faces   : [F, 3] int64, or None for a cloud; indices are not checked
    total   : number of points in the file, if they were sampled
    notes   : sentences about what was left out
    """

    points: np.ndarray
    normals: np.ndarray | None = None
    faces: np.ndarray | None = None
    total: int | None = None
    notes: list[str] = field(default_factory=list)


class Source:
    """An existing, regular file that is not too large. Every claim in the file is compared with `size`."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.name = printable(self.path.name)
        try:
            info = self.path.stat()
            if regular := stat.S_ISREG(info.st_mode):
                self.open().close()
        except OSError as e:
            raise BadFile(f"Cannot read {self.path} ({e.strerror or e}).") from e
        if not regular:  # a folder, a pipe, an endless device
            raise BadFile(f"{self.path} is not a file; give the path of one.")
        self.size = info.st_size
        if not self.size:
            raise BadFile(f"{self.name} is empty; export it again.")
        self.check_size(self.size, FILE_BYTES)

    def open(self) -> BinaryIO:
        """The file, opened for reading bytes."""
        return self.path.open("rb")

    def open_text(self) -> BinaryIO:
        """The file, opened for reading text: bytes of UTF-8 without a mark, in lines that end in a line feed (see TextStream)."""
        return io.BufferedReader(TextStream(self.open()), BLOCK)

    def head(self) -> bytes:
        """The first bytes, enough to recognise a format."""
        with self.open() as file:
            return file.read(HEAD_BYTES)

    def check_size(self, size: int, limit: int, what: str = "files of this kind") -> None:
        """Refuses a size above a limit."""
        if size > limit:
            raise BadFile(f"{self.name} holds {size_text(size)}; {what} can have {size_text(limit)} at most, so make it smaller first.")

    def whole(self) -> bytes:
        """The whole content of the file; refuses a file too large for memory."""
        self.check_size(self.size, MESH_BYTES)
        return self.path.read_bytes()

    def check_claim(self, count: int, what: str, smallest: int, left: int) -> None:
        """Refuses a header that claims more items, each of `smallest` bytes or more, than fit in the `left` bytes of the file."""
        if count < 0:
            raise self.bad_file(f"its header claims {count_text(count)} {what}")
        if count * smallest > max(left, 0):
            raise BadFile(
                f"{self.name} claims {count_text(count)} {what} ({size_text(count * smallest)} or more) "
                f"but {size_text(max(left, 0))} of data follow: it is truncated or damaged, so save it again."
            )

    def check_faces(self, count: int) -> None:
        """Refuses more triangles than the limit."""
        self._check_count(count, FACES, "faces")

    def check_vertices(self, count: int) -> None:
        """Refuses a mesh with more vertices than its triangles could have corners."""
        self._check_count(count, 3 * FACES, "vertices")

    def _check_count(self, count: int, limit: int, what: str) -> None:
        if count > limit:
            raise BadFile(f"{self.name} has {count_text(count)} {what}; {limit:,} are the most that can be read, so simplify it first.")

    def too_short(self, claimed: int, what: str, count: int) -> BadFile:
        """The error for a file with fewer items than it claims."""
        return self.bad_file(f"it claims {claimed:,} {what} and ends after {count:,}")

    def bad_file(self, what: str) -> BadFile:
        """The error for content that contradicts the format."""
        return BadFile(f"{self.name} is damaged: {what}; export it again.")


def rows_to_keep(total: int) -> np.ndarray:
    """Indices of the rows of a table to keep, int64, ascending: all, or one drawn from each of CLOUD_POINTS equal ranges."""
    if total <= CLOUD_POINTS:
        return np.arange(total)
    return ((np.arange(CLOUD_POINTS) + generator(KEEP).random(CLOUD_POINTS)) * (total / CLOUD_POINTS)).astype(np.int64).clip(0, total - 1)


class Reservoir:
    """Uniform sample of CLOUD_POINTS rows of a stream, in the stream's order, using memory for twice that number."""

    def __init__(self, blocks: Iterable[np.ndarray]):
        """blocks : the rows of the stream, in blocks"""
        self.seen = 0
        self._random = generator(KEEP)
        self._rows: list[np.ndarray] = []
        self._keys: list[np.ndarray] = []
        self._below = 1.0  # the CLOUD_POINTS rows with the smallest random keys stay
        for rows in blocks:
            self._add(rows)

    def _add(self, rows: np.ndarray) -> None:
        """Adds the next rows."""
        self.seen += len(rows)
        keys = self._random.random(len(rows))
        chosen = keys < self._below
        self._rows.append(rows[chosen])
        self._keys.append(keys[chosen])
        if sum(map(len, self._keys)) > 2 * CLOUD_POINTS:
            self._shrink()

    def _shrink(self) -> None:
        rows, keys = np.concatenate(self._rows), np.concatenate(self._keys)
        if len(keys) > CLOUD_POINTS:
            chosen = np.sort(np.argpartition(keys, CLOUD_POINTS)[:CLOUD_POINTS])
            rows, keys = rows[chosen], keys[chosen]
            self._below = float(keys.max())
        self._rows, self._keys = [rows], [keys]

    def rows(self, width: int) -> np.ndarray:
        """The sampled rows, [n, width]."""
        if self._rows:
            self._shrink()
        return self._rows[0] if self._rows else np.empty((0, width))

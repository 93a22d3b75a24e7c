"""NumPy's .npy and .npz: a table of points [N, 3 to 10], or named arrays. Python objects in them are never unpickled.

An .npz may name its arrays, in small letters or capitals: points (or positions, xyz, vertices, v, pos, arr_0), optionally normals, and
faces (or triangles, f), which make it a mesh.
"""

from __future__ import annotations

import io
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from tokenize import TokenError
from typing import BinaryIO

import numpy as np
from numpy.lib import format as npy

from engine.errors import BadFile
from engine.mesh.formats.columns import WIDTHS, cloud
from engine.mesh.formats.source import FILE_BYTES, MESH_BYTES, Raw, Reservoir, Source, printable, rows_to_keep

HEAD = 16_384  # maximum bytes of an array's header
BLOCK = 65_536  # rows per block
DIRECTORY_BYTES = 2**20  # maximum bytes of an archive's list of entries
POINTS = ("points", "positions", "xyz", "vertices", "verts", "v", "pos", "position", "arr_0")
NORMALS = ("normals", "vertex_normals", "normal", "vn", "n")
FACES = ("faces", "triangles", "f")
UNPACKING = (  # exceptions of zipfile for damaged archives, and RuntimeError for one with a password
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, NotImplementedError, RuntimeError, UnicodeDecodeError,
)  # fmt: skip


@dataclass
class Head:
    """The header of an array: shape, type, order, and the offset of its data."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    start: int

    @property
    def size(self) -> int:
        """Bytes of data that the header claims."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_npy(source: Source) -> Raw:
    """The points of a .npy file. The file stays on the disk; only the sampled rows are read."""
    with source.open() as file:
        head = _head(source, file, source.size)
    count = _table(source, head)
    if not count:
        raise BadFile(f"{source.name} holds no points; give a cloud or a mesh.")
    mapped = np.memmap(source.path, head.dtype, "r", head.start, head.shape, "F" if head.fortran else "C")
    return cloud(np.array(mapped[rows_to_keep(count)], np.float64), count)


def read_npz(source: Source) -> Raw:
    """The points, or the mesh, of an .npz file."""
    try:
        with source.open() as file:
            _check_directory(source, file)
            archive = zipfile.ZipFile(file)
            return _archive(source, archive)
    except UNPACKING as e:
        raise source.bad_file(f"its archive cannot be unpacked ({printable(e)})") from e


def _check_directory(source: Source, file: BinaryIO) -> None:
    """Refuses an archive with too many entries, because zipfile would make an object for each. The archive's end gives the list's size."""
    file.seek(max(0, source.size - 2**16 - 22))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    size = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if size > DIRECTORY_BYTES or b"PK\6\7" in tail[max(0, at - 20) : max(0, at)]:  # the latter is for more than 65,535 entries
        raise BadFile(f"{source.name} has too many entries; save only the arrays with points, normals and faces.")
    file.seek(0)


def _archive(source: Source, archive: zipfile.ZipFile) -> Raw:
    names = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")}
    small = {name.lower(): info for name, info in names.items()}
    points = next((small[name] for name in POINTS if name in small), None)
    if points is None and len(names) == 1:
        points = next(iter(names.values()))
    if points is None:
        raise BadFile(f"{source.name} holds no array named points; it has: {printable(', '.join(sorted(names)) or 'none')}.")
    normals = next((small[name] for name in NORMALS if name in small), None)
    faces = next((small[name] for name in FACES if name in small), None)
    for info in filter(None, (points, normals, faces)):
        source.check_size(info.file_size, FILE_BYTES, "arrays, once unpacked,")
    if faces is not None:
        return _mesh(source, archive, points, faces)
    reservoir = Reservoir(_stream(source, archive, points, normals))
    rows = reservoir.rows(6)
    if normals is None:
        return cloud(rows, reservoir.seen)
    return Raw(rows[:, :3], rows[:, -3:], total=reservoir.seen)


def _mesh(source: Source, archive: zipfile.ZipFile, points: zipfile.ZipInfo, faces: zipfile.ZipInfo) -> Raw:
    """A mesh from two arrays, [V, 3] and integers [F, 3]."""
    source.check_size(points.file_size + faces.file_size, MESH_BYTES, "meshes, once unpacked,")
    none = np.empty((0, 3), np.int8)
    vertices = np.concatenate([*_rows(source, archive, points, (3,))] or [none])
    indices = np.concatenate([*_rows(source, archive, faces, (3,))] or [none])
    source.check_vertices(len(vertices))
    source.check_faces(len(indices))
    if indices.dtype.kind not in "iu" and (indices % 1 != 0).any():
        raise BadFile(f"{source.name} has faces of type {printable(indices.dtype)}; they need whole numbers, so save them as int32.")
    return Raw(vertices.astype(np.float64), faces=indices.astype(np.int64))


def _stream(source: Source, archive: zipfile.ZipFile, points: zipfile.ZipInfo, normals: zipfile.ZipInfo | None) -> Iterator[np.ndarray]:
    """Rows of the points followed by their normals, float64."""
    rows = _rows(source, archive, points, WIDTHS)
    if normals is None:
        yield from (block.astype(np.float64) for block in rows)
        return
    normal_rows = _rows(source, archive, normals, (3,))
    for block in rows:
        other = next(normal_rows, block[:0])
        if len(other) != len(block):
            raise BadFile(f"{source.name} has another number of normals than of points; leave the normals out or save both again.")
        yield np.concatenate([block, other], 1, dtype=np.float64)


def _rows(source: Source, archive: zipfile.ZipFile, info: zipfile.ZipInfo, widths: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yields blocks of rows of an array in an archive while unpacking it."""
    with archive.open(info) as file:
        head = _head(source, file, info.file_size)
        count = _table(source, head, widths)
        if head.fortran:  # columns are stored one after the other, so the whole array is needed at once
            source.check_size(head.size, MESH_BYTES, "arrays in Fortran order")
            yield np.frombuffer(_read_exactly(source, file, head.size), head.dtype).reshape(head.shape, order="F")
            return
        for at in range(0, count, BLOCK):
            shape = (min(BLOCK, count - at), head.shape[1])
            yield np.frombuffer(_read_exactly(source, file, math.prod(shape) * head.dtype.itemsize), head.dtype).reshape(shape)


def _read_exactly(source: Source, file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise source.bad_file("an array ends too early")
    return data


def _head(source: Source, file: BinaryIO, size: int) -> Head:
    """The header of an array of `size` bytes; leaves the file at the start of the data."""
    first = file.read(8)
    try:
        version = npy.read_magic(io.BytesIO(first))
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version}")
        length = file.read(2 if version == (1, 0) else 4)
        described = int.from_bytes(length, "little")
        if described > HEAD:
            raise ValueError("it is too long")
        parse = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = parse(io.BytesIO(length + file.read(described)))
        if any(isinstance(number, bool) for number in shape):  # an int to NumPy's parser, but not to its arrays
            raise ValueError("True is no length")
    except (ValueError, TypeError, SyntaxError, TokenError, MemoryError, RecursionError) as e:  # the exceptions of NumPy's header parser
        if first[:1] == b"\x80":
            raise _objects(source) from e
        raise source.bad_file("it does not start as a NumPy array does") from e
    if dtype.hasobject:
        raise _objects(source)
    head = Head(shape, fortran, dtype, len(first) + len(length) + described)
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        kind = "records of several fields" if dtype.names else f"values of type {printable(dtype)}"
        raise BadFile(f"{source.name} holds {kind}; save it as float32.")
    if min(shape, default=0) < 0:
        raise source.bad_file(f"it claims the shape {printable(shape)}")
    source.check_claim(math.prod(shape), "values", dtype.itemsize, size - head.start)
    return head


def _objects(source: Source) -> BadFile:
    return BadFile(
        f"{source.name} holds pickled Python objects, which are never read because they could run any code: save a plain array of numbers."
    )


def _table(source: Source, head: Head, widths: tuple[int, ...] = WIDTHS) -> int:
    """The number of rows of a table; refuses other shapes."""
    if len(head.shape) == 2 and head.shape[1] in widths:
        return head.shape[0]
    wanted = f"(N, {widths[0]})" + (f" to (N, {widths[-1]})" if len(widths) > 1 else "")
    if len(head.shape) == 2 and head.shape[0] in widths:
        advice = "transpose it (array.T)"
    elif len(head.shape) > 2 and head.shape[-1] in widths:
        advice = f"reshape it (array.reshape(-1, {head.shape[-1]}))"
    else:
        advice = f"save one of shape {wanted}"
    raise BadFile(f"{source.name} holds an array of shape {printable(head.shape)}; it needs {wanted}, so {advice}.")

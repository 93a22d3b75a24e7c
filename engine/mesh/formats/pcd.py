"""PCD, the point clouds of the Point Cloud Library: ascii, binary and binary_compressed."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.columns import cloud_by_name
from engine.mesh.formats.source import Raw, Reservoir, Source, printable, rows_to_keep
from engine.mesh.formats.text import as_text, blocks

KINDS = {"F": "f", "I": "i", "U": "u"}
HEAD_LINES, LINE_BYTES = 100, 10_000
UNPACKED_BYTES = 2**26  # maximum bytes of compressed data, which are unpacked in Python
NORMALS = ("normal_x", "normal_y", "normal_z")


def read(source: Source) -> Raw:
    """The points of a PCD file."""
    with source.open_text() as file:
        head, line = _header(source, file)
        row, count = _row(source, head)
        left = source.size - file.tell()
        kind = head["DATA"][0].lower()
        if kind == "ascii":
            source.check_claim(
                count, "points", 2 * sum(field.shape[0] if field.shape else 1 for field, *_ in row.fields.values()), left + 1
            )
            return _ascii(source, file, row, count, line)
        if kind == "binary":
            source.check_claim(count, "points", row.itemsize, left)
            rows = np.memmap(source.path, row, "r", file.tell(), (count,))[rows_to_keep(count)] if count else np.empty(0, row)
            return _raw({name: rows[name] for name in row.names}, count)
        if kind == "binary_compressed":
            with source.open() as packed:
                packed.seek(file.tell())
                return _raw(_unpack(source, packed, row, count), count)
    raise source.bad_file(f"its data are '{printable(kind)}' and not ascii, binary or binary_compressed")


def _header(source: Source, file: BinaryIO) -> tuple[dict[str, list[str]], int]:
    """The words of the header by keyword, and the number of the line after it."""
    head: dict[str, list[str]] = {}
    for number in range(1, HEAD_LINES):
        words = file.readline(LINE_BYTES).decode("latin-1").split()
        if words and not words[0].startswith("#"):
            head[words[0]] = words[1:] or [""]
        if "DATA" in head:
            return head, number + 1
    raise source.bad_file("its header has no line DATA")


def _row(source: Source, head: dict[str, list[str]]) -> tuple[np.dtype, int]:
    """The layout of a point, and the number of points."""
    try:
        names = [name.lower() for name in head["FIELDS"]]
        each = head.get("COUNT", ["1"] * len(names))
        fields = zip(names, head["TYPE"], head["SIZE"], each, strict=True)
        # padding is named _, possibly several times, so the names are numbered
        row = np.dtype([(f"{n}{i}" if n == "_" else n, KINDS[t] + s, (int(c),)) for i, (n, t, s, c) in enumerate(fields)])
        count = int(head["POINTS"][0]) if "POINTS" in head else int(head["WIDTH"][0]) * int(head["HEIGHT"][0])
    except (KeyError, ValueError, TypeError) as e:
        raise source.bad_file("its header does not say which fields a point has, or how many points there are") from e
    if not {"x", "y", "z"} <= set(names) or any(row[c].shape != (1,) for c in "xyz"):
        raise BadFile(f"{source.name} has points without x, y and z; export it again with them.")
    return row, count


def _raw(fields: dict[str, np.ndarray], total: int) -> Raw:
    """Points and normals from fields [n, 1] by name."""
    return cloud_by_name({name: values[:, 0] for name, values in fields.items() if name in (*"xyz", *NORMALS)}, NORMALS, total)


def _ascii(source: Source, file: BinaryIO, row: np.dtype, count: int, line: int) -> Raw:
    widths = [row[name].shape[0] for name in row.names]
    ends = np.cumsum(widths)
    reservoir = Reservoir(blocks(as_text(file), source, line, int(ends[-1]), count))
    if reservoir.seen < count:
        raise source.too_short(count, "points", reservoir.seen)
    rows = reservoir.rows(int(ends[-1]))
    return _raw({name: rows[:, end - width : end] for name, end, width in zip(row.names, ends, widths)}, count)


def _unpack(source: Source, file: BinaryIO, row: np.dtype, count: int) -> dict[str, np.ndarray]:
    """The fields of compressed points, which are stored field by field instead of point by point."""
    packed, unpacked = (int.from_bytes(file.read(4), "little") for _ in range(2))
    source.check_size(unpacked, UNPACKED_BYTES, "compressed points, once unpacked,")
    source.check_claim(packed, "bytes of compressed points", 1, source.size - file.tell())
    source.check_claim(count, "points", row.itemsize, unpacked)
    data = _lzf(source, file.read(packed), unpacked)
    columns, at, chosen = {}, 0, rows_to_keep(count)
    for name in row.names:
        kind, shape = row[name].subdtype
        columns[name] = np.ndarray((count, *shape), kind, data, at)[chosen]
        at += count * row[name].itemsize
    return columns


def _lzf(source: Source, packed: bytes, size: int) -> bytearray:
    """Decompresses LibLZF: a byte below 32 announces literals, any other a copy of earlier output."""
    out = bytearray()
    at = 0
    try:
        while at < len(packed) and len(out) <= size:
            control = packed[at]
            at += 1
            if control < 32:
                out += packed[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += packed[at]
                at += 1
            start = len(out) - ((control & 31) << 8) - packed[at] - 1
            at += 1
            if start < 0:
                raise IndexError("it refers to data before its beginning")
            period = bytes(out[start : start + length + 2])
            out += (period * ((length + 1) // len(period) + 1))[: length + 2]  # a copy may overlap its own output
    except IndexError as e:
        raise source.bad_file("its compressed points are broken") from e
    if len(out) != size:
        raise source.bad_file(f"its compressed points unpack to {len(out):,} bytes instead of {size:,}")
    return out

"""The header of a PLY file: the tables of the file, their order and their columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from engine.mesh.formats.source import Source, printable

TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2",
    "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "int64": "i8", "uint64": "u8",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
STRIPS = ("tristrips", "tristrip")
HEAD_LINES, LINE_BYTES = 1_000, 2**20  # comments hold settings


@dataclass
class Property:
    """A value of an element, or a list of values whose length has the type `length_type`. Types are NumPy's, without byte order."""

    name: str
    type: str
    length_type: str | None = None

    @property
    def smallest(self) -> int:
        """The minimum size of a value in bytes."""
        return np.dtype(self.length_type or self.type).itemsize


@dataclass
class Element:
    """A table of the file: vertices, faces or something else.

    place : its number among the tables, from 0
    """

    name: str
    count: int
    place: int
    properties: list[Property] = field(default_factory=list)

    @property
    def flat(self) -> bool:
        """True if all its rows have the same length."""
        return all(p.length_type is None for p in self.properties)


@dataclass
class Header:
    """The contents of a header.

    order    : byte order of NumPy, "" for ASCII
    elements : in the order of the file; names are in small letters
    line     : number of the first line after it
    """

    order: str
    elements: list[Element]
    line: int


def header(source: Source, file: BinaryIO) -> Header:
    """Reads the header of a PLY file; leaves the file at the start of its body."""
    order, elements = None, []
    if file.readline(LINE_BYTES).strip().lower() != b"ply":
        raise source.bad_file("it does not start with the line 'ply'")
    for number in range(2, HEAD_LINES):
        line = file.readline(LINE_BYTES)
        words = line.decode("latin-1").split()
        match [word.lower() for word in words]:
            case ["end_header", *_]:
                if order is None:
                    raise source.bad_file("its header has no line 'format'")
                return Header(order, elements, number + 1)
            case ["format", name, *_] if name in ORDERS:
                order = ORDERS[name]
            case ["element", name, count] if count.lstrip("-").isdecimal() and len(count) < 4_000:
                elements.append(Element(name, int(count), len(elements)))
            case ["property", "list", length_type, kind, name] if elements and TYPES.get(length_type, "f")[0] != "f" and kind in TYPES:
                elements[-1].properties.append(Property(name, TYPES[kind], TYPES[length_type]))
            case ["property", kind, name] if elements and kind in TYPES:
                elements[-1].properties.append(Property(name, TYPES[kind]))
            case ["comment" | "obj_info", *_]:
                pass
            case [] if line:
                pass
            case []:
                break
            case [first, *_] if first in ("format", "element", "property"):
                raise source.bad_file(f"line {number} of its header is '{printable(' '.join(words))}'")
            case _:
                raise source.bad_file(f"line {number} of its header, '{printable(' '.join(words))}', has no keyword such as comment")
    raise source.bad_file("its header has no end")

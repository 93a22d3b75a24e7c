"""The body of a PLY file in ASCII: one row per line, or numbers in that order on any lines.

If each row is a line, lines may end with values that the header does not list; otherwise every number must be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats import number_text
from engine.mesh.formats.number_text import Numbers, lists
from engine.mesh.formats.ply_header import Element, Header, Property, header
from engine.mesh.formats.source import MESH_BYTES, Reservoir, Source, count_text, printable, rows_to_keep
from engine.mesh.formats.text import as_text, blocks

Table = dict[str, np.ndarray]
Members = dict[int, tuple[np.ndarray, np.ndarray]]
Places = dict[str, tuple[np.ndarray, np.ndarray | None]]  # by property: the index of its value, or of a list's first member and its length
Layout = Callable[[Numbers, Element, int], tuple[Places, int]]


def read(
    source: Source, file: BinaryIO, head: Header, vertex: Element, wanted: tuple[str, ...], wanted_lists: Mapping[int, Property]
) -> tuple[Table, Members]:
    """Columns of the vertices by name, and the lists that are wanted of other tables: members and sizes, by the table's place."""
    first: BadFile | None = None
    if not wanted_lists and all(e.flat for e in head.elements[: vertex.place + 1]):
        try:
            return _sample(source, file, head, vertex), {}
        except BadFile as error:
            if source.size > MESH_BYTES:
                raise
            first = error
    with source.open_text() as again:
        header(source, again)
        numbers = number_text.read(source, again, head.line)
    for layout in (_by_lines, _by_order):
        try:
            return _read_all(numbers, head, vertex, wanted, wanted_lists, layout)
        except BadFile as error:
            first = first or error
    assert first is not None
    raise first


def _sample(source: Source, file: BinaryIO, head: Header, vertex: Element) -> Table:
    """Columns of points, one row per line; many points are sampled."""
    lines, width = iter(as_text(file)), len(vertex.properties)
    before = sum(e.count for e in head.elements[: vertex.place])
    for _ in islice(lines, before):
        pass
    reservoir = Reservoir(blocks(lines, source, head.line + before, width, vertex.count))
    if reservoir.seen < vertex.count:
        raise source.too_short(vertex.count, "vertices", reservoir.seen)
    rows = reservoir.rows(width)
    return {p.name: rows[:, i] for i, p in enumerate(vertex.properties)}


def _read_all(
    numbers: Numbers, head: Header, vertex: Element, wanted: tuple[str, ...], wanted_lists: Mapping[int, Property], layout: Layout
) -> tuple[Table, Members]:
    """The result of `read` from all numbers of the file."""
    table: Table = {}
    members: Members = {}
    at = 0
    for e in head.elements:
        places, at = layout(numbers, e, at)
        if e is vertex:
            chosen = slice(None) if wanted_lists else rows_to_keep(e.count)
            table = {name: numbers.numeric(places[name][0][chosen]) for name in wanted}
        elif e.place in wanted_lists:
            starts, sizes = places[wanted_lists[e.place].name]
            members[e.place] = numbers.whole(lists(starts, sizes)), sizes
    if layout is _by_order and at != len(numbers.values):
        raise numbers.source.bad_file(f"it has {len(numbers.values) - at:,} values more than its header claims")
    return table, members


def _by_lines(numbers: Numbers, e: Element, line: int) -> tuple[Places, int]:
    """Places of a table's values if every row is a line, and the line after it; `line` counts the lines with values."""
    stops = numbers.ends[line : line + e.count]
    if len(stops) < e.count:
        name = "vertices" if e.name == "vertex" else "faces" if e.name == "face" else f"{printable(e.name)} rows"
        raise numbers.source.too_short(e.count, name, len(stops))
    at = numbers.starts[line : line + e.count]
    places: Places = {}
    for p in e.properties:
        if p.length_type is None:
            places[p.name] = at, None
            at = at + 1
            continue
        if (row := _first_wrong(at < stops)) is not None:
            raise numbers.source.bad_file(f"line {numbers.line(stops[row] - 1):,} ends before its {printable(p.name, 20)}")
        sizes = numbers.whole(at)
        starts, at = at + 1, at + 1 + sizes
        if (row := _first_wrong((sizes >= 0) & (at <= stops))) is not None:
            size, has = count_text(int(sizes[row])), stops[row] - starts[row]
            raise numbers.source.bad_file(f"line {numbers.line(stops[row] - 1):,} announces {size} corners and has {has:,}")
        places[p.name] = starts, sizes
    if (row := _first_wrong(at == stops if e.name == "vertex" else at <= stops)) is not None:
        line = numbers.line(stops[row] - 1)
        raise numbers.source.bad_file(f"line {line:,} does not have the values that its header lists ({len(e.properties)})")
    return places, line + e.count


def _first_wrong(right: np.ndarray) -> int | None:
    """Index of the first wrong row, None if all are right."""
    return None if right.all() else int(np.flatnonzero(~right)[0])


def _by_order(numbers: Numbers, e: Element, at: int) -> tuple[Places, int]:
    """Places of a table's values if only their order counts, and the index after them."""
    left, width = len(numbers.values) - at, len(e.properties)
    if e.count * width > left:
        raise numbers.source.bad_file("it ends too early")
    if e.flat:
        rows = at + np.arange(e.count) * width
        return {p.name: (rows + i, None) for i, p in enumerate(e.properties)}, at + e.count * width
    starts, sizes = np.zeros((2, width, e.count), np.int64)
    values = numbers.values
    for row in range(e.count):
        for i, p in enumerate(e.properties):
            size = 0
            if p.length_type:
                if at >= len(values) or not 0 <= values[at] <= left or values[at] % 1:
                    raise numbers.source.bad_file("a list in it has no length or ends too early")
                size, at = int(values[at]), at + 1
                sizes[i, row] = size
            starts[i, row] = at
            at += size if p.length_type else 1
    if at > len(values):
        raise numbers.source.bad_file("it ends too early")
    return {p.name: (starts[i], sizes[i] if p.length_type else None) for i, p in enumerate(e.properties)}, at

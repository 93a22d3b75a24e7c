"""PLY, ASCII and binary, as a cloud or a mesh of polygons and triangle strips; other elements and properties are skipped.

Elements and properties may come in any order. Memory: only the sampled rows of a cloud are read; a mesh is loaded whole, up to
MESH_BYTES.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats import ply_binary, ply_text
from engine.mesh.formats.columns import cloud_by_name
from engine.mesh.formats.ply_header import STRIPS, Element, Header, Property, header
from engine.mesh.formats.polygons import strips, triangles
from engine.mesh.formats.source import MESH_BYTES, Raw, Source, printable

CORNERS = ("vertex_indices", "vertex_index")
NORMALS = ("nx", "ny", "nz")


def read(source: Source) -> Raw:
    """The points or the mesh of a PLY file."""
    with source.open_text() as file:
        head = header(source, file)
        vertex = _vertex(source, head.elements)
        polygons = [e for e in head.elements if e.name in ("face", *STRIPS) and e.count]
        if polygons:
            source.check_size(source.size, MESH_BYTES, "meshes")
            source.check_vertices(vertex.count)
        _check_claims(source, head, source.size - file.tell())
        lists = {e.place: _corners(source, e) for e in polygons}
        wanted = tuple(p.name for p in vertex.properties if p.name in (*"xyz", *(() if polygons else NORMALS)) and not p.length_type)
        reader = ply_binary if head.order else ply_text
        table, members = reader.read(source, file, head, vertex, wanted, lists)
    raw = cloud_by_name(table, NORMALS, vertex.count)
    if not len(raw.points):
        raise BadFile(f"{source.name} holds no points; give a cloud or a mesh.")
    if polygons:
        lists = [_strips(*members[e.place]) if e.name in STRIPS else triangles(source, raw.points, *members[e.place]) for e in polygons]
        source.check_faces(sum(map(len, lists)))
        raw.faces = np.concatenate(lists)
    return raw


def _vertex(source: Source, elements: Sequence[Element]) -> Element:
    """The table of the vertices."""
    tables = [e for e in elements if e.name == "vertex"]
    if len(tables) > 1:
        raise source.bad_file("it has two tables of vertices")
    if not tables:
        raise BadFile(f"{source.name} has no vertices; give a cloud or a mesh.")
    if not set("xyz") <= {p.name for p in tables[0].properties if not p.length_type}:
        raise BadFile(f"{source.name} has vertices without x, y and z; export it again with them.")
    return tables[0]


def _check_claims(source: Source, head: Header, left: int) -> None:
    """Raises BadFile for tables larger than the rest of the file."""
    shortest = 0 if head.order else 2  # bytes of a value as text: a digit and a blank
    left += not head.order  # the last line of a text may have no line end
    for e in head.elements:
        if len({p.name for p in e.properties}) < len(e.properties):
            raise source.bad_file(f"its {printable(e.name)} rows have two values of the same name")
        smallest = sum(shortest or p.smallest for p in e.properties)
        source.check_claim(e.count, f"{printable(e.name)} rows", smallest, left)
        left -= e.count * smallest


def _corners(source: Source, e: Element) -> Property:
    """The list of corners of a face or a strip: by its name, or the only list of whole numbers."""
    lists = [p for p in e.properties if p.length_type]
    by_name = [p for p in lists if p.name in CORNERS]
    whole = [p for p in lists if np.dtype(p.type).kind in "iu"]
    if by_name or len(whole) == 1:
        return (by_name or whole)[0]
    raise BadFile(f"{source.name} has {printable(e.name)} rows without a list of vertices (vertex_indices); export it again with one.")


def _strips(indices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Triangles of strips that end with -1 or with their list."""
    indices = np.where(indices == 2**32 - 1, -1, indices.astype(np.int64))  # -1 as an unsigned number
    ends = indices == -1
    key = np.repeat(np.arange(len(sizes)), sizes) + np.cumsum(ends)
    return strips(indices[~ends], np.unique(key[~ends], return_counts=True)[1])

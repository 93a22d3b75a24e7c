"""Realistic meshes: polygons of every shape, and the special cases of PLY, OBJ, OFF and glTF."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.mesh.surface import areas
from tests.engine.mesh.files import Scene
from tests.engine.mesh.shapes import QUADS, box
from tests.faults.corpus import Sample

Writer = Callable[[Path], Path]
Corners = Sequence[tuple[float, ...]]

CORNERS, TRIANGLES = box((2.0, 1.0, 0.5), (3.0, 4.0, 5.0))
LOW, HIGH, AREA = (2.0, 3.5, 4.75), (4.0, 4.5, 5.25), 7.0
LINES = [f"{x:g} {y:g} {z:g}" for x, y, z in CORNERS.tolist()]


def content(name: str, data: str | bytes) -> Writer:
    """A writer of a file with this content."""

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        return folder / name

    return write


def the_box(name: str, write: Writer, notes: tuple[str, ...] = (), count: int = 12) -> Sample:
    """A file with the box of 2 x 1 x 0.5."""
    return Sample(name, write, count, LOW, HIGH, AREA, notes)


def bad(name: str, write: Writer, sentence: str) -> Sample:
    """A file that cannot be read."""
    return Sample(name, write, sentence=sentence)


# --- polygons ---------------------------------------------------------------------------------------------------------


def obj(points: Corners, faces: Iterable[Sequence[int]]) -> str:
    """An OBJ file."""
    lines = ["v " + " ".join(map(repr, p)) for p in points]
    return "\n".join(lines + ["f " + " ".join(str(i + 1) for i in f) for f in faces]) + "\n"


def off(points: Corners, faces: Sequence[Sequence[int]]) -> str:
    """An OFF file."""
    lines = ["OFF", f"{len(points)} {len(faces)} 0", *(" ".join(map(repr, p)) for p in points)]
    return "\n".join(lines + [" ".join(map(str, [len(f), *f])) for f in faces]) + "\n"


def ply(points: Corners, faces: Sequence[Sequence[int]]) -> bytes:
    """A binary PLY file of single precision."""
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(points)}", *(f"property float {c}" for c in "xyz")]
    head += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header", ""]
    body = b"".join(struct.pack("<3f", *p) for p in points) + b"".join(struct.pack(f"<B{len(f)}i", len(f), *f) for f in faces)
    return "\n".join(head).encode() + body


def flat(*xy: tuple[float, float]) -> Corners:
    """Corners in the plane z = 0."""
    return [(float(x), float(y), 0.0) for x, y in xy]


def tilt(points: Corners) -> Corners:
    """Corners rotated into a plane parallel to no axis."""
    matrix = np.array([[2, -1, 2], [2, 2, -1], [-1, 2, 2]]) / 3
    return [tuple(p) for p in (np.array(points) @ matrix.T).tolist()]


U = flat((0, 0), (4, 0), (4, 4), (3, 4), (3, 1), (1, 1), (1, 4), (0, 4))
ARROW = flat((0, 0), (2, 1), (0, 2), (0.5, 1))
WALL = [*flat((0, 0), (4, 0), (4, 4), (0, 4)), *flat((1, 1), (1, 3), (3, 3), (3, 1))]
HOLE = [0, 1, 2, 3, 0, 4, 5, 6, 7, 4]  # around the wall, over a bridge, around the hole, and back
COMB = flat(*[(x, 3 if x % 2 else 1) for x in range(13)], (12, 0), (0, 0))
SPIRAL = flat((0, 0), (6, 0), (6, 6), (1, 6), (1, 2), (4, 2), (4, 4), (3, 4), (3, 3), (2, 3), (2, 5), (5, 5), (5, 1), (0, 1))
SUBDIVIDED = flat((0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1))
GABLE = [(0, 0, 0), (2, 0, 0), (2, 2, 0), (1, 0.5, 0), (0, 2, 0)]  # a notch, and two corners on a line with it
TENT = [(0.0, 0.0, 0.0), (1.0, 0.0, 1.0), (1.5, 1.5, 0.0), (0.0, 1.0, 1.0)]  # not planar; the diagonal from corner 1 is the shorter one

POLYGONS: dict[str, tuple[Corners, list[list[int]], int, float]] = {  # corners, faces, triangles and area
    "a U": (U, [[*range(8)]], 6, 10.0),
    "a U the other way round": (U, [[*range(7, -1, -1)]], 6, 10.0),
    "a U that is tilted": (tilt(U), [[*range(8)]], 6, 10.0),
    **{f"an arrow head from corner {k}": (ARROW, [[*range(k, 4), *range(k)]], 2, 1.5) for k in range(4)},
    "an arrow head that is tilted": (tilt(ARROW), [[0, 1, 2, 3]], 2, 1.5),
    **{f"a wall with a hole, from corner {k}": (WALL, [HOLE[k:] + HOLE[:k]], 8, 12.0) for k in (0, 4, 7)},
    "a wall with a hole that is tilted": (tilt(WALL), [HOLE], 8, 12.0),
    "a wall with a hole and corners twice": ([*WALL, WALL[0], WALL[4]], [[0, 1, 2, 3, 8, 4, 5, 6, 7, 9]], 8, 12.0),
    "a wall with two holes": ([*WALL, *flat((3.2, 0.2), (3.2, 0.8), (3.8, 0.8), (3.8, 0.2))], [[*HOLE, 0, 8, 9, 10, 11, 8]], 14, 11.64),
    "a hole that touches a side": ([*WALL[:4], *flat((2, 0), (1, 2), (3, 2))], [[0, 4, 5, 6, 4, 1, 2, 3]], 6, 14.0),
    "a spike inward": ([*WALL[:4], *flat((4, 2), (2, 2))], [[0, 1, 4, 5, 4, 2, 3]], 3, 16.0),
    "a spike outward": ([*U, *flat((3, 2), (1.5, 2))], [[0, 1, 2, 3, 8, 9, 8, 4, 5, 6, 7]], 7, 10.0),
    "the first corner again at the end": (U, [[*range(8), 0]], 6, 10.0),
    "a comb": (COMB, [[*range(15)]], 13, 24.0),
    "a spiral": (SPIRAL, [[*range(14)]], 12, 21.0),
    "a gable": (GABLE, [[0, 1, 2, 3, 4]], 3, 2.5),
    "corners in a line": (SUBDIVIDED, [[*range(8)]], 6, 4.0),
    "corners in a line, of a quad": (flat((0, 0), (1, 0), (2, 0), (0, 2)), [[0, 1, 2, 3]], 2, 2.0),
    "corners that are repeated": (SUBDIVIDED, [[0, 0, 2, 4, 4, 6, 6]], 2, 4.0),
    "a triangle as a quad": (flat((0, 0), (2, 0), (0, 2)), [[0, 1, 2, 2]], 1, 2.0),
    "polygons of many sizes": (U, [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 5], [1, 2, 3, 4], [5, 4, 1], [0, 1]], 10, 10.0 + 2.0 + 3.5 + 1.0),
    "a quad that is not planar": (TENT, [[0, 1, 2, 3]], 2, 2.0907703),
}


def _of_polygons() -> Iterable[Sample]:
    for name, (points, faces, count, area) in POLYGONS.items():
        low, high = np.min(points, 0).tolist(), np.max(points, 0).tolist()
        for suffix, write in (("obj", obj), ("off", off), ("ply", ply)):
            yield Sample(f"{name}, {suffix}", content(f"a.{suffix}", write(points, faces)), count, tuple(low), tuple(high), area)


# --- PLY --------------------------------------------------------------------------------------------------------------

VERTICES = f"element vertex 8\n{''.join(f'property float {c}' + chr(10) for c in 'xyz')}"
FACES = "element face 6\nproperty list uchar int vertex_indices\n"
ROWS = "\n".join(LINES) + "\n"
QUAD_ROWS = "".join(f"4 {' '.join(map(str, q))}\n" for q in QUADS)
FLOATS = CORNERS.astype("<f4").tobytes()
STRIP = [0, 1, 2, 3, 6, 7, 4, 5, 0, 1, -1, 1, 5, 3, 7, -1, 0, 2, 4, 6, -1]  # two faces in the first, the others beside it


def ascii_ply(*tables: str, body: str, head: str = "ply\nformat ascii 1.0\n") -> Writer:
    """A PLY file in ASCII."""
    return content("a.ply", f"{head}{''.join(tables)}end_header\n{body}")


def binary_ply(*tables: str, body: bytes, order: str = "little") -> Writer:
    """A binary PLY file."""
    return content("a.ply", f"ply\nformat binary_{order}_endian 1.0\n{''.join(tables)}end_header\n".encode() + body)


def _strips(kind: str, *strips: list[int]) -> bytes:
    return b"".join(struct.pack(f"<i{len(s)}{kind}", len(s), *(i % 2**32 if kind == "I" else i for i in s)) for s in strips)


def _of_ply() -> Iterable[Sample]:
    texcoords = "element face 6\nproperty list uchar float texcoord\nproperty list uchar int vertex_indices\nproperty uchar red\n"
    with_texcoords = "".join(f"8 0 0 1 0 1 1 0 1 4 {' '.join(map(str, q))} 255\n" for q in QUADS)
    one_strip = "element tristrips 1\nproperty list int int vertex_indices\n"
    three = "element tristrips 3\nproperty list int {} vertex_indices\n"
    parts = [STRIP[:10], STRIP[11:16], STRIP[16:20]]
    numbers = " ".join(LINES).split()
    quads = [struct.pack("<B4i", 4, *q) for q in QUADS]
    yield the_box("strips in one list", ascii_ply(VERTICES, one_strip, body=f"{ROWS}{len(STRIP)} {' '.join(map(str, STRIP))}\n"))
    yield the_box("strips in one list, binary", binary_ply(VERTICES, one_strip, body=FLOATS + _strips("i", STRIP)))
    yield the_box("strips in several lists", binary_ply(VERTICES, three.format("int"), body=FLOATS + _strips("i", *parts)))
    yield the_box("strips of unsigned numbers", binary_ply(VERTICES, three.format("uint"), body=FLOATS + _strips("I", *parts)))
    yield the_box(
        "strips that are joined by triangles without an area",
        binary_ply(VERTICES, one_strip, body=FLOATS + _strips("i", [*STRIP[:10], 1, 1, 1, 5, 3, 7, -1, 0, 2, 4, 6])),
    )
    yield the_box("strips before the vertices", binary_ply(three.format("int"), VERTICES, body=_strips("i", *parts) + FLOATS))
    some = "element face 2\nproperty list uchar int vertex_index\n"
    two = b"".join(struct.pack("<B4i", 4, *q) for q in QUADS[4:])
    yield the_box("strips and faces", binary_ply(VERTICES, some, one_strip, body=FLOATS + two + _strips("i", STRIP[:10])))
    yield the_box("faces named vertex_index", ascii_ply(VERTICES, FACES.replace("indices", "index"), body=ROWS + QUAD_ROWS))
    yield the_box("a list with another name", ascii_ply(VERTICES, FACES.replace("vertex_indices", "corners"), body=ROWS + QUAD_ROWS))
    yield the_box("faces before the vertices", ascii_ply(FACES, VERTICES, body=QUAD_ROWS + ROWS))
    yield the_box("faces before the vertices, binary", binary_ply(FACES, VERTICES, body=b"".join(quads) + FLOATS))
    yield the_box("two tables of faces", binary_ply(FACES.replace("6", "2"), VERTICES, FACES.replace("6", "4"), body=_split_faces(quads)))
    yield the_box("a list before the corners", ascii_ply(VERTICES, texcoords, body=ROWS + with_texcoords))
    yield the_box(
        "a list before the corners, of several lengths, binary",
        binary_ply(VERTICES, texcoords, body=FLOATS + b"".join(_textured_row(i, q) for i, q in enumerate(QUADS))),
    )
    yield the_box(
        "vertices with lists",
        ascii_ply(
            VERTICES.replace("property float y", "property list uchar int near\nproperty float y"),
            FACES,
            body="".join(f"{line.split()[0]} {i % 3} {'7 ' * (i % 3)}{' '.join(line.split()[1:])}\n" for i, line in enumerate(LINES))
            + QUAD_ROWS,
        ),
    )
    yield the_box(
        "vertices with lists, binary",
        binary_ply(
            VERTICES.replace("property float y", "property list uchar short near\nproperty float y"),
            FACES,
            body=b"".join(struct.pack(f"<fB{i % 3}h2f", p[0], i % 3, *[7] * (i % 3), *p[1:]) for i, p in enumerate(CORNERS))
            + b"".join(quads),
        ),
    )
    yield the_box("names in capitals", ascii_ply(VERTICES.upper(), FACES.title(), body=ROWS + QUAD_ROWS, head="PLY\nFormat ASCII 1.0\n"))
    yield the_box("empty lines in the header", ascii_ply("\n", VERTICES, "  \n\n", FACES, body=ROWS + QUAD_ROWS))
    yield the_box("the format after the tables", content("a.ply", _late_format(b"".join(quads))))
    yield the_box("vertices over lines", ascii_ply(VERTICES, FACES, body="\n".join(numbers) + "\n" + QUAD_ROWS.replace(" ", "\n")))
    yield the_box("all numbers on one line", ascii_ply(VERTICES, FACES, body=" ".join([*numbers, *QUAD_ROWS.split()])))
    yield the_box("two vertices on a line", ascii_ply(VERTICES, FACES, body=_pairs(LINES) + QUAD_ROWS))
    yield the_box(
        "colours behind faces that the header does not list", ascii_ply(VERTICES, FACES, body=ROWS + QUAD_ROWS.replace("\n", " 9 9 9\n"))
    )
    yield the_box("comments in the body", ascii_ply(VERTICES, FACES, body=f"# the corners\n{ROWS}\n# the faces\n{QUAD_ROWS}# end\n"))
    yield the_box("numbers of Fortran", ascii_ply(VERTICES, FACES, body=ROWS.replace("4.75", "0.475D+01") + QUAD_ROWS))
    yield the_box(
        "further tables",
        ascii_ply(
            "element camera 1\nproperty float f\n", VERTICES, "element edge 2\nproperty int a\n", FACES, body=f"1\n{ROWS}0\n1\n{QUAD_ROWS}"
        ),
    )
    yield bad(
        "a header line without the word comment",
        ascii_ply("by a program\n", VERTICES, FACES, body=ROWS + QUAD_ROWS),
        "line 3 of its header, 'by a program', has no keyword such as comment",
    )
    yield bad("no line with the format", ascii_ply(VERTICES, FACES, body=ROWS, head="ply\n"), "its header has no line 'format'")
    yield bad("a list of negative length", ascii_ply(VERTICES, FACES, body=ROWS + "-4 0 1 2 3\n" * 6), "line 18 announces -4 corners")
    yield bad("a list that is too long", ascii_ply(VERTICES, FACES, body=ROWS + "9 0 1 2 3\n" * 6), "line 18 announces 9 corners and has 4")
    yield bad(
        "a list of negative length, binary",
        binary_ply(VERTICES, FACES.replace("uchar", "char"), body=FLOATS + struct.pack("<b4i", -4, 0, 1, 2, 3) * 6),
        "a list of its face rows is broken",
    )
    yield bad("a corner that is no whole number", ascii_ply(VERTICES, FACES, body=ROWS + "4 0 1.5 2 3\n" * 6), "line 18 holds 1.5")
    yield bad("a corner that is no number", ascii_ply(VERTICES, FACES, body=ROWS + "4 0 one 2 3\n" * 6), "line 18 holds 'one'")
    yield bad("a face too few", ascii_ply(VERTICES, FACES, body=ROWS + QUAD_ROWS[:-10]), "claims 6 faces and ends after 5")
    yield bad(
        "faces without corners",
        ascii_ply(VERTICES, "element face 6\nproperty int a\n", body=ROWS + "1\n" * 6),
        "without a list of vertices",
    )
    yield bad("two tables of vertices", ascii_ply(VERTICES, VERTICES, FACES, body=ROWS * 2 + QUAD_ROWS), "two tables of vertices")
    grid = "element range_grid 25\nproperty list uchar int vertex_indices\n"
    points = np.random.default_rng(3).normal(size=(20, 3)).astype("<f4")
    range_scan = b"".join(struct.pack("<Bi", 1, i) if i < 20 else b"\0" for i in range(25))
    low, high = tuple(points.min(0).tolist()), tuple(points.max(0).tolist())
    vertices = VERTICES.replace("8", "20")
    yield Sample("a range scan", binary_ply(vertices, grid, body=points.tobytes() + range_scan), 20, low, high)
    yield Sample("a range scan with its grid first", binary_ply(grid, vertices, body=range_scan + points.tobytes()), 20, low, high)
    yield Sample("points on one line", ascii_ply(vertices, body=" ".join(map(repr, points.reshape(-1).tolist()))), 20, low, high)


def _split_faces(quads: list[bytes]) -> bytes:
    """Faces before and behind the vertices."""
    return b"".join(quads[:2]) + FLOATS + b"".join(quads[2:])


def _textured_row(number: int, quad: list[int]) -> bytes:
    """A row of a face with texture coordinates, in some faces for no corner."""
    coordinates = [0.5] * (8 * (number % 2))
    return struct.pack(f"<B{len(coordinates)}fB4iB", len(coordinates), *coordinates, 4, *quad, 255)


def _late_format(faces: bytes) -> bytes:
    big = CORNERS.astype(">f4").tobytes() + b"".join(
        struct.pack(">B4i", *struct.unpack("<B4i", faces[i : i + 17])) for i in range(0, 102, 17)
    )
    return f"ply\n{VERTICES}{FACES}format binary_big_endian 1.0\nend_header\n".encode() + big


def _pairs(lines: list[str]) -> str:
    return "".join(f"{a} {b}\n" for a, b in zip(lines[::2], lines[1::2]))


# --- OBJ --------------------------------------------------------------------------------------------------------------

PLACES = "".join(f"v {line}\n" for line in LINES)
SIDES = "".join(f"f {' '.join(str(i + 1) for i in q)}\n" for q in QUADS)


def _of_obj() -> Iterable[Sample]:
    def text(data: str) -> Writer:
        return content("a.obj", data)

    def corners(form: str) -> str:
        return "".join(f"f {' '.join(form.format(i + 1) for i in q)}\n" for q in QUADS)

    cut = SIDES.index("f", 1)
    extras = "vt 0 0\nvn 0 0 1\n" * 8
    for name, line in (
        ("a name that ends in a backslash", "usemtl C:\\tex\\\n"),
        ("a comment that ends in a backslash", "# made by C:\\bin\\\n"),
        ("a group that ends in a backslash", "g wall \\\n"),
        ("an object that ends in a backslash", "o C:\\\n"),
        ("a library that ends in a backslash", "mtllib C:\\tex\\\n"),
        ("words without a meaning that end in a backslash", "Exported from C:\\models\\\n"),
        ("a comment behind a point that ends in a backslash", "vt 0 0 # here \\\n"),
    ):
        yield the_box(name, text(line + PLACES + line + SIDES[:cut] + line + SIDES[cut:]))
    for name, faces in (
        ("corners with texture coordinates", corners("{0}/{0}")),
        ("corners with normals", corners("{0}//{0}")),
        ("corners with both", corners("{0}/{0}/{0}")),
        ("corners with empty places", corners("{0}/")),
        ("relative corners", corners("{0}").translate({ord(str(i)): f"{i - 9}" for i in range(1, 9)})),
        ("faces over lines", corners("{0} \\\n")),
        ("faces over lines, with a blank after the backslash", corners("{0} \\ \n")),
        ("the older word for faces", SIDES.replace("f", "fo")),
        ("points and lines between faces", SIDES + "p 1 2\nl 1 2 3\n"),
    ):
        yield the_box(name, text(PLACES + extras + faces + "\n"))
    mixed = SIDES[:cut].replace("f 1 2 4 3", "f -8 2/1 -5//1 3/1/1") + SIDES[cut:]
    yield the_box("relative and absolute corners, with and without normals", text(PLACES + extras + mixed))
    yield the_box("a face without an end of the line", text(PLACES + SIDES.rstrip()))
    yield the_box("a face that continues to nowhere", text(PLACES + SIDES.rstrip() + "\\"))
    yield the_box("points over lines", text(PLACES.replace(" ", " \\\n") + SIDES))
    yield the_box("points with a weight", text(PLACES.replace("\n", " 0.5\n") + SIDES))
    yield the_box("points with colours", text(PLACES.replace("\n", " 1 0 0\n") + SIDES))
    yield the_box("points with colours and an alpha", text(PLACES.replace("\n", " 1 0 0 1\n") + SIDES))
    yield the_box("faces before points", text(SIDES + PLACES))
    yield the_box(
        "free-form surfaces beside faces", text(PLACES + SIDES + "surf 0 1 0 1 1 2 3 4\nend\n"), ("Free-form curves and surfaces",)
    )
    long = " " * 99_990  # longer than what is read at once
    yield the_box(
        "a very long line", text(PLACES + SIDES[:cut].replace("f 1 ", f"f{long}1  ").replace("2 ", f"2/7{'1' * 30} ") + SIDES[cut:])
    )
    yield bad("free-form surfaces alone", text(PLACES * 3 + "surf 0 1 0 1 1 2 3 4\nend\n"), "free-form curves or surfaces")
    yield bad("a curve alone", text(PLACES * 3 + "cstype bezier\ncurv 0 1 1 2 \\\n3 4\nend\n"), "free-form curves or surfaces")
    yield bad("lines alone", text(PLACES * 3 + "l 1 2 3\n"), "holds lines and no faces")
    yield bad("a corner 0", text(PLACES + "f 0 1 2\n"), "line 9 is 'f 0 1 2'")
    yield bad("a corner too far back", text(PLACES + "f -9 1 2\n"), "refers to vertex -1 of 8")
    yield Sample(
        "points with elements p",
        text("".join(f"v {i} {i % 5} {i % 3}\n" for i in range(20)) + "p 1 2 3\np -1\n"),
        20,
        (0, 0, 0),
        (19, 4, 2),
    )


# --- OFF --------------------------------------------------------------------------------------------------------------

ROWS_OFF = "".join(f"4 {' '.join(map(str, q))}\n" for q in QUADS)


def _of_off() -> Iterable[Sample]:
    def text(data: str) -> Writer:
        return content("a.off", data)

    body = ROWS + ROWS_OFF
    numbers = body.split()
    for name, data in (
        ("counts on the line of the word", "OFF 8 6 12\n" + body),
        ("counts glued to the word", "OFF8 6 12\n" + body),
        ("the word in small letters", "off\n8 6 0\n" + body),
        ("no number of edges", "OFF\n8 6\n" + body),
        ("counts glued to the word, without edges", "OFF8 6\n" + body),
        ("counts on lines of their own", "OFF\n8\n6\n0\n" + body),
        ("edges on a line of their own", "OFF\n8 6\n12\n" + body),
        ("comments everywhere", "# by hand\n\nOFF # the word\n# counts\n8 6 0 # 8 corners\n\n" + body.replace("\n", " # a row\n#\n")),
        ("faces over lines", "OFF\n8 6 0\n" + ROWS + ROWS_OFF.replace(" ", "\n")),
        (
            "faces over lines of several lengths",
            "OFF\n8 6 0\n" + ROWS + "".join(_fold_row(row, i) for i, row in enumerate(ROWS_OFF.splitlines())),
        ),
        ("faces over lines, with colours behind", "OFF\n8 6 0\n" + ROWS + ROWS_OFF.replace(" ", "\n ").replace("\n4", " 255 0 0\n4")),
        ("vertices over lines", "OFF\n8 6 0\n" + ROWS.replace(" ", "\n") + ROWS_OFF),
        ("two vertices on a line", "OFF\n8 6 0\n" + _pairs(LINES) + ROWS_OFF),
        ("all on one line", "OFF 8 6 0 " + " ".join(numbers)),
        ("one number on each line", "OFF\n8\n6\n0\n" + "\n".join(numbers)),
        ("two faces on a line", "OFF\n8 6 0\n" + ROWS + _pairs(ROWS_OFF.splitlines())),
        *(
            (f"faces with {len(colour.split())} values of a colour", "OFF\n8 6 0\n" + ROWS + ROWS_OFF.replace("\n", f" {colour}\n"))
            for colour in ("3", "3 0 1", "0.5 0.5 0.5 1")
        ),
        (
            "faces with colours of several lengths",
            "OFF\n8 6 0\n" + ROWS + "".join(f"{row}{' 3' * (i % 5)}\n" for i, row in enumerate(ROWS_OFF.splitlines())),
        ),
        ("vertices with colours that are not announced", "OFF\n8 6 0\n" + ROWS.replace("\n", " 255 0 0\n") + ROWS_OFF),
        ("vertices with colours", "COFF\n8 6 0\n" + ROWS.replace("\n", " 1 0 0 1\n") + ROWS_OFF),
        ("vertices with colours of three values", "COFF\n8 6 0\n" + ROWS.replace("\n", " 255 0 0\n") + ROWS_OFF),
        ("vertices with normals", "NOFF\n8 6 0\n" + ROWS.replace("\n", " 0 0 1\n") + ROWS_OFF),
        ("vertices with texture coordinates", "STOFF\n8 6 0\n" + ROWS.replace("\n", " 0 1\n") + ROWS_OFF),
        ("vertices with everything", "STCNOFF\n8 6 0\n" + ROWS.replace("\n", " 0 0 1 1 0 0 1 0 1\n") + ROWS_OFF),
        ("vertices with colours, over lines", "COFF\n8 6 0\n" + ROWS.replace("\n", "\n1 0 0 1\n") + ROWS_OFF),
        ("vertices with colours of three values, over lines", "COFF\n8 6 0\n" + ROWS.replace("\n", "\n1 0 0\n") + ROWS_OFF),
        ("vertices with normals, over lines", "NOFF 8 6 0\n" + ROWS.replace("\n", "\n0 0 1\n") + ROWS_OFF),
    ):
        yield the_box(f"OFF: {name}", text(data))
    yield bad("OFF: four dimensions", text("4OFF\n8 6 0\n" + ROWS.replace("\n", " 1\n") + ROWS_OFF), "four dimensions (x y z w), '4OFF'")
    yield bad("OFF: any dimensions", text("nOFF\n5\n8 6 0\n" + body), "any number of dimensions, 'nOFF'")
    yield bad("OFF: coloured, four dimensions", text("C4OFF\n8 6 0\n" + body), "four dimensions")
    yield bad("OFF: binary", content("a.off", b"OFF BINARY\n" + struct.pack(">3i", 8, 6, 12) + bytes(200)), "is a binary OFF file")
    yield bad("OFF: coloured, binary", content("a.off", b"COFF  binary\n" + bytes(200)), "is a binary OFF file")
    yield bad("OFF: comments only", text("# OFF\n#\n"), "does not start with the word OFF")
    yield bad("OFF: no word", text("8 6 0\n" + body), "does not start with the word OFF")
    yield bad("OFF: a face too few", text("OFF\n8 7 0\n" + body), "claims 7 faces and ends after 6")
    yield bad("OFF: a vertex too few", text("OFF\n8 6 0\n" + "\n".join(LINES[1:]) + "\n" + ROWS_OFF), "values where a vertex has 3")
    yield bad("OFF: a corner too far", text("OFF\n8 6 0\n" + body.replace("4 1 5 7 3", "4 1 5 8 3")), "refers to vertex 8 of 8")
    yield bad(
        "OFF: a word for a number", text("OFF\n8 6 0\n" + body.replace("4 1 5 7 3", "4 1 5 x 3")), "holds 'x' where a number should be"
    )
    yield bad("OFF: a face of -4 corners", text("OFF\n8 6 0\n" + body.replace("4 1 5 7 3", "-4 1 5 7 3")), "announces -4 corners")


def _fold_row(row: str, number: int) -> str:
    """A row broken after some of its values."""
    words = row.split()
    return " ".join(words[: 1 + number % 4]) + "\n" + " ".join(words[1 + number % 4 :]) + "\n"


# --- glTF -------------------------------------------------------------------------------------------------------------

FLOAT, BYTE, UBYTE, SHORT, USHORT, UINT = 5126, 5120, 5121, 5122, 5123, 5125
HALF = float(np.sqrt(0.5))
QUARTER = [0.0, 0.0, HALF, HALF]  # a turn by 90 degrees around z
TURNED_LOW, TURNED_HIGH = (-4.5, 2.0, 4.75), (-3.5, 4.0, 5.25)  # the box after it


def glb(scene: Scene) -> Writer:
    """A writer of the scene as one file."""
    return lambda folder: scene.glb(folder / "a.glb")


def box_scene(**node: Any) -> tuple[Scene, dict[str, Any]]:
    """A scene of one node with the box, and its primitive."""
    scene = Scene()
    mesh = scene.mesh(CORNERS, TRIANGLES)
    scene.node(mesh=mesh, **node)
    return scene, scene.tree["meshes"][mesh]["primitives"][0]


def shifted_box(by: tuple[float, float, float]) -> dict[str, Any]:
    """Corners of the box after a shift, as fields of a Sample."""
    return {"low": tuple(np.add(LOW, by).tolist()), "high": tuple(np.add(HIGH, by).tolist()), "area": AREA}


def inverse_binds(scene: Scene, *translations: tuple[float, float, float]) -> int:
    """An accessor of matrices that shift."""
    matrices = np.tile(np.eye(4), (len(translations), 1, 1))
    matrices[:, :3, 3] = translations
    return scene.numbers(matrices.transpose(0, 2, 1).reshape(-1, 16).astype("<f4"), FLOAT)


def skinned_scene(joints: list[list[int]], weights: Any, kind: int = FLOAT, second: bool = False) -> Scene:
    """The box in a node whose translation and scale have no effect, with a joint that turns it and one that moves it by 10 in x."""
    scene, primitive = box_scene(translation=[0, 9, 0], scale=[3, 3, 3], skin=0)
    top = scene.node(translation=[0.0, 0.0, 0.0])
    scene.node(top, rotation=QUARTER)
    scene.node(top, translation=[10.0, 0.0, 0.0])
    scene.tree["skins"] = [{"joints": [2, 3]}]
    for k in range(2 if second else 1):
        chosen, shares = np.array(joints)[:, 4 * k : 4 * k + 4], np.array(weights)[:, 4 * k : 4 * k + 4]
        primitive["attributes"][f"JOINTS_{k}"] = scene.numbers(chosen.astype("u1"), UBYTE)
        form = {FLOAT: "<f4", UBYTE: "u1", USHORT: "<u2"}[kind]
        primitive["attributes"][f"WEIGHTS_{k}"] = scene.numbers(
            shares.astype(form), kind, **({} if kind == FLOAT else {"normalized": True})
        )
    return scene


def _skins() -> Iterable[Sample]:
    def turned_sample(name: str, scene: Scene) -> Sample:
        return Sample(f"skin: {name}", glb(scene), 12, TURNED_LOW, TURNED_HIGH, AREA)

    first = [[0, 0, 0, 0]] * 8
    yield turned_sample("one joint", skinned_scene(first, [[1, 0, 0, 0]] * 8))
    yield turned_sample("weights that are not normalised", skinned_scene(first, [[0.5, 0, 0, 0]] * 8))
    yield turned_sample("no weights", skinned_scene(first, [[0, 0, 0, 0]] * 8))
    yield turned_sample("weights as bytes", skinned_scene(first, [[128, 127, 0, 0]] * 8, UBYTE))
    yield turned_sample("joints without weight that do not exist", skinned_scene([[0, 99, 0, 0]] * 8, [[1, 0, 0, 0]] * 8))
    half = skinned_scene([[0, 1, 0, 0]] * 8, [[30000, 30000, 0, 0]] * 8, USHORT)
    skewed = np.array([[0.5, -0.5, 0], [0.5, 0.5, 0], [0, 0, 1]])
    places = CORNERS @ skewed.T + [5, 0, 0]
    middle = {"low": tuple(places.min(0)), "high": tuple(places.max(0))}
    root = HALF * 2.0
    area = 2 * (root * HALF + 0.5 * root + 0.5 * HALF)
    yield Sample("skin: two joints", glb(half), 12, **middle, area=area)
    two_sets = skinned_scene([[0, 0, 0, 0, 1, 0, 0, 0]] * 8, [[0.5, 0, 0, 0, 0.5, 0, 0, 0]] * 8, second=True)
    yield Sample("skin: two sets of weights", glb(two_sets), 12, **middle, area=area)
    bound = skinned_scene(first, [[1, 0, 0, 0]] * 8)
    bound.tree["skins"][0]["inverseBindMatrices"] = inverse_binds(bound, (-3.0, -4.0, -5.0), (0.0, 0.0, 0.0))
    yield Sample("skin: inverse bind matrices", glb(bound), 12, (-0.5, -1.0, -0.25), (0.5, 1.0, 0.25), AREA)
    outside = skinned_scene(first, [[1, 0, 0, 0]] * 8)
    outside.tree["scenes"][0]["nodes"] = [0]  # the joints are not in the scene
    yield turned_sample("joints outside of the scene", outside)
    below = skinned_scene(first, [[1, 0, 0, 0]] * 8)
    below.tree["nodes"].append({"rotation": QUARTER, "children": [0]})
    below.tree["scenes"][0]["nodes"] = [4, 1]
    yield turned_sample("a mesh below a node that turns", below)
    mirrored = skinned_scene(first, [[1, 0, 0, 0]] * 8)
    mirrored.tree["nodes"][2] = {"scale": [-1, 1, 1]}
    yield Sample("skin: a joint that mirrors", glb(mirrored), 12, (-4.0, 3.5, 4.75), (-2.0, 4.5, 5.25), AREA)
    bare = skinned_scene(first, [[1, 0, 0, 0]] * 8)
    del bare.tree["meshes"][0]["primitives"][0]["attributes"]["JOINTS_0"]
    yield Sample("skin: without joints", glb(bare), 12, (6.0, 19.5, 14.25), (12.0, 22.5, 15.75), 63.0)
    wrong = skinned_scene([[7, 0, 0, 0]] * 8, [[1, 0, 0, 0]] * 8)
    yield bad("skin: a joint that does not exist", glb(wrong), "its scene cannot be followed")
    morphed = skinned_scene(first, [[1, 0, 0, 0]] * 8)
    _target(morphed, 0, np.full((8, 3), [0.0, -1.0, 0.0]))
    morphed.tree["meshes"][0]["weights"] = [1.0]
    yield Sample("skin: after a morph target", glb(morphed), 12, (-3.5, 2.0, 4.75), (-2.5, 4.0, 5.25), AREA)


def _target(scene: Scene, mesh: int, shift: np.ndarray, kind: int = FLOAT, **more: Any) -> None:
    """Adds a morph target to a mesh's primitive."""
    form = {FLOAT: "<f4", BYTE: "i1", SHORT: "<i2"}[kind]
    primitive = scene.tree["meshes"][mesh]["primitives"][0]
    primitive.setdefault("targets", []).append({"POSITION": scene.numbers(shift.astype(form), kind, **more)})


def _morphs() -> Iterable[Sample]:
    up, aside = np.full((8, 3), [0.0, 2.0, 0.0]), np.full((8, 3), [4.0, 0.0, 0.0])
    for name, mesh_weights, node_weights, by in (
        ("no weights", None, None, (0, 0, 0)),
        ("weights of the mesh", [0.5, 1.0], None, (4, 1, 0)),
        ("weights of the node", None, [1.0, -0.5], (-2, 2, 0)),
        ("weights of the node before those of the mesh", [1.0, 1.0], [0.0, 0.5], (2, 0, 0)),
        ("fewer weights than targets", [1.0], None, (0, 2, 0)),
    ):
        scene, _ = box_scene(**({"weights": node_weights} if node_weights else {}))
        _target(scene, 0, up)
        _target(scene, 0, aside)
        if mesh_weights:
            scene.tree["meshes"][0]["weights"] = mesh_weights
        yield Sample(f"morph targets: {name}", glb(scene), 12, **shifted_box(by))
    for name, shift, kind, more, by in (
        ("normalised bytes", np.full((8, 3), [0, 127, -127]), BYTE, {"normalized": True}, (0, 1, -1)),
        ("shorts", np.full((8, 3), [3, 0, 0]), SHORT, {}, (3, 0, 0)),
    ):
        scene, _ = box_scene()
        _target(scene, 0, shift, kind, **more)
        scene.tree["meshes"][0]["weights"] = [1.0]
        yield Sample(f"morph targets: {name}", glb(scene), 12, **shifted_box(by))
    scene, primitive = box_scene()
    scene.tree["meshes"][0]["weights"] = [1.0]
    places, values = scene.numbers(np.array([[3], [7]], "<u2"), USHORT), scene.numbers(np.array([[0, 5, 0]] * 2, "<f4"), FLOAT)
    views = [scene.tree["accessors"][i]["bufferView"] for i in (places, values)]
    sparse = {"count": 2, "indices": {"bufferView": views[0], "componentType": USHORT}, "values": {"bufferView": views[1]}}
    scene.tree["accessors"].append({"componentType": FLOAT, "count": 8, "type": "VEC3", "sparse": sparse})
    primitive["targets"] = [{"POSITION": len(scene.tree["accessors"]) - 1}, {}]
    raised = CORNERS + np.where(np.isin(np.arange(8), (3, 7)), 5, 0)[:, None] * [0, 1, 0]
    yield Sample("morph targets: sparse", glb(scene), 12, LOW, (4.0, 9.5, 5.25), areas(raised, TRIANGLES).sum())
    scene, primitive = box_scene()
    primitive["targets"] = [{"NORMAL": primitive["attributes"]["POSITION"]}]
    scene.tree["meshes"][0]["weights"] = [1.0]
    yield the_box("morph targets: of normals only", glb(scene))
    scene, _ = box_scene()
    _target(scene, 0, up[:5])
    scene.tree["meshes"][0]["weights"] = [1.0]
    yield bad("morph targets: with fewer vertices", glb(scene), "its scene cannot be followed")


def instanced_scene(node: dict[str, Any] | None = None, **columns: Any) -> Scene:
    """A box at several places by EXT_mesh_gpu_instancing."""
    scene, _ = box_scene(**(node or {}))
    attributes = {name.upper(): scene.numbers(*column[:2], **(column[2] if len(column) > 2 else {})) for name, column in columns.items()}
    scene.tree["nodes"][0]["extensions"] = {"EXT_mesh_gpu_instancing": {"attributes": attributes}}
    scene.tree["extensionsUsed"] = scene.tree["extensionsRequired"] = ["EXT_mesh_gpu_instancing"]
    return scene


def _instances() -> Iterable[Sample]:
    three = np.array([[0, 0, 0], [10, 0, 0], [0, -20, 0]], "<f4")
    turns = np.array([[0, 0, 0, 1], QUARTER], "<f4")
    sizes = np.array([[1, 1, 1], [2, 2, 2]], "<f4")
    yield Sample(
        "instances: three places", glb(instanced_scene(translation=(three, FLOAT))), 36, (2, -16.5, 4.75), (14, 4.5, 5.25), 3 * AREA
    )
    optional = instanced_scene(translation=(three, FLOAT))
    del optional.tree["extensionsRequired"]
    yield Sample("instances: not required", glb(optional), 36, (2, -16.5, 4.75), (14, 4.5, 5.25), 3 * AREA)
    below = instanced_scene({"scale": [2, 2, 2]}, translation=(three, FLOAT))
    yield Sample("instances: of a node that is stretched", glb(below), 36, (4, -33, 9.5), (28, 9, 10.5), 12 * AREA)
    yield Sample("instances: turned", glb(instanced_scene(rotation=(turns, FLOAT))), 24, (-4.5, 2, 4.75), (4, 4.5, 5.25), 2 * AREA)
    packed = ((turns * 32767).round().astype("<i2"), SHORT, {"normalized": True})
    yield Sample(
        "instances: turned by normalised numbers", glb(instanced_scene(rotation=packed)), 24, (-4.5, 2, 4.75), (4, 4.5, 5.25), 2 * AREA
    )
    yield Sample("instances: of two sizes", glb(instanced_scene(scale=(sizes, FLOAT))), 24, (2, 3.5, 4.75), (8, 9, 10.5), 5 * AREA)
    every = instanced_scene(translation=(three[:2], FLOAT), rotation=(turns, FLOAT), scale=(sizes, FLOAT))
    yield Sample("instances: everything", glb(every), 24, (1, 3.5, 4.75), (4, 8, 10.5), 5 * AREA)
    uneven = instanced_scene(translation=(three, FLOAT), scale=(sizes, FLOAT))
    yield bad("instances: of other numbers", glb(uneven), "instances have as many translations as rotations")


def _extensions() -> Iterable[Sample]:
    for name in (
        "KHR_materials_unlit", "KHR_materials_variants", "KHR_texture_transform", "KHR_texture_basisu", "EXT_texture_webp",
        "EXT_texture_avif", "MSFT_texture_dds", "KHR_lights_punctual", "EXT_lights_image_based", "KHR_xmp", "KHR_xmp_json_ld",
        "KHR_animation_pointer", "KHR_mesh_quantization", "KHR_techniques_webgl", "ADOBE_materials_thin_transparency",
        "EXT_structural_metadata", "VRMC_vrm",
    ):  # fmt: skip
        scene, _ = box_scene()
        scene.tree["extensionsRequired"] = [name]
        yield the_box(f"requires {name}", glb(scene))
    for name in (
        "KHR_gaussian_splatting",
        "CESIUM_RTC",
        "ACME_subdivision",
        "KHR_mesh_primitive_restart",
        "EXT_bmesh_encoding",
        "KHR_materialsque",
    ):
        scene, _ = box_scene()
        scene.tree["extensionsRequired"] = ["KHR_materials_unlit", name]
        yield bad(f"requires {name}", glb(scene), f"requires the extension {name}, which cannot be read")
    for name in ("KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_meshopt_compression"):
        scene, _ = box_scene()
        scene.tree["extensionsRequired"] = [name]
        yield bad(f"requires {name}", glb(scene), f"is compressed ({name})")
    scene, _ = box_scene()
    scene.tree["bufferViews"][0]["extensions"] = {"EXT_meshopt_compression": {"buffer": 1}}
    yield the_box("compressed, with the same without compression", glb(scene))
    scene, _ = box_scene()
    hidden = scene.node(mesh=0, translation=[50, 0, 0], extensions={"KHR_node_visibility": {"visible": False}})
    scene.node(hidden, mesh=0, translation=[50, 0, 0])
    yield the_box("a hidden node", glb(scene))


def _scenes() -> Iterable[Sample]:
    def two() -> Scene:
        scene, _ = box_scene()
        scene.tree["nodes"].append({"mesh": 0, "translation": [10, 0, 0]})
        scene.tree["scenes"].append({"nodes": [1]})
        return scene

    yield the_box("the first of two scenes", glb(two()))
    second = two()
    second.tree["scene"] = 1
    yield Sample("the second of two scenes", glb(second), 12, **shifted_box((10, 0, 0)))
    neither = two()
    del neither.tree["scene"]
    yield the_box("no default scene", glb(neither))
    none = two()
    del none.tree["scene"], none.tree["scenes"]
    yield Sample("no scenes", glb(none), 24, LOW, (14.0, 4.5, 5.25), 2 * AREA)
    meshes = two()
    del meshes.tree["scene"], meshes.tree["scenes"], meshes.tree["nodes"]
    yield the_box("no nodes", glb(meshes))
    circle, _ = box_scene()
    circle.tree["nodes"][0]["children"] = [0]
    yield the_box("a node below itself", glb(circle))
    longer, _ = box_scene(translation=[10, 0, 0])
    longer.tree["nodes"] += [{"children": [0], "translation": [0, 10, 0]}]
    longer.tree["nodes"][0]["children"] = [1]
    yield Sample("two nodes below each other", glb(longer), 12, **shifted_box((10, 0, 0)))
    both, _ = box_scene(matrix=[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 7, 0, 0, 1])
    yield Sample("a matrix", glb(both), 12, **shifted_box((7, 0, 0)))
    lines, primitive = box_scene()
    lines.tree["meshes"][0]["primitives"] += [{**primitive, "mode": 1}, {"attributes": {"NORMAL": primitive["attributes"]["POSITION"]}}]
    yield the_box("primitives of lines, and without positions", glb(lines))
    only, primitive = box_scene()
    primitive["mode"] = 3
    yield bad("lines only", glb(only), "holds neither faces nor points")
    flat_list, primitive = box_scene()
    primitive["attributes"]["POSITION"] = flat_list.numbers(CORNERS[TRIANGLES.reshape(-1)].astype("<f4"), FLOAT)
    del primitive["indices"]
    yield the_box("no indices", glb(flat_list))
    fan, _ = box_scene()
    fan.tree["meshes"][0]["primitives"] = [_piece(fan, quad, 6) for quad in QUADS]
    yield the_box("fans", glb(fan))
    strip, _ = box_scene()
    strip.tree["meshes"][0]["primitives"] = [
        _piece(strip, [i for i in piece if i >= 0], 5) for piece in (STRIP[:10], STRIP[11:15], STRIP[16:20])
    ]
    yield the_box("strips", glb(strip))
    missing, _ = box_scene()
    yield bad("a buffer that is missing", lambda folder: missing.gltf(folder / "a.gltf", "nowhere.bin"), "needs the file nowhere.bin")
    needless, _ = box_scene()
    needless.tree["images"] = [{"bufferView": 9}]
    yield the_box("a buffer of pictures that is missing", lambda folder: _with_buffer(needless, folder / "a.gltf"))
    plain, _ = box_scene()
    yield the_box("data in percents", lambda folder: plain.gltf(folder / "a.gltf", "data:," + "".join(f"%{b:02x}" for b in plain.data)))
    quoted, _ = box_scene()
    yield the_box("data in base64 with percents", lambda folder: quoted.gltf(folder / "a.gltf", _data_uri(quoted.data)))
    for version, tree in (
        ("1.0", {"asset": {"version": "1.0"}, "meshes": {}}),
        ("1.0, by its meshes,", {"meshes": {"m": {"primitives": []}}, "asset": {"generator": "x"}}),
        ("3.0", {"asset": {"version": "3.0"}}),
    ):
        yield bad(
            f"glTF of version {version}", content("a.gltf", json.dumps(tree)), f"is a glTF of version {version[:3]}, and only 2 can be read"
        )


def _piece(scene: Scene, indices: list[int], mode: int) -> dict[str, Any]:
    """A primitive of the box's corners."""
    return {"attributes": {"POSITION": 0}, "indices": scene.numbers(np.array(indices, "<u2"), USHORT), "mode": mode}


def _with_buffer(scene: Scene, path: Path) -> Path:
    """A scene with one more buffer, which is in no file."""
    scene.gltf(path)
    tree = json.loads(path.read_text())
    tree["buffers"].append({"byteLength": 4, "uri": "nowhere.bin"})
    tree["bufferViews"].append({"buffer": 1, "byteLength": 4})
    path.write_text(json.dumps(tree))
    return path


def _data_uri(data: bytes) -> str:
    return "data:application/gltf-buffer;base64," + base64.b64encode(data).decode().replace("+", "%2B").replace("=", "%3D")


SAMPLES: tuple[Sample, ...] = (
    *_of_polygons(), *_of_ply(), *_of_obj(), *_of_off(), *_skins(), *_morphs(), *_instances(), *_extensions(), *_scenes(),
)  # fmt: skip

"""Realistic clouds: text tables in every dialect, arrays, STL files, and files that are no clouds.

Every good one has the same 600 points of an ellipsoid with different sides, so that swapped axes show.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from tests.engine.mesh.shapes import box, sphere_points
from tests.faults.corpus import Sample

COUNT = 600
BALL = sphere_points(COUNT)
PLACES = np.round(BALL[:, :3] * [1.0, 2.0, 3.0] + [0.5, 0.25, 0.125], 4)
NORMALS = BALL[:, 3:]
COLOURS = np.random.default_rng(5).integers(0, 256, (COUNT, 3))
MAP = np.array([512_345.678, 5_412_345.678, 245.3])  # metres in a zone of UTM
ROWS = list(zip(PLACES.tolist(), NORMALS.tolist(), COLOURS.tolist(), strict=True))
GERMAN, BLANKS = {44: ".", 46: ","}, {44: " ", 46: ","}  # the comma and the point in another country
Row = tuple[list[float], list[float], list[int]]
CORNERS, TRIANGLES = box((2.0, 1.0, 0.5), (3.0, 4.0, 5.0))


def words(*values: object, comma: bool = False) -> list[str]:
    """Values as text, with decimal points or commas."""
    texts = [f"{value:.6f}" if isinstance(value, float) else str(value) for value in values]
    return [text.replace(".", ",") for text in texts] if comma else texts


def xyz(row: Row) -> list[str]:
    return words(*row[0])


def commas(row: Row) -> list[str]:
    return words(*row[0], comma=True)


def lines(separator: str, values: Callable[[Row], list[str]] = xyz, head: str = "", end: str = "\n") -> str:
    """A table: a line for each point."""
    return head.replace("\n", end) + "".join(separator.join(values(row)) + end for row in ROWS)


def holds(content: str | bytes) -> Callable[[Path], None]:
    """The writer of a file with this content."""
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode()) and None


def corners(points: np.ndarray) -> dict[str, tuple[float, float, float]]:
    """The box of some points."""
    return {"low": tuple(points.min(0).tolist()), "high": tuple(points.max(0).tolist())}


def good(name: str, content: str | bytes, *notes: str, points: np.ndarray = PLACES) -> Sample:
    """A cloud that is read."""
    return Sample(name, _into(name, holds(content)), len(points), **corners(points), notes=notes)


def bad(name: str, content: str | bytes, sentence: str) -> Sample:
    """A file that is refused."""
    return Sample(name, _into(name, holds(content)), sentence=sentence)


def _into(name: str, write: Callable[[Path], None]) -> Callable[[Path], Path]:
    """The writer of a file that is named by the last word of a sample's name."""

    def do(folder: Path) -> Path:
        write(path := folder / name.split()[-1])
        return path

    return do


def _numbered_lines(values: Callable[[int, Row], list[str]], separator: str, head: str = "") -> str:
    return head + "".join(separator.join(values(at, row)) + "\n" for at, row in enumerate(ROWS, 1))


# --- decimal commas ---------------------------------------------------------------------------------------------------

DECIMALS = (
    *(
        good(f"decimal commas between {what} {suffix}", lines(mark, commas))
        for what, mark, suffix in (
            ("tabs", "\t", "a.txt"), ("blanks", " ", "b.xyz"), ("semicolons", ";", "c.csv"), ("semicolons and blanks", " ; ", "d.csv"),
            ("bars", "|", "e.txt"), ("commas and blanks", ", ", "f.txt"), ("many blanks", "    ", "g.asc"),
        )
    ),
    good("decimal commas and names h.csv", lines(";", lambda r: words(*r[0][::-1], comma=True), "z;y;x\n")),
    good("decimal commas in quotation marks i.csv", lines(",", lambda r: [f'"{word}"' for word in commas(r)], '"x","y","z"\n')),
    good("whole numbers among decimal commas j.txt", "1 2 3\n" + lines(" ", commas), points=np.concatenate([PLACES, [[1, 2, 3]]])),
    good("decimal points between commas and blanks k.csv", lines(", ")),
    good("decimal points between commas and tabs l.txt", lines(",\t")),
    good("a separator at the end of a line m.csv", lines(",", lambda r: [*xyz(r), ""])),
    good("commas among colours and blanks n.txt", "".join(f"{','.join(xyz(r))} {','.join(map(str, r[2]))}\n" for r in ROWS), "as colours"),
    bad("one comma for everything o.csv", lines(",", commas), "commas that may separate values or mark decimals"),
    bad("thousands in the English way p.txt", lines("\t", lambda r: [f"{1e6 * v:,.3f}" for v in r[0]]), "commas that may"),
    bad("thousands in the German way q.txt", lines(" ", lambda r: [f"{1e6 * v:,.3f}".translate(GERMAN) for v in r[0]]), "commas"),
    bad("thousands with blanks r.csv", lines(";", lambda r: [f"{1e6 * v:,.3f}".translate(BLANKS) for v in r[0]]), "commas that may"),
    bad("thousands as whole numbers s.txt", lines("\t", lambda r: [f"{int(1e4 * v):,}" for v in r[0]]), "commas that may"),
)  # fmt: skip

# --- names of columns -------------------------------------------------------------------------------------------------

NAMED = (
    good("colours first a.csv", lines(",", lambda r: words(*r[2], *r[0]), "r,g,b,x,y,z\n"), "r, g, b"),
    good("a number, then values b.csv", _numbered_lines(lambda n, r: words(n, *r[0], 0.5, 3), ",", "id,x,y,z,i,label\n"), "id, i, label"),
    good("words first c.csv", _numbered_lines(lambda n, r: [f"P{n}", *xyz(r)], ",", "name,x,y,z\n"), "name"),
    good("words that hold blanks d.csv", _numbered_lines(lambda n, r: [f"7 of {n}", *xyz(r)], ",", "name,x,y,z\n"), "name"),
    good("times e.csv", _numbered_lines(lambda n, r: [f"2024-01-01 12:{n % 60:02}", *xyz(r)], ";", "time;x;y;z\n"), "time"),
    good("words in the last column f.txt", lines(" ", lambda r: [*xyz(r), "traffic light"]), "Ignored column"),
    good("empty cells g.csv", lines(",", lambda r: ["", *xyz(r)[:1], "", *xyz(r)[1:]], "note,x,,y,z\n"), "note"),
    good("an index without a name h.csv", _numbered_lines(lambda n, r: [str(n), *xyz(r)], ",", ",x,y,z\n")),
    good("rows with names of R i.txt", _numbered_lines(lambda n, r: [f'"{n}"', *xyz(r)], " ", '"x" "y" "z"\n'), "Ignored column"),
    good("capitals and quotation marks j.csv", lines(",", lambda r: words(*r[0][::-1]), '"Z","Y","X"\n')),
    good("units in brackets k.csv", lines(",", lambda r: words(7, *r[0]), "t [s],x [m],y [m],z [m]\n"), "t [s]"),
    good("units between blanks l.txt", lines(" ", lambda r: words(*r[0][::-1]), "z [m] y [m] x [m]\n")),
    good("ParaView m.csv", lines(",", lambda r: words(0.5, *r[0]), '"T","Points:0","Points:1","Points:2"\n'), "T"),
    good("a prefix n.csv", lines(",", lambda r: words(*r[2], *r[0]), "R,G,B,Px,Py,Pz\n"), "R, G, B"),
    good("a suffix o.csv", lines("\t", lambda r: words(1, *r[0]), "scan\tX_utm\tY_utm\tZ\n"), "scan"),
    good("surveyors p.csv", lines(",", lambda r: words(r[0][1], r[0][0], r[0][2]), "Northing,Easting,Elevation\n")),
    good("CloudCompare q.asc", lines(" ", lambda r: words(*r[0], *r[2]), "//X Y Z R G B\n"), "R, G, B"),
    good("a comment with names r.xyz", lines(" ", lambda r: words(*r[2], *r[0]), "# r g b x y z\n"), "r, g, b"),
    good("names in front of other separators s.txt", lines(" ", lambda r: words(*r[0], *r[2]), "x, y, z, red, green, blue\n"), "red"),
    good("places and velocities t.csv", lines(",", lambda r: words(*r[1], *r[0]), "vx,vy,vz,x,y,z\n"), "vx"),
    good("normals first u.csv", lines(",", lambda r: words(*r[1], *r[0]), "nx,ny,nz,x,y,z\n")),
    good("names of normals of PCL v.csv", lines(",", lambda r: words(*r[0], *r[1]), "x,y,z,normal_x,normal_y,normal_z\n")),
    good("a separator that is named w.csv", lines(";", commas, "sep=;\nx;y;z\n")),
    good("names and units x.csv", lines(",", lambda r: words(*r[0][::-1]), "z,y,x\nm,m,m\n")),
    good("missing values y.csv", "x,y,z,i\n,,,4\n1.5,,2,3\n" + lines(",", lambda r: words(*r[0], 5)), "NaN"),
    good("names that say nothing z.csv", lines(",", xyz, "c1,c2,c3\n"), "do not say which"),
    good("numbers of the columns 1.csv", lines(",", xyz, "0,1,2\n")),
    good("numbers of rows and columns 2.csv", _numbered_lines(lambda n, r: words(n - 1, *r[0]), ",", ",0,1,2\n")),
    good("LidarView 3.csv", lines(",", lambda r: words(5, *r[0]), "laser_id,Points_m_XYZ:0,Points_m_XYZ:1,Points_m_XYZ:2\n"), "laser_id"),
    good("words with blanks between tabs 4.txt", lines("\t", lambda r: ["a b", *commas(r)], "label\tx\ty\tz\n"), "label"),
    good("words with commas between semicolons 5.csv", lines(";", lambda r: [*commas(r), "a,b"], "x;y;z;label\n"), "label"),
    good("names after a word 6.txt", lines(" ", lambda r: words(*r[0][::-1]), "# Fields: z, y, x\n")),
    good("names after a semicolon 7.txt", lines(" ", lambda r: words(*r[0][::-1]), "; z y x\n")),
    bad("latitudes A.csv", lines(",", xyz, "lat,lon,alt\n"), "does not say which are x, y and z"),
    bad("velocities only B.csv", lines(",", xyz, "vx,vy,vz\n"), "does not say which are x, y and z"),
    bad("colours and normals only C.csv", lines(",", lambda r: words(*r[2], *r[1]), "r,g,b,nx,ny,nz\n"), "does not say which"),
    bad("no z D.csv", lines(",", xyz, "x,y,intensity\n"), "does not say which"),
    bad("words for z E.csv", lines(",", lambda r: [*xyz(r)[:2], "high", "1", "2"], "x,y,z,a,b\n"), "holds words"),
    bad("more names than values F.csv", lines(",", xyz, "r,x,y,z\n"), "names 4 columns and has 3 values"),
)  # fmt: skip

# --- columns without names --------------------------------------------------------------------------------------------

UNNAMED = (
    good("an intensity a.xyz", lines(" ", lambda r: words(*r[0], r[2][0])), "column of the table: 4"),
    good("five columns b.txt", lines("\t", lambda r: words(*r[0], 0.5, 3)), "4, 5"),
    good("an intensity and a colour c.pts", lines(" ", lambda r: words(*r[0], -7, *r[2]), f"{COUNT}\n"), "4, 5, 6, 7"),
    good("two scans d.pts", f"{COUNT}\n{lines(' ')}2\n1 1 1\n2 2 2\n", points=np.concatenate([PLACES, [[1, 1, 1], [2, 2, 2]]])),
    good("a scan that ends early e.pts", lines(" ", xyz, "9000\n"), "announces 9,000 points and holds 600"),
    good("normals and a curvature f.txt", lines(" ", lambda r: words(*r[0], *r[1], 0.01)), "column of the table: 7"),
    good("intensity, colour and normals g.txt", lines(" ", lambda r: words(*r[0], 0.5, *r[2], *r[1])), "4, 5, 6, 7"),
    good("a number in front h.xyz", _numbered_lines(lambda n, r: words(n, *r[0]), " "), "column of the table: 1"),
    good("a name in front i.xyz", _numbered_lines(lambda n, r: [f"P{n}", *xyz(r)], " "), "column of the table: 1"),
    good("numbers of points and of columns x.txt", lines(" ", xyz, f"{COUNT} 3\n")),
    good("a table j.asc", lines(" ")),
    good("Open3D k.xyzn", lines(" ", lambda r: words(*r[0], *r[1]))),
    good("Open3D l.xyzrgb", lines(" ", lambda r: words(*r[0], *(v / 255 for v in r[2]))), "as colours"),
    good("a title with numbers m.txt", lines(" ", xyz, "Scan 7 of 2024\n")),
    good("exponents of Fortran n.dat.txt", lines("  ", lambda r: [f"{v:.10E}".replace("E", "D") for v in r[0]])),
    good("NaN of Microsoft o.txt", "1 2 1.#QNAN\n-1.#IND 0 0\n-nan(ind) 0 0\n" + lines(" "), "3 points with NaN"),
    good("whole numbers p.txt", lines(" ", lambda r: [str(round(1e4 * v)) for v in r[0]]), points=1e4 * PLACES),
    bad("atoms q.xyz", f"{COUNT}\nethanol\n" + "".join("C " + " ".join(xyz(r)) + "\n" for r in ROWS), "atoms of a molecule"),
    bad("atoms by number w.xyz", f"{COUNT}\n\n" + "".join("6 " + " ".join(xyz(r)) + "\n" for r in ROWS), "atoms of a molecule"),
    bad("a grid of heights r.asc", "ncols 20\nnrows 30\nxllcorner 0\nyllcorner 0\ncellsize 1\n" + "1 2 3 4\n" * 30, "ESRI ASCII grid"),
    bad("landmarks s.pts", "version: 1\nn_points: 68\n{\n" + "1.5 2.5\n" * 68 + "}\n", "landmarks of a picture"),
    bad("two columns t.csv", "1,2\n" * 30, "has 2 values in line 1"),
    bad("twelve columns u.csv", "1,2,3,4,5,6,7,8,9,10,11,12\n" * 30, "has 12 values in line 1"),
)  # fmt: skip

# --- encodings and line ends ------------------------------------------------------------------------------------------


def _ply(end: str = "\n") -> str:
    head = f"ply\nformat ascii 1.0\nelement vertex {COUNT}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
    return lines(" ", xyz, head, end)


def _obj(end: str = "\n") -> str:
    return lines(" ", lambda r: ["v", *xyz(r)], "# by hand\n", end)


def _pcd(end: str = "\n") -> str:
    head = f"VERSION .7\nFIELDS x y z\nSIZE 4 4 4\nTYPE F F F\nCOUNT 1 1 1\nWIDTH {COUNT}\nHEIGHT 1\nPOINTS {COUNT}\nDATA ascii\n"
    return lines(" ", xyz, head, end)


TEXTS = {"xyz": lambda end="\n": lines(" ", xyz, "", end), "ply": _ply, "obj": _obj, "pcd": _pcd}
ENCODED = (
    *(
        good(f"{what} line ends {what.replace(' ', '-')}.{suffix}", make(end))
        for suffix, make in TEXTS.items()
        for what, end in (("Mac", "\r"), ("Windows", "\r\n"), ("doubled", "\r\r\n"))
    ),
    *(
        good(f"{name} {name}.{suffix}", (mark + make()).encode(name))
        for suffix, make in TEXTS.items()
        for name, mark in (("utf-8", "\ufeff"), ("utf-16", ""), ("utf-16-le", ""), ("utf-16-be", "\ufeff"), ("utf-32", ""))
    ),
    good("the end of a file in DOS dos.xyz", lines(" ", xyz, "", "\r\n") + "\x1a"),
    good("names in the encoding of Windows ansi.txt", lines("\t", commas, "Rechtswert\tHochwert\tHöhe\n").encode("cp1252")),
    good("mixed line ends mixed.xyz", "".join(" ".join(xyz(r)) + end for r, end in zip(ROWS, ("\n", "\r", "\r\n") * 200, strict=True))),
    good(
        "a binary PLY with a header of a Mac mac-binary.ply",
        _ply().split("end_header")[0].replace("ascii", "binary_little_endian").replace("\n", "\r").encode()
        + b"end_header\r" + PLACES.astype("<f4").tobytes(),
    ),
    good(
        "a binary PCD with Windows line ends windows-binary.pcd",
        _pcd("\r\n").split("DATA")[0].encode() + b"DATA binary\r\n" + PLACES.astype("<f4").tobytes(),
    ),
)  # fmt: skip

# --- what is no mesh and no cloud -------------------------------------------------------------------------------------


def _zip_file(name: str) -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr(name, lines(" "))
    return buffer.getvalue()


def _tar() -> bytes:
    with tarfile.open(fileobj=(buffer := io.BytesIO()), mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.xyz"))
    return buffer.getvalue()


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PAGE = "\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body></body></html>\n"
GLB1 = b"glTF" + struct.pack("<IIII", 1, 40, 20, 0) + b'{"asset":{}}        '
STL = "solid a\n" + "facet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 1 0 0\nvertex 0 1 0\nendloop\nendfacet\n" + "endsolid a\n"
FOREIGN = (
    *(bad(f"a pointer of LFS {name}", LFS, "pointer of Git LFS") for name in ("a.ply", "a.obj", "a.glb", "a.xyz", "a.npz", "a.stl")),
    *(bad(f"a web page {name}", PAGE, "web page; download the file itself") for name in ("p.glb", "p.ply", "p.xyz", "p.npy", "p.off")),
    bad("a web page in UTF-16 w.obj", PAGE.encode("utf-16"), "web page"),
    bad("an error of a store e.ply", "<?xml version='1.0'?>\n<Error><Code>NoSuchKey</Code></Error>", "error message of"),
    bad("an error in JSON e.stl", '{"message": "Not Found"}', "is a JSON text"),
    bad("a pointer of git-annex x.ply", "../.git/annex/objects/Xk/2J/SHA256E-s12--4d.ply/SHA256E-s12--4d.ply", "git-annex"),
    bad("gzip g.ply", gzip.compress(_ply().encode(), mtime=0), "compressed by gzip"),
    bad("gzip g.npz", gzip.compress(b"1", mtime=0), "compressed by gzip"),
    bad("zip z.xyz", _zip_file("a.xyz"), "is a ZIP archive"),
    bad("zip of arrays z.npy", _zip_file("points.npy"), "rename it to .npz"),
    bad("7z z.obj", b"7z\xbc\xaf\x27\x1c\0\4" + bytes(40), "compressed by 7z"),
    bad("bzip2 b.csv", b"BZh91AY&SY" + bytes(40), "compressed by bzip2"),
    bad("xz x.pcd", b"\xfd7zXZ\0\0\4" + bytes(40), "compressed by xz"),
    bad("zstd z.txt", b"\x28\xb5\x2f\xfd" + bytes(40), "compressed by zstd"),
    bad("tar t.off", _tar(), "tar archive"),
    bad("RTF r.txt", "{\\rtf1 1 2 3}", "RTF document"),
    bad("PDF d.csv", "%PDF-1.7\n", "PDF document"),
    bad("PNG i.ply", b"\x89PNG\r\n\x1a\n" + bytes(30), "PNG picture"),
    bad("JPEG i.obj", b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(30), "JPEG picture"),
    bad("HEIC i.glb", b"\0\0\0\x18ftypheic" + bytes(30), "HEIC picture"),
    bad("WebP i.xyz", b"RIFF\x24\0\0\0WEBPVP8 " + bytes(30), "WebP picture"),
    bad("LAS l.ply", b"LASF" + bytes(300), "LAS or LAZ cloud"),
    bad("FBX f.obj", b"Kaydara FBX Binary  \0\x1a\0" + bytes(30), "FBX scene"),
    bad("COLLADA c.obj", '<?xml version="1.0"?>\n<COLLADA version="1.4.1"/>', "COLLADA scene"),
    bad("glTF 1 g.glb", GLB1, "binary glTF of version 1"),
    bad("PLY p.obj", _ply(), "holds a PLY file, whatever its name says; rename it to .ply"),
    bad("PLY p.txt", _ply("\r\n"), "rename it to .ply"),
    bad("OBJ o.ply", _obj(), "rename it to .obj"),
    bad("OBJ o.xyz", _obj(), "rename it to .obj"),
    bad("OFF o.stl", "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", "rename it to .off"),
    bad("STL s.obj", STL, "rename it to .stl"),
    bad("PCD c.ply", "# .PCD v0.7 - Point Cloud Data file format\n" + _pcd(), "rename it to .pcd"),
    bad("binary glTF g.ply", b"glTF" + struct.pack("<II", 2, 12), "rename it to .glb"),
    bad("glTF g.obj", json.dumps({"asset": {"version": "2.0"}}), "rename it to .gltf"),
    bad("an array n.npz", b"\x93NUMPY\1\0" + bytes(80), "rename it to .npy"),
    bad("a table t.ply", lines(" "), "rename it to .xyz"),
    bad("a table t.obj", lines(","), "rename it to .xyz"),
    bad("blanks b.xyz", " \r\n\t\n", "empty but for blanks"),
    bad("a mark alone m.obj", "\ufeff", "empty but for blanks"),
    bad("words w.xyz", "hello\nworld\n", "holds no lines of numbers"),
)  # fmt: skip

# --- arrays and STL ---------------------------------------------------------------------------------------------------


def array(name: str, points: np.ndarray, sentence: str = "", notes: Iterable[str] = ()) -> Sample:
    """A .npy file."""
    np.save(buffer := io.BytesIO(), points)
    return bad(name, buffer.getvalue(), sentence) if sentence else good(name, buffer.getvalue(), *notes)


def archive(**arrays: np.ndarray) -> bytes:
    np.savez(buffer := io.BytesIO(), **arrays)
    return buffer.getvalue()


def _facets(form: str) -> str:
    """Statements of an ASCII STL; `form` formats a number."""
    facets = ""
    for face in CORNERS[TRIANGLES].tolist():
        loop = "".join("vertex " + " ".join(form.format(v) for v in corner) + "\n" for corner in face)
        facets += f"facet normal 0 0 1\nouter loop\n{loop}endloop\nendfacet\n"
    return facets


def mesh(name: str, content: str | bytes, *notes: str, times: int = 1) -> Sample:
    """The box as a mesh."""
    return Sample(name, _into(name, holds(content)), 12 * times, **corners(CORNERS), area=7.0 * times, notes=notes)


def _stl(count: int, faces: int = 12) -> bytes:
    body = b"".join(struct.pack("<12fH", 0, 0, 1, *CORNERS[f].reshape(-1), 0) for f in TRIANGLES[:faces])
    return b"exported as a stream".ljust(80) + struct.pack("<I", count) + body


ASCII_STL = "solid box\n" + _facets("{:.4f}") + "endsolid box\n"
ARRAYS = (
    array("transposed t.npy", PLACES.T, "transpose it"),
    array("transposed with normals t6.npy", BALL.T, "transpose it"),
    array("of one cloud in a batch b.npy", PLACES[None], "reshape it (array.reshape(-1, 3))"),
    array("organised o.npy", PLACES.reshape(20, 30, 3), "reshape it (array.reshape(-1, 3))"),
    array("with intensities i.npy", np.concatenate([PLACES, COLOURS[:, :1]], 1), notes=["column of the table: 4"]),
    array("flat f.npy", PLACES.reshape(-1), "it needs (N, 3) to (N, 10)"),
    good("positions p.npz", archive(positions=PLACES, colors=COLOURS)),
    good("capitals c.npz", archive(Points=PLACES, Normals=NORMALS)),
    mesh("v and f v.npz", archive(v=CORNERS, f=TRIANGLES)),
    mesh("V and F V.npz", archive(V=CORNERS, F=TRIANGLES)),
    mesh("faces as floats F.npz", archive(vertices=CORNERS, faces=TRIANGLES.astype(float))),
    bad("half faces H.npz", archive(vertices=CORNERS, faces=TRIANGLES + 0.5), "they need whole numbers"),
    bad("transposed in an archive T.npz", archive(points=PLACES.T), "transpose it"),
    good("capitals in a PCD c.pcd", _pcd().replace("x y z", "X Y Z").replace("DATA ascii", "DATA ASCII")),
    good("decimal commas in a PCD d.pcd", _pcd().split("DATA")[0] + "DATA ascii\n" + lines(" ", commas)),
    mesh("a count of zero zero.stl", _stl(0), "announces 0 faces; the 12 that follow were read"),
    mesh("an open count open.stl", _stl(2**32 - 1), "the 12 that follow were read"),
    bad("an open count and half a face half.stl", _stl(2**32 - 1)[:-20], "its last face is not complete"),
    bad("no face none.stl", _stl(0, 0), "holds no faces"),
    bad("a count too high high.stl", _stl(13), "claims 13 faces"),
    mesh("one line line.stl", ASCII_STL.replace("\n", " ")),
    mesh("cut between two faces cut.stl", ASCII_STL.replace("endsolid box\n", ""), "may be cut off"),
    mesh("bytes after the last face more.stl", _stl(12) + bytes(100), "100 bytes after them were left out"),
    mesh("Mac mac.stl", ASCII_STL.replace("\n", "\r")),
    mesh("Windows windows.stl", ASCII_STL.replace("\n", "\r\n")),
    mesh("decimal commas commas.stl", "solid box\n" + _facets("{:.4f}").replace(".", ",") + "endsolid\n"),
    mesh("capitals capitals.stl", ASCII_STL.upper()),
    mesh("a mark mark.stl", "\ufeff" + ASCII_STL),
    mesh("UTF-16 wide.stl", ASCII_STL.encode("utf-16")),
    mesh("two solids two.stl", ASCII_STL * 2, times=2),
    mesh("the word vertex in its name name.stl", ASCII_STL.replace("solid box", "solid vertex of a box")),
    mesh("exponents of Fortran fortran.stl", "solid box\n" + _facets("{:.4E}").replace("E", "D") + "endsolid\n"),
    bad("faces of four corners four.stl", (STL + STL + STL).replace("endloop", "vertex 1 1 0\nendloop"), "are not three for each"),
    bad("a word for a number word.stl", STL.replace("vertex 1 0 0", "vertex 1 x 0"), "'x'"),
)  # fmt: skip

# --- places on a map --------------------------------------------------------------------------------------------------


def _far_pcd(path: Path) -> None:
    head = _pcd().split("DATA")[0].replace("SIZE 4 4 4", "SIZE 8 8 8")
    path.write_bytes(head.encode() + b"DATA binary\n" + (PLACES + MAP).tobytes())


def _far_ply(path: Path) -> None:
    head = _ply().split("end_header")[0].replace("ascii", "binary_big_endian").replace("float", "double")
    path.write_bytes(head.encode() + b"end_header\n" + (PLACES + MAP).astype(">f8").tobytes())


MAP_NOTE = "An STL, which has single precision only, is moved by (-512,346, -5,412,346, -245)"
FAR = (
    good("a map in text m.xyz", "".join("{:.4f} {:.4f} {:.4f}\n".format(*p) for p in PLACES + MAP), MAP_NOTE, points=PLACES + MAP),
    good("a map as an array m.npz", archive(points=PLACES + MAP), MAP_NOTE, points=PLACES + MAP),
    Sample("a map in doubles m.pcd", _into("m.pcd", _far_pcd), COUNT, **corners(PLACES + MAP), notes=(MAP_NOTE,)),
    Sample("a map in doubles m.ply", _into("m.ply", _far_ply), COUNT, **corners(PLACES + MAP), notes=(MAP_NOTE,)),
)

SAMPLES = (*DECIMALS, *NAMED, *UNNAMED, *ENCODED, *FOREIGN, *ARRAYS, *FAR)

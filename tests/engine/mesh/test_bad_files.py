"""Broken and hostile files: each gives an error message or a documented clean-up, in bounded memory and time."""

from __future__ import annotations

import io
import os
import pickle
import re
import struct
import sys
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.formats import source as limits
from engine.mesh.formats.source import FACES, FILE_BYTES, KEPT, MESH_BYTES, Draw
from engine.mesh.read import FEWEST, READERS, read
from tests.engine.mesh.files import Scene, obj, off, pcd, ply, stl, text
from tests.engine.mesh.shapes import QUADS, box, sphere_points, table

CLOUD = sphere_points(300)
MILLION = 1_000_000


def sentence(path: Path, up: str = "auto") -> str:
    """The message with which a file is refused; it is one sentence that names the file."""
    with pytest.raises(BadFile) as caught:
        read(path, up)
    message = str(caught.value)
    assert isinstance(caught.value, ForetokenError)
    assert "\n" not in message and message.endswith(".") and len(message) < 300
    assert path.name in message
    return message


@contextmanager
def bounded(megabytes: float, seconds: float = 60.0):
    """Nothing in the block holds more memory or takes more processor time."""
    tracemalloc.start()
    start = time.process_time()
    yield
    peak, took = tracemalloc.get_traced_memory()[1] / 2**20, time.process_time() - start
    tracemalloc.stop()
    assert peak < megabytes and took < seconds


def sparse(path: Path, head: bytes, size: int) -> Path:
    """A file that starts with `head` and has `size` bytes of zeros behind it, which take no room on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


# --- the file itself --------------------------------------------------------------------------------------------------


def test_files_that_are_none(tmp_path):
    assert "No such file" in sentence(tmp_path / "nowhere.ply")
    (tmp_path / "folder.ply").mkdir()
    assert "is not a file" in sentence(tmp_path / "folder.ply")
    (tmp_path / "empty.xyz").touch()
    assert "is empty" in sentence(tmp_path / "empty.xyz")
    (tmp_path / "a.fbx").write_text("x")
    assert "PLY, OBJ, GLB, GLTF, STL, OFF, XYZ, TXT, CSV, ASC, PTS, XYZN, XYZRGB, NPY, NPZ, PCD" in sentence(tmp_path / "a.fbx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.xyz")
    assert "is not a file" in sentence(tmp_path / "pipe.xyz")


@pytest.mark.parametrize("suffix", READERS)
def test_a_file_beyond_the_limit(tmp_path, suffix):
    with bounded(1):
        assert "1.0 GB at most" in sentence(sparse(tmp_path / f"a{suffix}", b"", FILE_BYTES + 1))


@pytest.mark.parametrize("suffix", [".obj", ".glb", ".gltf", ".stl", ".off"])
def test_a_mesh_beyond_the_limit(tmp_path, suffix):
    with bounded(1):
        assert "256.0 MB at most" in sentence(sparse(tmp_path / f"a{suffix}", b"", MESH_BYTES + 1))


def test_an_unknown_axis(tmp_path):
    with pytest.raises(BadPrompt, match="cannot be 'w'"):
        read(text(tmp_path / "a.xyz", CLOUD), up="w")


# --- clouds that say too little ---------------------------------------------------------------------------------------


def test_nan_and_infinity_are_dropped(tmp_path):
    points = CLOUD.copy()
    points[:7, 1], points[7:9, 0], points[9, 2] = np.nan, np.inf, 1e35
    given = read(text(tmp_path / "a.xyz", points[:, :3]))
    assert given.notes[0] == "10 points with NaN or infinite coordinates were dropped."
    assert np.isfinite(given.points).all() and len(given.points) == len(CLOUD) - 10


def test_only_nan(tmp_path):
    np.save(tmp_path / "a.npy", np.full((50, 3), np.nan))
    assert f"has 0 usable points; a shape needs at least {FEWEST}" in sentence(tmp_path / "a.npy")


def test_three_points(tmp_path):
    assert "has 3 usable points" in sentence(text(tmp_path / "a.xyz", CLOUD[:3, :3]))


@pytest.mark.parametrize("place", [0.0, 1e6])
def test_all_points_equal(tmp_path, place):
    np.save(tmp_path / "a.npy", np.full((500, 3), place))
    assert "All 500 points of a.npy lie in one place" in sentence(tmp_path / "a.npy")


def test_repeated_points_are_dropped(tmp_path):
    given = read(text(tmp_path / "a.xyz", np.concatenate([CLOUD, CLOUD[:1]])), up="y")
    assert given.notes == ["1 point equal to another was dropped."]


def test_no_normals(tmp_path):
    given = read(text(tmp_path / "a.xyz", CLOUD[:, :3]))
    assert "The normals were estimated" in given.notes[-1]
    assert np.einsum("nc,nc->n", given.points[:, 3:], CLOUD[:, 3:]).min() > 0.9


def test_some_normals_are_missing(tmp_path):
    table = CLOUD.copy()
    table[:5, 3:], table[5:9, 3:] = 0, np.nan
    np.save(tmp_path / "a.npy", table)
    given = read(tmp_path / "a.npy")
    assert given.notes == ["9 normals were zero or NaN and were taken from the nearest point."]
    assert np.linalg.norm(given.points[:, 3:], axis=1) == pytest.approx(np.ones(len(CLOUD)), abs=1e-5)


def test_most_normals_are_missing(tmp_path):
    points = CLOUD.copy()
    points[:250, 3:] = 0
    given = read(ply(tmp_path / "a.ply", points, order="binary_little_endian", normals=True))
    assert "all were estimated" in given.notes[-1]


def test_normals_that_point_inward_are_kept_and_named(tmp_path):
    given = read(text(tmp_path / "a.xyz", CLOUD * [1, 1, 1, -1, -1, -1]))
    assert "point inward" in given.notes[-1]
    assert given.points[:, 3:] == pytest.approx(-CLOUD[:, 3:], abs=1e-5)


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [2, 11])
def test_wrong_column_count(tmp_path, columns):
    path = text(tmp_path / "a.csv", np.ones((20, columns)), ",", "some names\n")
    assert f"has {columns} values in line 2" in sentence(path)
    np.save(tmp_path / "a.npy", np.ones((20, columns)))
    assert f"shape (20, {columns})" in sentence(tmp_path / "a.npy")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("1 2 3 4", "line 12 has 4 values where the lines before it have 3"),
        ("1 2", "line 12 has 2 values"),
        ("1 oops 3", "line 12 holds 'oops' where a number should be"),
        ("1 2 3 \x00\x01", "line 12 holds"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, line, complaint):
    lines = ["# first", *("{} {} {}".format(*row) for row in CLOUD[:, :3].tolist())]
    lines[11] = line
    (tmp_path / "a.xyz").write_text("\n".join(lines))
    assert complaint in sentence(tmp_path / "a.xyz")


def test_a_wrong_line_far_down_is_named(tmp_path):
    lines = ["0.5 0.25 0.125\n"] * 70_000 + ["1;2;3\n"]
    (tmp_path / "a.xyz").write_text("".join(lines))
    assert "line 70,001" in sentence(tmp_path / "a.xyz")


@pytest.mark.parametrize("content", [b"hello\nworld\n", bytes(range(256)) * 50, b"1 2 3 \0\0\n" * 30, b"9" * 300_000])
def test_text_that_is_none(tmp_path, content):
    (tmp_path / "a.xyz").write_bytes(content)
    assert "holds no lines of numbers" in sentence(tmp_path / "a.xyz")


class Canary:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("how", ["raw", "npy", "npz"])
def test_a_pickle_is_never_loaded(tmp_path, how):
    canary, path = tmp_path / "it ran", tmp_path / ("a.npz" if how == "npz" else "a.npy")
    holding = np.empty(3, object)
    holding[:] = [Canary(canary)] * 3
    if how == "raw":
        path.write_bytes(pickle.dumps(Canary(canary)))
    elif how == "npy":
        np.save(path, holding, allow_pickle=True)
    else:
        np.savez(path, points=holding)
    assert "pickled Python objects, which are never read" in sentence(path)
    assert not canary.exists()


@pytest.mark.parametrize("kind", [bool, "complex128", "U5", [("x", "f4"), ("y", "f4")]])
def test_arrays_of_another_type(tmp_path, kind):
    np.save(tmp_path / "a.npy", np.zeros((20, 3), kind))
    assert "save it as float32" in sentence(tmp_path / "a.npy")


def test_npz_without_points(tmp_path):
    np.savez(tmp_path / "a.npz", left=CLOUD, right=CLOUD)
    assert "no array named points; it has: left, right" in sentence(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", points=CLOUD[:, :3], normals=CLOUD[:9, 3:])
    assert "another number of normals" in sentence(tmp_path / "a.npz")


# --- truncated files and false claims ---------------------------------------------------------------------------------

PLY_POINTS = "ply\nformat {} 1.0\nelement vertex {}\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
CORNER_LIST = "property list uchar int vertex_indices\n"
TWO_GB = 2**31 // 12


@pytest.mark.parametrize("order", ["ascii", "binary_little_endian", "binary_big_endian"])
@pytest.mark.parametrize("faces", [None, QUADS], ids=["cloud", "mesh"])
def test_truncated_ply(tmp_path, order, faces):
    points = CLOUD if faces is None else box()[0]
    path = ply(tmp_path / "a.ply", points, faces, order)
    whole = path.read_bytes()
    for share in (0.99, 0.7):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert re.search("truncated|damaged", sentence(path))


def claim_ply(path: Path) -> None:
    path.write_bytes(PLY_POINTS.format("binary_little_endian", TWO_GB).encode() + bytes(1200))


def claim_ply_ascii(path: Path) -> None:
    path.write_bytes(PLY_POINTS.format("ascii", TWO_GB).encode() + b"1 2 3\n" * 99)


def claim_ply_faces(path: Path) -> None:
    head = PLY_POINTS.format("binary_little_endian", 4).replace(
        "end_header", f"element face {2**31 // 13}\nproperty list uchar int vertex_indices\nend_header"
    )
    path.write_bytes(head.encode() + bytes(4096))


def claim_ply_list(path: Path) -> None:
    head = PLY_POINTS.format("binary_little_endian", 4).replace(
        "end_header", "element face 1\nproperty list uint int vertex_indices\nend_header"
    )
    path.write_bytes(head.encode() + bytes(48) + struct.pack("<I", 2**31) + bytes(4096))


def claim_npy(path: Path) -> None:
    np.lib.format.write_array_header_1_0(file := io.BytesIO(), {"descr": "<f4", "fortran_order": False, "shape": (TWO_GB, 3)})
    path.write_bytes(file.getvalue() + bytes(1200))


def claim_npy_overflow(path: Path) -> None:
    np.lib.format.write_array_header_1_0(file := io.BytesIO(), {"descr": "<f4", "fortran_order": False, "shape": (2**63, 3)})
    path.write_bytes(file.getvalue() + bytes(1200))


def claim_npy_head(path: Path) -> None:
    path.write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(1200))


def claim_npz(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("points.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (TWO_GB, 3)})
        file.write(bytes(MILLION))


def claim_pcd(path: Path) -> None:
    content = pcd(path, CLOUD, "binary").read_bytes()
    path.write_bytes(content.replace(b"POINTS 300", b"POINTS %d" % TWO_GB))


def claim_pcd_ascii(path: Path) -> None:
    content = pcd(path, CLOUD, "ascii").read_bytes()
    path.write_bytes(content.replace(b"POINTS 300", b"POINTS %d" % TWO_GB))


def claim_pcd_compressed(path: Path) -> None:
    content = pcd(path, CLOUD, "binary_compressed").read_bytes()
    path.write_bytes(content.replace(struct.pack("<I", 3600), struct.pack("<I", 2**31)))


def claim_stl(path: Path) -> None:
    path.write_bytes(bytes(80) + struct.pack("<I", 2**31 // 50) + bytes(5000))


def claim_off(path: Path) -> None:
    path.write_text(f"OFF\n{TWO_GB} 12 0\n0 0 0\n")


def claim_off_faces(path: Path) -> None:
    path.write_text(f"OFF\n1 {TWO_GB} 0\n0 0 0\n3 0 0 0\n")


def claim_glb_chunk(path: Path) -> None:
    path.write_bytes(b"glTF" + struct.pack("<III", 2, 2**31, 2**31 - 20) + b"JSON{}")


def claim_glb_accessor(path: Path, **change: int) -> None:
    scene = Scene()
    scene.node(mesh=scene.mesh(*box()))
    scene.tree["accessors"][0]["count"] = change.get("count", TWO_GB)
    if change.get("bare"):
        del scene.tree["accessors"][0]["bufferView"]
    scene.glb(path)


def claim_glb_in_range(path: Path) -> None:
    claim_glb_accessor(path, count=FACES)


def claim_glb_zeros(path: Path) -> None:
    claim_glb_accessor(path, count=FACES, bare=1)


CLAIMS: list[tuple[str, Callable[[Path], None]]] = [
    ("ply", claim_ply), ("ply", claim_ply_ascii), ("ply", claim_ply_faces), ("ply", claim_ply_list), ("npy", claim_npy),
    ("npy", claim_npy_overflow), ("npy", claim_npy_head), ("npz", claim_npz), ("pcd", claim_pcd), ("pcd", claim_pcd_ascii),
    ("pcd", claim_pcd_compressed), ("stl", claim_stl), ("off", claim_off), ("off", claim_off_faces), ("glb", claim_glb_chunk),
    ("glb", claim_glb_accessor), ("glb", claim_glb_in_range), ("glb", claim_glb_zeros),
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "make"), CLAIMS, ids=[make.__name__ for _, make in CLAIMS])
def test_two_gigabytes_in_a_header(tmp_path, suffix, make):
    """A header may claim what it likes: nothing is allocated for it."""
    make(path := tmp_path / f"a.{suffix}")
    with bounded(8, 20):
        sentence(path)


def test_an_archive_that_would_fill_the_memory(tmp_path):
    """3 GB of zeros in a megabyte would be refused by its size; here one that lies about its size as well."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("points.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (MILLION, 3)})
        for _ in range(12):
            file.write(bytes(MILLION))
    content = path.read_bytes()
    with bounded(60):
        assert "lie in one place" in sentence(path)
    assert content.count(struct.pack("<Q", 12 * MILLION + 128)) + content.count(struct.pack("<I", 12 * MILLION + 128)) > 0
    path.write_bytes(content.replace(struct.pack("<I", 12 * MILLION + 128), struct.pack("<I", 2**32 - 2)))
    assert "4.0 GB" in sentence(path)


def test_an_archive_with_very_many_entries(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for k in range(15_000):
            archive.writestr(f"a rather long name of an array {k}.npy", b"")
    with bounded(8):
        assert "too many entries" in sentence(tmp_path / "a.npz")


def test_a_description_that_would_fill_the_memory(tmp_path):
    (tmp_path / "a.gltf").write_bytes(b'{"asset": {}, "x": [' + b"[]," * 12 * MILLION + b"[]]}")
    with bounded(80):
        assert "32.0 MB at most" in sentence(tmp_path / "a.gltf")


@pytest.mark.parametrize("suffix", ["ply", "obj", "off"])
def test_faces_without_corners_are_counted_too(tmp_path, monkeypatch, suffix):
    """A byte or two for each would keep a loop busy for minutes: it ends at the limit, which is a low one here."""
    monkeypatch.setattr(limits, "FACES", 1000)
    count, path = 5000, tmp_path / f"a.{suffix}"
    if suffix == "ply":
        head = PLY_POINTS.format("binary_little_endian", 1).replace("end_header\n", f"element face {count}\n{CORNER_LIST}end_header\n")
        path.write_bytes(head.encode() + bytes(12) + b"\1\0\0\0\0" + bytes(count))
    elif suffix == "obj":
        path.write_bytes(b"v 0 0 0\n" + b"f\n" * count)
    else:
        path.write_bytes(b"OFF\n1 %d 0\n0 0 0\n" % count + b"0\n" * count)
    assert re.search("has (1,001|5,000) faces; 1,000 are the most", sentence(path))


def test_empty_arrays(tmp_path):
    nothing = np.zeros((0, 3))
    np.save(tmp_path / "a.npy", nothing)
    assert "holds no points" in sentence(tmp_path / "a.npy")
    for arrays in ({"points": nothing}, {"points": nothing, "normals": nothing}, {"vertices": nothing, "faces": nothing.astype(int)}):
        np.savez(tmp_path / "a.npz", **arrays)
        assert "0 usable points" in sentence(tmp_path / "a.npz")
    assert "0 usable points" in sentence(pcd(tmp_path / "a.pcd", nothing))
    for order in ("ascii", "binary_little_endian"):
        assert re.search("0 usable points|holds no points", sentence(ply(tmp_path / "a.ply", nothing, order=order)))


def test_other_numbers_of_normals_than_of_points(tmp_path):
    scene = Scene()
    scene.node(mesh=scene.mesh(CLOUD[:, :3], None, 0, NORMAL=scene.numbers(CLOUD[:99, 3:].astype("<f4"), 5126)))
    assert "300 points and 99 normals" in sentence(scene.glb(tmp_path / "a.glb"))


def test_twenty_million_points_in_a_binary_ply(tmp_path):
    """240 MB, which are not read but for the rows that are kept; being sparse, all of them are zero."""
    path = sparse(tmp_path / "a.ply", PLY_POINTS.format("binary_little_endian", 20 * MILLION).encode(), 240 * MILLION)
    with bounded(60):
        assert "points of a.ply lie in one place" in sentence(path)


def test_twenty_million_points_are_thinned(tmp_path):
    """A ball of voxels, each many times."""
    voxels = np.unique((sphere_points(20_000)[:, :3] * 20 + 100).round().astype(np.uint8), axis=0)
    some = voxels[np.random.default_rng(0).integers(0, len(voxels), MILLION)]
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (20 * MILLION, 3)})
        for _ in range(20):
            file.write(some.tobytes())
    with bounded(120):
        given = read(tmp_path / "a.npy")
    assert given.notes[0] == f"The file has 20,000,000 points: {KEPT:,} of them were drawn at random."
    assert len(given.points) == len(voxels)


def test_rows_of_a_stream_are_kept_evenly():
    draw = Draw()
    for start in range(0, MILLION, 50_000):
        draw.add(np.arange(start, start + 50_000)[:, None])
    rows = draw.rows(1)[:, 0]
    own = np.random.default_rng(0).random(MILLION)[rows]  # numbers with which somebody may have made the points
    assert abs(own.mean() - 0.5) < 0.005
    assert len(rows) == KEPT and draw.seen == MILLION
    assert (np.diff(rows) > 0).all()
    counts = np.histogram(rows, 20, (0, MILLION))[0]
    assert abs(counts - KEPT / 20).max() < 5 * np.sqrt(KEPT / 20)


# --- meshes -----------------------------------------------------------------------------------------------------------


def test_faces_that_refer_to_nothing(tmp_path):
    vertices, faces = box()
    faces[3, 1] = 99
    for make in (obj, off):
        assert "refers to vertex 99 of 8" in sentence(make(tmp_path / f"a.{make.__name__}", vertices, faces.tolist()))
    path = ply(tmp_path / "a.ply", vertices, [[0, 1, -3]])
    assert "refers to vertex -3 of 8" in sentence(path)
    scene = Scene()
    scene.node(mesh=scene.mesh(vertices, faces))
    assert "refers to vertex 99 of 8" in sentence(scene.glb(tmp_path / "a.glb"))


def test_meshes_without_a_surface(tmp_path):
    vertices, faces = box((1.0, 0.0, 0.0))
    assert "no face with an area" in sentence(obj(tmp_path / "a.obj", vertices, faces.tolist()))
    assert "no face with an area" in sentence(obj(tmp_path / "a.obj", vertices * np.nan, faces.tolist()))
    assert "has 0 usable points" in sentence(off(tmp_path / "a.off", vertices[:0], []))
    (tmp_path / "a.stl").write_text("solid nothing\nendsolid nothing\n")
    assert "holds no faces" in sentence(tmp_path / "a.stl")


def test_vertices_with_nan_take_their_faces_with_them(tmp_path):
    vertices, faces = box()
    vertices[0] = np.nan
    given = read(ply(tmp_path / "a.ply", vertices, faces.tolist(), "binary_little_endian"))
    lost = int((faces == 0).any(1).sum())
    assert given.notes == [f"{lost} faces with NaN or infinite corners were dropped."]
    assert len(given.surface[1]) == 12 - lost and len(given.surface[0]) == 7


def test_a_mesh_inside_out_is_turned(tmp_path):
    vertices, faces = box()
    given = read(stl(tmp_path / "a.stl", vertices, faces[:, ::-1]))
    assert given.notes == ["The faces pointed inward and were turned over."]
    assert np.einsum("nc,nc->n", given.points[:, :3], given.points[:, 3:]).min() > 0


def test_gltf_that_needs_what_is_not_there(tmp_path):
    scene = Scene()
    scene.node(mesh=scene.mesh(*box()))
    assert "needs the file box.bin next to it" in sentence(scene.gltf(tmp_path / "a.gltf", "box.bin"))
    for uri in ("https://example.org/box.bin", "../box.bin", "/etc/hostname", "%2e%2e/box.bin", "file:///etc/hostname"):
        assert "which is not next to it" in sentence(scene.gltf(tmp_path / "a.gltf", uri))
    assert "not base64" in sentence(scene.gltf(tmp_path / "a.gltf", "data:;base64,???"))
    scene.tree["extensionsRequired"] = ["KHR_draco_mesh_compression"]
    assert "is compressed (KHR_draco_mesh_compression)" in sentence(scene.glb(tmp_path / "a.glb"))


def test_gltf_that_places_a_mesh_too_often(tmp_path):
    """A small file, and a billion faces: refused before they are made. A circle of nodes is walked once."""
    vertices, faces = table()
    scene = Scene()
    mesh = scene.mesh(vertices, np.tile(faces, (1000, 1)))
    for _ in range(100):
        scene.node(mesh=mesh)
    with bounded(400):
        assert "has 5,040,000 faces" in sentence(scene.glb(tmp_path / "a.glb"))
    scene = Scene()
    first = scene.node(mesh=scene.mesh(*box()))
    scene.node(first, children=[first])
    assert len(read(scene.glb(tmp_path / "b.glb")).surface[1]) == 12


def test_gltf_that_is_none(tmp_path):
    for content in (
        b"{}",
        b"[1, 2]",
        b'{"asset": {"version": "1.0"}}',
        b"[" * 100_000,
        b"glTF",
        b'{"asset": 7}',
        b'{"meshes": [{}], "nodes": [{"mesh": 0}]}',
    ):
        (tmp_path / "a.gltf").write_bytes(content)
        sentence(tmp_path / "a.gltf")


def test_no_reader_reaches_for_a_network_or_a_pickle():
    """What could run code or leave the machine is not even imported."""
    for name in [name for name in sys.modules if name.startswith("engine.mesh")]:
        assert not {"pickle", "socket", "urllib.request", "httpx", "requests"} & set(vars(sys.modules[name]))

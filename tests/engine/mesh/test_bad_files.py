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
from engine.mesh.formats.source import CLOUD_POINTS, FACES, FILE_BYTES, MESH_BYTES, Reservoir
from engine.mesh.read import FEWEST, READERS, read
from tests.engine.mesh.files import Scene, obj, off, pcd, ply, stl, text
from tests.engine.mesh.shapes import QUADS, box, sphere_points, table

CLOUD = sphere_points(300)
MILLION = 1_000_000


def sentence(path: Path, up: str = "auto") -> str:
    """The error message for a file: one sentence that names it."""
    with pytest.raises(BadFile) as caught:
        read(path, up)
    message = str(caught.value)
    assert isinstance(caught.value, ForetokenError)
    assert "\n" not in message and message.endswith(".") and len(message) < 300
    assert path.name in message
    return message


@contextmanager
def within_limits(megabytes: float, seconds: float = 60.0):
    """Fails if the block uses more memory or processor time."""
    tracemalloc.start()
    start = time.process_time()
    yield
    peak, took = tracemalloc.get_traced_memory()[1] / 2**20, time.process_time() - start
    tracemalloc.stop()
    assert peak < megabytes and took < seconds


def raw(path: Path, content: bytes) -> Path:
    """A file of these bytes."""
    path.write_bytes(content)
    return path


def numpy_file(path: Path, array: np.ndarray | None = None, **arrays: np.ndarray) -> Path:
    """A file of numpy with an array, or with named ones."""
    np.savez(path, **arrays) if array is None else np.save(path, array)
    return path


def sparse(path: Path, head: bytes, size: int) -> Path:
    """A file with `head` and then `size` bytes of zeros, which take no space on the disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return path


# --- refusals; files as people have them are in tests/faults/corpus/ -----------------------------------------------

NOTHING = np.zeros((0, 3))
LINES = ["# first", *("{} {} {}".format(*row) for row in CLOUD[:, :3].tolist())]
FLAT = box((1.0, 0.0, 0.0))
SUFFIXES = "PLY, OBJ, GLB, GLTF, STL, OFF, XYZ, TXT, CSV, ASC, PTS, XYZN, XYZRGB, NPY, NPZ, PCD"
Make = Callable[[Path], Path]  # writes a file into a folder


def with_line(line: str) -> Make:
    """A cloud with its twelfth line replaced."""
    return lambda folder: raw(folder / "a.xyz", "\n".join([*LINES[:11], line, *LINES[12:]]).encode())


def other_corner(write: Callable[..., Path], suffix: str) -> Make:
    """A box with a face that refers to a missing vertex."""
    vertices, faces = box()
    faces[3, 1] = 99
    return lambda folder: write(folder / f"a.{suffix}", vertices, faces.tolist())


def glb_of(path: Path, vertices: np.ndarray, faces: list[list[int]]) -> Path:
    """The same as glTF."""
    scene = Scene()
    scene.node(mesh=scene.mesh(vertices, np.array(faces)))
    return scene.glb(path)


def with_uri(uri: str) -> Make:
    """A box of glTF whose numbers are in another file."""

    def write(folder: Path) -> Path:
        scene = Scene()
        scene.node(mesh=scene.mesh(*box()))
        return scene.gltf(folder / "a.gltf", uri)

    return write


def make_folder(folder: Path) -> Path:
    """A folder in place of a file."""
    folder.mkdir()
    return folder


def few_normals(folder: Path) -> Path:
    """Points of glTF with fewer normals."""
    scene = Scene()
    scene.node(mesh=scene.mesh(CLOUD[:, :3], None, 0, NORMAL=scene.numbers(CLOUD[:99, 3:].astype("<f4"), 5126)))
    return scene.glb(folder / "a.glb")


REFUSED: list[tuple[str, Make]] = [
    ("No such file", lambda f: f / "nowhere.ply"), ("is not a file", lambda f: make_folder(f / "folder.ply")),
    ("is empty", lambda f: raw(f / "empty.xyz", b"")), (SUFFIXES, lambda f: raw(f / "a.fbx", b"x")),
    # too few points
    (f"has 0 usable points; a shape needs at least {FEWEST}", lambda f: numpy_file(f / "a.npy", np.full((50, 3), np.nan))),
    ("has 3 usable points", lambda f: text(f / "a.xyz", CLOUD[:3, :3])),
    *(("All 500 points of a.npy lie in one place", lambda f, at=at: numpy_file(f / "a.npy", np.full((500, 3), at))) for at in (0.0, 1e6)),
    ("holds no points", lambda f: numpy_file(f / "a.npy", NOTHING)), ("0 usable points", lambda f: numpy_file(f / "a.npz", points=NOTHING)),
    ("0 usable points", lambda f: numpy_file(f / "a.npz", points=NOTHING, normals=NOTHING)),
    ("0 usable points", lambda f: numpy_file(f / "a.npz", vertices=NOTHING, faces=NOTHING.astype(int))),
    ("0 usable points", lambda f: pcd(f / "a.pcd", NOTHING)), ("0 usable points", lambda f: off(f / "a.off", FLAT[0][:0], [])),
    *(("0 usable points|holds no points", lambda f, order=order: ply(f / "a.ply", NOTHING, order=order))
      for order in ("ascii", "binary_little_endian")),
    # tables
    *((rf"shape \(20, {n}\)", lambda f, n=n: numpy_file(f / "a.npy", np.ones((20, n)))) for n in (2, 11)),
    ("line 12 has 4 values where the lines before it have 3", with_line("1 2 3 4")), ("line 12 has 2 values", with_line("1 2")),
    ("line 12 holds 'oops' where a number should be", with_line("1 oops 3")), ("line 12 holds", with_line("1 2 3 \x00\x01")),
    ("line 70,001", lambda f: raw(f / "a.xyz", b"0.5 0.25 0.125\n" * 70_000 + b"1;2;3\n")),
    *(("holds no lines of numbers", lambda f, content=content: raw(f / "a.xyz", content))
      for content in (bytes(range(256)) * 50, b"1 2 3 \0\0\n" * 30, b"9" * 300_000)),
    *(("save it as float32", lambda f, kind=kind: numpy_file(f / "a.npy", np.zeros((20, 3), kind)))
      for kind in (bool, "complex128", "U5", [("x", "f4"), ("y", "f4")])),
    ("no array named points; it has: left, right", lambda f: numpy_file(f / "a.npz", left=CLOUD, right=CLOUD)),
    ("another number of normals", lambda f: numpy_file(f / "a.npz", points=CLOUD[:, :3], normals=CLOUD[:9, 3:])),
    ("300 points and 99 normals", few_normals),
    # meshes
    ("refers to vertex 99 of 8", other_corner(obj, "obj")), ("refers to vertex 99 of 8", other_corner(glb_of, "glb")),
    ("refers to vertex -3 of 8", lambda f: ply(f / "a.ply", box()[0], [[0, 1, -3]])),
    ("no face with an area", lambda f: obj(f / "a.obj", FLAT[0], FLAT[1].tolist())),
    ("no face with an area", lambda f: obj(f / "a.obj", FLAT[0] * np.nan, FLAT[1].tolist())),
    ("holds no faces", lambda f: raw(f / "a.stl", b"solid nothing\nendsolid nothing\n")),
    # glTF
    *(("which is not next to it", with_uri(uri)) for uri in
      ("https://example.org/box.bin", "../box.bin", "/etc/hostname", "%2e%2e/box.bin", "file:///etc/hostname")),
    ("not base64", with_uri("data:;base64,???")),
    *(("", lambda f, content=content: raw(f / "a.gltf", content)) for content in
      (b"{}", b"[1, 2]", b'{"asset": {"version": "1.0"}}', b"[" * 100_000, b"glTF", b'{"asset": 7}',
       b'{"meshes": [{}], "nodes": [{"mesh": 0}]}')),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "make"), REFUSED, ids=[f"{i}-{pattern[:24]}" for i, (pattern, _) in enumerate(REFUSED)])
def test_what_a_reader_refuses_it_names(tmp_path: Path, pattern: str, make: Make) -> None:
    assert re.search(pattern, sentence(make(tmp_path)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.xyz")
    assert "is not a file" in sentence(tmp_path / "pipe.xyz")


def test_an_unknown_axis(tmp_path):
    with pytest.raises(BadPrompt, match="cannot be 'w'"):
        read(text(tmp_path / "a.xyz", CLOUD), up="w")


MESHES = [".obj", ".glb", ".gltf", ".stl", ".off"]
LIMITS = [(suffix, FILE_BYTES, "1.0 GB at most") for suffix in READERS] + [(suffix, MESH_BYTES, "256.0 MB at most") for suffix in MESHES]


@pytest.mark.parametrize(("suffix", "most", "sentence_part"), LIMITS)
def test_a_file_beyond_the_limit(tmp_path, suffix, most, sentence_part):
    with within_limits(1):
        assert sentence_part in sentence(sparse(tmp_path / f"a{suffix}", b"", most + 1))


# --- clouds that say too little ---------------------------------------------------------------------------------------


def test_nan_and_infinity_are_dropped(tmp_path):
    points = CLOUD.copy()
    points[:7, 1], points[7:9, 0], points[9, 2] = np.nan, np.inf, 1e35
    cloud = read(text(tmp_path / "a.xyz", points[:, :3]))
    assert cloud.notes[0] == "10 points with NaN or infinite coordinates were dropped."
    assert np.isfinite(cloud.points).all() and len(cloud.points) == len(CLOUD) - 10


def test_repeated_points_are_dropped(tmp_path):
    cloud = read(text(tmp_path / "a.xyz", np.concatenate([CLOUD, CLOUD[:1]])), up="y")
    assert cloud.notes == ["1 point equal to another was dropped."]


def test_no_normals(tmp_path):
    cloud = read(text(tmp_path / "a.xyz", CLOUD[:, :3]))
    assert "The normals were estimated" in cloud.notes[-1]
    assert np.einsum("nc,nc->n", cloud.points[:, 3:], CLOUD[:, 3:]).min() > 0.9


def test_some_normals_are_missing(tmp_path):
    table = CLOUD.copy()
    table[:5, 3:], table[5:9, 3:] = 0, np.nan
    np.save(tmp_path / "a.npy", table)
    cloud = read(tmp_path / "a.npy")
    assert cloud.notes == ["9 normals were zero or NaN and were taken from the nearest point."]
    assert np.linalg.norm(cloud.points[:, 3:], axis=1) == pytest.approx(np.ones(len(CLOUD)), abs=1e-5)


def test_most_normals_are_missing(tmp_path):
    points = CLOUD.copy()
    points[:250, 3:] = 0
    cloud = read(ply(tmp_path / "a.ply", points, order="binary_little_endian", normals=True))
    assert "all were estimated" in cloud.notes[-1]


def test_normals_that_point_inward_are_kept_and_named(tmp_path):
    cloud = read(text(tmp_path / "a.xyz", CLOUD * [1, 1, 1, -1, -1, -1]))
    assert "point inward" in cloud.notes[-1]
    assert cloud.points[:, 3:] == pytest.approx(-CLOUD[:, 3:], abs=1e-5)


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


LITTLE = "binary_little_endian"
FACES_OF_PLY = f"element face {2**31 // 13}\n{CORNER_LIST}end_header"
LONG_LIST = "element face 1\nproperty list uint int vertex_indices\nend_header"


def ply_head(order: str, count: int, more: str = "end_header") -> bytes:
    """A header of points; `more` replaces its end."""
    return PLY_POINTS.format(order, count).replace("end_header", more).encode()


def npy_head(shape: tuple[int, ...], kind: str = "<f4") -> bytes:
    """A header of an array."""
    np.lib.format.write_array_header_1_0(file := io.BytesIO(), {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(path: Path, shape: tuple[int, ...], millions: int) -> Path:
    """An archive with an array of a shape and `millions` million zero bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed, packed.open("points.npy", "w", force_zip64=True) as file:
        file.write(npy_head(shape))
        for _ in range(millions):
            file.write(bytes(MILLION))
    return path


def pcd_claim(data: str, before: bytes, after: bytes) -> Callable[[Path], bytes]:
    """A PCD with another number."""
    return lambda path: pcd(path, CLOUD, data).read_bytes().replace(before, after)


def accessor_claim(count: int, bare: bool = False) -> Callable[[Path], bytes]:
    """A GLB with another number of corners; bare : they are zeros that are not stored."""

    def content(path: Path) -> bytes:
        scene = Scene()
        scene.node(mesh=scene.mesh(*box()))
        scene.tree["accessors"][0]["count"] = count
        if bare:
            del scene.tree["accessors"][0]["bufferView"]
        return scene.glb(path).read_bytes()

    return content


CLAIMS: list[tuple[str, bytes | Callable[[Path], bytes]]] = [
    ("ply", ply_head(LITTLE, TWO_GB) + bytes(1200)), ("ply", ply_head("ascii", TWO_GB) + b"1 2 3\n" * 99),
    ("ply", ply_head(LITTLE, 4, FACES_OF_PLY) + bytes(4096)),
    ("ply", ply_head(LITTLE, 4, LONG_LIST) + bytes(48) + struct.pack("<I", 2**31) + bytes(4096)),
    ("npy", npy_head((TWO_GB, 3)) + bytes(1200)), ("npy", npy_head((2**63, 3)) + bytes(1200)),
    ("npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(1200)),
    ("npz", lambda path: archive(path, (TWO_GB, 3), 1).read_bytes()),
    *(("pcd", pcd_claim(data, b"POINTS 300", b"POINTS %d" % TWO_GB)) for data in ("binary", "ascii")),
    ("pcd", pcd_claim("binary_compressed", struct.pack("<I", 3600), struct.pack("<I", 2**31))),
    ("stl", bytes(80) + struct.pack("<I", 2**31 // 50) + bytes(5000)), ("off", b"OFF\n%d 12 0\n0 0 0\n" % TWO_GB),
    ("off", b"OFF\n1 %d 0\n0 0 0\n3 0 0 0\n" % TWO_GB), ("glb", b"glTF" + struct.pack("<III", 2, 2**31, 2**31 - 20) + b"JSON{}"),
    ("glb", accessor_claim(TWO_GB)), ("glb", accessor_claim(FACES)), ("glb", accessor_claim(FACES, bare=True)),
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "content"), CLAIMS, ids=[f"{suffix}-{i}" for i, (suffix, _) in enumerate(CLAIMS)])
def test_two_gigabytes_in_a_header(tmp_path, suffix, content):
    """Nothing is allocated for what a header claims."""
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content(path))
    with within_limits(8, 20):
        sentence(path)


def test_an_archive_that_would_fill_the_memory(tmp_path):
    """3 GB of zeros in a megabyte would be refused by its size; this archive also lies about its size."""
    path = archive(tmp_path / "a.npz", (MILLION, 3), 12)
    content = path.read_bytes()
    with within_limits(60):
        assert "lie in one place" in sentence(path)
    assert content.count(struct.pack("<Q", 12 * MILLION + 128)) + content.count(struct.pack("<I", 12 * MILLION + 128)) > 0
    path.write_bytes(content.replace(struct.pack("<I", 12 * MILLION + 128), struct.pack("<I", 2**32 - 2)))
    assert "4.0 GB" in sentence(path)


def test_an_archive_with_very_many_entries(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as packed:
        for k in range(15_000):
            packed.writestr(f"a rather long name of an array {k}.npy", b"")
    with within_limits(8):
        assert "too many entries" in sentence(tmp_path / "a.npz")


def test_a_description_that_would_fill_the_memory(tmp_path):
    (tmp_path / "a.gltf").write_bytes(b'{"asset": {}, "x": [' + b"[]," * 12 * MILLION + b"[]]}")
    with within_limits(80):
        assert "32.0 MB at most" in sentence(tmp_path / "a.gltf")


@pytest.mark.parametrize("suffix", ["ply", "obj", "off"])
def test_faces_without_corners_are_counted_too(tmp_path, monkeypatch, suffix):
    """One or two bytes per face would keep a loop busy for minutes: it ends at the limit, which is low here."""
    monkeypatch.setattr(limits, "FACES", 1000)
    count, path = 5000, tmp_path / f"a.{suffix}"
    if suffix == "ply":
        path.write_bytes(ply_head(LITTLE, 1, f"element face {count}\n{CORNER_LIST}end_header") + bytes(12) + b"\1\0\0\0\0" + bytes(count))
    elif suffix == "obj":
        path.write_bytes(b"v 0 0 0\n" + b"f\n" * count)
    else:
        path.write_bytes(b"OFF\n1 %d 0\n0 0 0\n" % count + b"0\n" * count)
    assert re.search("has (1,001|5,000) faces; 1,000 are the most", sentence(path))


def test_twenty_million_points_in_a_binary_ply(tmp_path):
    """240 MB, of which only the kept rows are read; the file is sparse, so all are zero."""
    path = sparse(tmp_path / "a.ply", ply_head(LITTLE, 20 * MILLION), 240 * MILLION)
    with within_limits(60):
        assert "points of a.ply lie in one place" in sentence(path)


def test_twenty_million_points_are_thinned(tmp_path):
    """A ball of voxels, each repeated many times."""
    voxels = np.unique((sphere_points(20_000)[:, :3] * 20 + 100).round().astype(np.uint8), axis=0)
    some = voxels[np.random.default_rng(0).integers(0, len(voxels), MILLION)]
    with (tmp_path / "a.npy").open("wb") as file:
        file.write(npy_head((20 * MILLION, 3), "|u1"))
        for _ in range(20):
            file.write(some.tobytes())
    with within_limits(120):
        cloud = read(tmp_path / "a.npy")
    assert cloud.notes[0] == f"The file has 20,000,000 points: {CLOUD_POINTS:,} of them were drawn at random."
    assert len(cloud.points) == len(voxels)


def test_rows_of_a_stream_are_kept_evenly():
    reservoir = Reservoir(np.arange(start, start + 50_000)[:, None] for start in range(0, MILLION, 50_000))
    rows = reservoir.rows(1)[:, 0]
    own = np.random.default_rng(0).random(MILLION)[rows]  # numbers with which somebody may have made the points
    assert abs(own.mean() - 0.5) < 0.005
    assert len(rows) == CLOUD_POINTS and reservoir.seen == MILLION
    assert (np.diff(rows) > 0).all()
    counts = np.histogram(rows, 20, (0, MILLION))[0]
    assert abs(counts - CLOUD_POINTS / 20).max() < 5 * np.sqrt(CLOUD_POINTS / 20)


# --- meshes -----------------------------------------------------------------------------------------------------------


def test_vertices_with_nan_take_their_faces_with_them(tmp_path):
    vertices, faces = box()
    vertices[0] = np.nan
    mesh = read(ply(tmp_path / "a.ply", vertices, faces.tolist(), "binary_little_endian"))
    lost = int((faces == 0).any(1).sum())
    assert mesh.notes == [f"{lost} faces with NaN or infinite corners were dropped."]
    assert len(mesh.surface[1]) == 12 - lost and len(mesh.surface[0]) == 7


def test_a_mesh_inside_out_is_turned(tmp_path):
    vertices, faces = box()
    mesh = read(stl(tmp_path / "a.stl", vertices, faces[:, ::-1]))
    assert mesh.notes == ["The faces pointed inward and were turned over."]
    assert np.einsum("nc,nc->n", mesh.points[:, :3], mesh.points[:, 3:]).min() > 0


def test_gltf_that_places_a_mesh_too_often(tmp_path):
    """A small file with a billion faces is refused before they are created. A cycle of nodes is walked once."""
    vertices, faces = table()
    scene = Scene()
    mesh = scene.mesh(vertices, np.tile(faces, (1000, 1)))
    for _ in range(100):
        scene.node(mesh=mesh)
    with within_limits(400):
        assert "has 5,040,000 faces" in sentence(scene.glb(tmp_path / "a.glb"))
    scene = Scene()
    first = scene.node(mesh=scene.mesh(*box()))
    scene.node(first, children=[first])
    assert len(read(scene.glb(tmp_path / "b.glb")).surface[1]) == 12


def test_no_reader_reaches_for_a_network_or_a_pickle():
    """Modules that could run code or use a network are not even imported."""
    for name in [name for name in sys.modules if name.startswith("engine.mesh")]:
        assert not {"pickle", "socket", "urllib.request", "httpx", "requests"} & set(vars(sys.modules[name]))

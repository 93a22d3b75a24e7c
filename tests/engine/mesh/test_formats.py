"""Readers of every format: golden files of a few hundred bytes give the numbers that they were made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import trimesh

from engine.mesh.formats import pcd as pcd_format
from engine.mesh.formats.source import Source
from engine.mesh.read import read
from tests.engine.mesh.files import Scene, obj, off, pcd, ply, stl, text
from tests.engine.mesh.shapes import QUADS, box, points_on, sphere_points, torus

CLOUD = sphere_points(200).astype(np.float32).astype(np.float64)
CORNERS, TRIANGLES = box((2.0, 1.0, 0.5), (3.0, 4.0, 5.0))
ORDERS = ("ascii", "binary_little_endian", "binary_big_endian")


def same_places(shape, points: np.ndarray) -> None:
    """The input's points, back in the file's coordinates, are those of the file in any order."""
    back = shape.frame.from_model(shape.points[:, :3])
    order, wanted = np.lexsort(back.round(4).T), np.lexsort(points.round(4).T)
    assert back[order] == pytest.approx(points[wanted], abs=2e-4)


def is_the_box(shape) -> None:
    """The input is the box of 2 x 1 x 0.5 around (3, 4, 5) with its faces outward."""
    assert shape.kind == "mesh"
    mesh = trimesh.Trimesh(*shape.surface, process=False)
    mesh.merge_vertices(merge_tex=True, merge_norm=True)
    assert mesh.bounds == pytest.approx(np.array([[2.0, 3.5, 4.75], [4.0, 4.5, 5.25]]), abs=1e-6)
    assert mesh.is_watertight and mesh.is_winding_consistent
    assert mesh.volume == pytest.approx(1.0, abs=1e-6)


# --- meshes -----------------------------------------------------------------------------------------------------------

FACES = {"triangles": TRIANGLES.tolist(), "quads": QUADS, "mixed": [*QUADS[:4], *TRIANGLES[8:].tolist()]}


def trimesh_ply(path: Path, encoding: str) -> Path:
    """A file by another writer."""
    path.write_bytes(trimesh.Trimesh(CORNERS, TRIANGLES, process=False).export(file_type="ply", encoding=encoding))
    return path


MESHES: dict[str, Callable[[Path], Path]] = {
    **{f"ply {order} {name}": lambda f, order=order, faces=faces: ply(f / "a.ply", CORNERS, faces, order)
       for order in ORDERS for name, faces in FACES.items()},
    **{f"ply of trimesh {encoding}": lambda f, encoding=encoding: trimesh_ply(f / "a.ply", encoding) for encoding in ("ascii", "binary")},
    **{f"obj {name}": lambda f, name=name: obj(f / "a.obj", CORNERS, FACES[name]) for name in ("triangles", "quads")},
    **{f"off {head!r}": lambda f, head=head: off(f / "a.off", CORNERS, QUADS, head, " 255 0 0 255" if head.startswith("C") else "")
       for head in ("OFF\n# by hand\n", "OFF ", "COFF\n")},
    **{f"stl {as_text}": lambda f, as_text=as_text: stl(f / "a.stl", CORNERS, TRIANGLES, as_text) for as_text in (True, False)},
}  # fmt: skip


@pytest.mark.parametrize("make", MESHES.values(), ids=MESHES)
def test_every_form_of_a_mesh_is_the_box(tmp_path, make):
    is_the_box(read(make(tmp_path)))


# --- PLY --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_ply_cloud(tmp_path, order):
    cloud = read(ply(tmp_path / "a.ply", CLOUD, order=order))
    assert cloud.kind == "cloud" and cloud.surface is None
    same_places(cloud, CLOUD[:, :3])
    assert any("estimated" in note for note in cloud.notes)
    cloud = read(ply(tmp_path / "a.PLY", CLOUD, order=order, normals=True), up="y")
    assert cloud.notes == [] and cloud.points[:, 3:] == pytest.approx(CLOUD[:, 3:], abs=1e-6)


def test_ply_steps_over_other_elements(tmp_path):
    head = "ply\nformat binary_little_endian 1.0\nelement camera 2\nproperty double f\nproperty list uchar short tags\n"
    head += "element vertex 200\nproperty uchar red\nproperty double x\nproperty float y\nproperty float z\nend_header\n"
    camera = b"".join(np.float64(1).tobytes() + bytes([n]) + bytes(2 * n) for n in (3, 1))
    row = np.zeros(200, [("red", "u1"), ("x", "<f8"), ("y", "<f4"), ("z", "<f4")])
    row["x"], row["y"], row["z"] = CLOUD[:, 0], CLOUD[:, 1], CLOUD[:, 2]
    (tmp_path / "a.ply").write_bytes(head.encode() + camera + row.tobytes())
    same_places(read(tmp_path / "a.ply"), CLOUD[:, :3])


# --- OBJ ----------------------------------------------------------------------------------------------------


def test_obj_with_relative_indices_and_continued_lines(tmp_path):
    lines = [f"v {x} {y} {z}" for x, y, z in CORNERS.tolist()]
    lines += ["f " + " ".join(str(i - 8) for i in quad[:2]) + " \\\n" + " ".join(str(i - 8) for i in quad[2:]) for quad in QUADS]
    lines += [f"v {i} 0 0" for i in range(5)]  # later vertices: -1 meant the latest at its own line
    (tmp_path / "a.obj").write_text("\n".join(lines))
    is_the_box(read(tmp_path / "a.obj"))


def test_obj_without_faces_is_a_cloud(tmp_path):
    lines = ["v {} {} {}\nvn {} {} {}".format(*row) for row in CLOUD.tolist()]
    (tmp_path / "a.obj").write_text("\n".join(lines))
    cloud = read(tmp_path / "a.obj")
    assert cloud.kind == "cloud" and cloud.notes == []
    assert cloud.points[:, 3:] == pytest.approx(CLOUD[:, 3:], abs=1e-6)


# --- text and arrays --------------------------------------------------------------------------------------------------

COLOUR = np.random.default_rng(5).integers(0, 256, (200, 3)).astype(np.float64)


@pytest.mark.parametrize(
    ("suffix", "separator", "head"),
    [
        (".xyz", " ", ""),
        (".txt", "\t", "# x y z\n\n"),
        (".csv", ",", "x,y,z\n"),
        (".csv", "; ", ""),
        (".xyz", " ", "200\n"),
        (".xyz", " ", "\ufeff"),
    ],
    ids=["blanks", "tabs and comments", "names", "semicolons", "count", "byte order mark"],
)
@pytest.mark.parametrize("columns", [3, 6, 9])
def test_columns(tmp_path, suffix, separator, head, columns):
    table = np.concatenate([CLOUD, COLOUR], 1)[:, :columns]
    cloud = read(text(tmp_path / f"a{suffix}", table, separator, head), up="y")
    same_places(cloud, CLOUD[:, :3])
    if columns > 3:
        assert cloud.notes == []
        assert cloud.points[:, 3:] == pytest.approx(CLOUD[:, 3:], abs=1e-6)


def test_decimal_commas_between_semicolons(tmp_path):
    (tmp_path / "a.csv").write_text("".join(";".join(f"{v:.6f}".replace(".", ",") for v in row) + "\n" for row in CLOUD[:, :3].tolist()))
    same_places(read(tmp_path / "a.csv"), CLOUD[:, :3])


def test_the_colour_may_stand_before_the_normal(tmp_path):
    cloud = read(text(tmp_path / "a.xyz", np.concatenate([CLOUD[:, :3], COLOUR, CLOUD[:, 3:]], 1)), up="y")
    assert cloud.notes == []
    assert cloud.points[:, 3:] == pytest.approx(CLOUD[:, 3:], abs=1e-6)


def test_six_columns_may_be_a_colour(tmp_path):
    cloud = read(text(tmp_path / "a.xyz", np.concatenate([CLOUD[:, :3], COLOUR], 1)), up="y")
    assert "read as colours" in cloud.notes[0] and "estimated" in cloud.notes[1]


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path, kind, order):
    np.save(tmp_path / "a.npy", np.asarray(CLOUD.astype(kind), order=order))
    cloud = read(tmp_path / "a.npy", up="y")
    back = cloud.frame.from_model(cloud.points[:, :3])
    assert back == pytest.approx(CLOUD[:, :3].astype(kind).astype(np.float64), abs=1e-5)
    assert cloud.notes == []


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    save(tmp_path / "a.npz", points=CLOUD[:, :3], normals=np.asfortranarray(CLOUD[:, 3:], np.float32), colour=COLOUR)
    cloud = read(tmp_path / "a.npz", up="y")
    same_places(cloud, CLOUD[:, :3])
    assert cloud.points[:, 3:] == pytest.approx(CLOUD[:, 3:], abs=1e-6)
    save(tmp_path / "b.npz", CLOUD)
    same_places(read(tmp_path / "b.npz"), CLOUD[:, :3])
    save(tmp_path / "c.npz", vertices=CORNERS.astype(np.float32), faces=TRIANGLES.astype(np.int32))
    is_the_box(read(tmp_path / "c.npz"))


# --- PCD --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["ascii", "binary", "binary_compressed"])
def test_pcd(tmp_path, data):
    same_places(read(pcd(tmp_path / "a.pcd", CLOUD, data)), CLOUD[:, :3])
    cloud = read(pcd(tmp_path / "b.pcd", CLOUD, data, "x y z normal_x normal_y normal_z"), up="y")
    assert cloud.notes == []
    assert cloud.points[:, 3:] == pytest.approx(CLOUD[:, 3:], abs=1e-6)


def test_lzf_copies_that_overlap(tmp_path):
    """A literal "ab" and a copy of 9 bytes from 2 back; then a long copy of 7 + 2 + 10 bytes from 1 back."""
    (tmp_path / "a").write_bytes(b"x")
    packed = bytes([1]) + b"ab" + bytes([(7 << 5), 0, 1]) + bytes([(7 << 5), 10, 0])
    assert bytes(pcd_format._lzf(Source(tmp_path / "a"), packed, 30)) == b"ab" * 5 + b"a" + b"a" * 19


# --- glTF -------------------------------------------------------------------------------------------------------------


def two_nodes() -> Scene:
    """A unit box, placed twice: once scaled below a turned node, once mirrored."""
    scene = Scene()
    mesh = scene.mesh(*box())
    half = float(np.sqrt(0.5))
    turned = scene.node(rotation=[0.0, 0.0, half, half], translation=[10.0, 0.0, 0.0])  # 90 degrees around z: x to y
    scene.node(turned, mesh=mesh, scale=[4.0, 2.0, 1.0], translation=[1.0, 0.0, 0.0])
    scene.node(mesh=mesh, matrix=[-1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, -5, 0, 0, 1])
    return scene


@pytest.mark.parametrize("suffix", [".glb", ".gltf"])
def test_a_scene_is_joined(tmp_path, suffix):
    path = two_nodes().glb(tmp_path / "a.glb") if suffix == ".glb" else two_nodes().gltf(tmp_path / "a.gltf")
    scene = read(path)
    parts = trimesh.Trimesh(*scene.surface, process=False).split()
    boxes = sorted((tuple(p.bounds.round(5).ravel()), round(float(p.volume), 5)) for p in parts)
    assert boxes == [((-5.5, -0.5, -0.5, -4.5, 0.5, 0.5), 1.0), ((9.0, -1.0, -0.5, 11.0, 3.0, 0.5), 8.0)]
    assert scene.frame.up == "y"


def test_trimesh_reads_the_scene_alike(tmp_path):
    """An independent reader places the same corners."""
    scene = read(two_nodes().glb(tmp_path / "a.glb"))
    theirs = trimesh.load_scene(tmp_path / "a.glb").to_mesh()
    ours = scene.surface[0][np.unique(scene.surface[1])]
    assert np.unique(ours.round(4), axis=0) == pytest.approx(np.unique(theirs.vertices.round(4), axis=0), abs=1e-4)


def test_gltf_with_a_buffer_beside_it(tmp_path):
    scene = two_nodes()
    (tmp_path / "some data.bin").write_bytes(scene.data)
    assert len(read(scene.gltf(tmp_path / "a.gltf", "some%20data.bin")).surface[1]) == 24


def test_gltf_sparse_normalized_and_strided(tmp_path):
    """A box whose corners are 16-bit numbers in rows of 8 bytes, with one corner put right by sparse values."""
    scene = Scene()
    mesh = scene.mesh(*box())
    corners = np.zeros((8, 4), "<i2")
    corners[:, :3] = np.where(box()[0] > 0, 32767, -32767)
    right, corners[5] = corners[5, :3].copy(), 0
    scene.numbers(corners.view("<u2").reshape(-1), 5123)
    accessor = scene.tree["accessors"][0]
    accessor |= {"bufferView": 2, "componentType": 5122, "normalized": True}
    scene.tree["bufferViews"][2]["byteStride"] = 8
    at, values = scene.numbers(np.array([5], "<u2"), 5123), scene.numbers(right.view("<u2"), 5123)
    accessor["sparse"] = {"count": 1, "indices": {"bufferView": at, "componentType": 5123}, "values": {"bufferView": values}}
    scene.node(mesh=mesh, scale=[0.5, 0.5, 0.5])
    read_scene = read(scene.glb(tmp_path / "a.glb"))
    assert np.abs(read_scene.surface[0]) == pytest.approx(np.full((8, 3), 0.5))


@pytest.mark.parametrize("mode", [5, 6])
def test_gltf_strips_and_fans(tmp_path, mode):
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 2, 0]], float)
    if mode == 6:
        corners = corners[[0, 1, 3, 2]]
    scene = Scene()
    scene.node(mesh=scene.mesh(corners, None, mode))
    read_scene = read(scene.glb(tmp_path / "a.glb"))
    mesh = trimesh.Trimesh(*read_scene.surface, process=False)
    assert mesh.area == pytest.approx(1.5 if mode == 5 else 1.0)
    assert mesh.face_normals == pytest.approx(np.tile([0, 0, 1], (len(mesh.faces), 1)))


def test_gltf_points_keep_their_normals(tmp_path):
    scene = Scene()
    mesh = scene.mesh(CLOUD[:, :3], None, 0, NORMAL=scene.numbers(CLOUD[:, 3:].astype("<f4"), 5126))
    scene.node(mesh=mesh, rotation=[1.0, 0.0, 0.0, 0.0])  # half a turn around x
    read_scene = read(scene.glb(tmp_path / "a.glb"))
    assert read_scene.kind == "cloud" and read_scene.notes == []
    assert read_scene.points[:, 3:] == pytest.approx(CLOUD[:, 3:] * [1, -1, -1], abs=1e-5)


def test_a_mesh_with_many_corners_is_read_whole(tmp_path):
    vertices, faces = torus()
    mesh = read(ply(tmp_path / "a.ply", vertices, faces.tolist(), "binary_little_endian"))
    assert len(mesh.surface[1]) == len(faces)
    assert points_on(mesh.surface, 10).shape == (10, 6)

"""Mesh writers: an independent reader and our own read back what was written, face colours are not blended, no partial files."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import trimesh

from engine.errors import BadFile, BadOutput
from engine.mesh.read import read
from engine.mesh.write import FORMATS, settings, write
from tests.engine.mesh.files import Scene
from tests.engine.mesh.shapes import box, join, torus

SETTINGS = {"seed": 7, "method": "xspecmesh", "prompt": "Stuhl – 椅子\n", "knobs": {"delta": 0.5}}


def colours(count: int) -> np.ndarray:
    """A different colour for every face."""
    return (np.arange(count) * 7919 + 12345)[:, None] // [65536, 256, 1] % 256


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("offset", [0.0, 512_345.25])
def test_round_trip(tmp_path, suffix, offset):
    vertices, faces = torus()
    vertices = vertices * 3 + [offset, 0.0, -offset]
    path = write(tmp_path / f"a{suffix}", vertices, faces, metadata=SETTINGS)
    mesh = read(path)
    shift = [offset, 0.0, -offset] if suffix == ".stl" and offset else [0.0, 0.0, 0.0]
    assert mesh.surface[0][mesh.surface[1]] == pytest.approx(vertices[faces] - np.round(shift), abs=4e-6)


def test_the_title_of_an_stl_says_how_far_it_is_moved(tmp_path):
    vertices, faces = torus()
    place = np.array([512_345.678, 5_412_345.678, 245.3])
    mesh = read(write(tmp_path / "a.obj", vertices + place, faces))
    moved = write(tmp_path / "a.stl", mesh.surface[0], mesh.surface[1], shift=mesh.frame.shift).read_bytes()
    assert moved[:80].decode().split() == ["Foretoken;", "add", "512346", "5412346", "245"]
    assert mesh.notes == [
        "An STL, which has single precision only, is moved by (-512,346, -5,412,346, -245); other formats keep the place."
    ]
    assert write(tmp_path / "b.stl", vertices + 500.0, faces).read_bytes()[:80].decode().strip() == "Foretoken"


@pytest.mark.parametrize("suffix", FORMATS)
def test_another_reader_agrees(tmp_path, suffix):
    vertices, faces = join(box((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)), torus())
    mesh = trimesh.load_mesh(write(tmp_path / f"a{suffix}", vertices, faces, metadata=SETTINGS))
    mesh.merge_vertices(merge_norm=True, merge_tex=True)
    ours = trimesh.Trimesh(vertices, faces)
    assert mesh.bounds == pytest.approx(ours.bounds, abs=1e-6)
    assert (len(mesh.faces), len(mesh.vertices)) == (len(faces), len(vertices))
    assert mesh.is_watertight and mesh.volume == pytest.approx(ours.volume, rel=1e-5)


@pytest.mark.parametrize("channels", [3, 4])
def test_colours_of_faces_are_not_blended_in_a_glb(tmp_path, channels):
    vertices, faces = torus(16, 8)
    wanted = np.concatenate([colours(len(faces)), np.full((len(faces), 1), 255)], 1)
    scene = trimesh.load_scene(write(tmp_path / "a.glb", vertices, faces, wanted[:, :channels], SETTINGS))
    (mesh,) = scene.geometry.values()
    corners = mesh.visual.vertex_attributes["color"][mesh.faces]
    assert (corners == wanted[:, None, :]).all()
    assert mesh.triangles == pytest.approx(vertices[faces], abs=1e-6)


def test_colours_of_faces_in_a_ply(tmp_path):
    vertices, faces = torus(16, 8)
    wanted = colours(len(faces))
    mesh = trimesh.load_mesh(write(tmp_path / "a.ply", vertices, faces, wanted), process=False)
    assert (mesh.visual.face_colors[:, :3] == wanted).all() and len(mesh.vertices) == len(vertices)


def test_a_clean_glb_shares_its_vertices(tmp_path):
    vertices, faces = torus(16, 8)
    mesh = trimesh.load_scene(write(tmp_path / "a.glb", vertices, faces)).to_mesh()
    assert len(mesh.vertices) == len(vertices)


def test_settings_travel_inside(tmp_path):
    assert settings(write(tmp_path / "a.glb", *box(), metadata=SETTINGS)) == SETTINGS
    assert settings(write(tmp_path / "b.glb", *box(), colours(12), SETTINGS)) == SETTINGS
    assert settings(write(tmp_path / "c.glb", *box())) is None
    assert trimesh.load_scene(tmp_path / "a.glb").metadata["foretoken"] == SETTINGS
    line = write(tmp_path / "a.obj", *box(), metadata=SETTINGS).read_text().splitlines()[0]
    assert json.loads(line.removeprefix("# "))["foretoken"] == SETTINGS
    lines = write(tmp_path / "a.ply", *box(), metadata=SETTINGS).read_bytes().split(b"\n")
    assert json.loads(lines[2].removeprefix(b"comment "))["foretoken"] == SETTINGS


@pytest.mark.parametrize("suffix", [".glb", ".ply", ".obj"])
def test_long_settings_do_not_spoil_a_file(tmp_path, suffix):
    mesh = read(write(tmp_path / f"a{suffix}", *box(), metadata={"notes": "x" * 200_000}))
    assert len(mesh.surface[1]) == 12


def test_files_of_others_have_no_settings(tmp_path):
    scene = Scene()
    scene.tree["scenes"][0]["extras"] = ["something"]
    assert settings(scene.glb(tmp_path / "a.glb")) is None
    (tmp_path / "b.glb").write_bytes(b"no")
    with pytest.raises(BadFile):
        settings(tmp_path / "b.glb")


def test_a_glb_keeps_the_rules_of_the_format(tmp_path):
    content = write(tmp_path / "a.glb", *torus(), colours(2304), {"odd": "é"}).read_bytes()
    assert content[:4] == b"glTF" and int.from_bytes(content[8:12], "little") == len(content)
    size = int.from_bytes(content[12:16], "little")
    tree = json.loads(content[20 : 20 + size])
    assert size % 4 == 0 and content[20 + size + 4 : 20 + size + 8] == b"BIN\0"
    assert tree["buffers"][0]["byteLength"] == len(content) - 28 - size
    for view in tree["bufferViews"]:
        assert view["byteOffset"] % 4 == 0 and view["byteOffset"] + view["byteLength"] <= tree["buffers"][0]["byteLength"]


# --- what cannot be written -------------------------------------------------------------------------------------------


NO_COLOURS = r"cannot hold colours of faces\. Choose one of: \.glb, \.ply\.$"
EMPTY = np.zeros((3, 3)), np.zeros((0, 3), int)
REFUSED = {
    "colours in an obj": ("a.obj", (*box(), colours(12)), NO_COLOURS), "colours in an stl": ("a.stl", (*box(), colours(12)), NO_COLOURS),
    "an unknown format": ("a.fbx", box(), r"cannot be written as a\.fbx\. Choose one of: \.glb, \.obj, \.ply, \.stl\.$"),
    "no faces": ("a.glb", EMPTY, "no faces"), "a folder that is not there": ("nowhere/a.glb", box(), r"Cannot write .*nowhere.* --out"),
    "a name that is a folder": ("folder.glb", box(), "Cannot write"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_written_is_a_sentence_and_leaves_nothing(tmp_path, name, arguments, sentence):
    (tmp_path / "folder.glb").mkdir()
    with pytest.raises(BadOutput, match=sentence):
        write(tmp_path / name, *arguments)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.glb"]


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = write(tmp_path / "a.obj", *box())
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(BadOutput, match="No space left on device"):
        write(path, *torus())
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["a.obj"]


def test_writing_twice_gives_the_same_bytes(tmp_path):
    for suffix in FORMATS:
        one = write(tmp_path / f"a{suffix}", *torus(), metadata=SETTINGS).read_bytes()
        assert write(tmp_path / f"a{suffix}", *torus(), metadata=SETTINGS).read_bytes() == one

"""glTF in the rest pose, beyond areas and boxes (which are in tests/faults/corpus/meshes.py): winding, normals, limits."""

from __future__ import annotations

import time

import numpy as np
import pytest
import trimesh

from engine.errors import BadFile
from engine.mesh.formats.source import FACES
from engine.mesh.read import read
from tests.engine.mesh.files import Scene
from tests.engine.mesh.shapes import box, sphere_points
from tests.faults.corpus.meshes import FLOAT, QUARTER, UBYTE, instanced_scene, skinned_scene


def volume(path) -> float:
    """Signed volume of a mesh; fails if its reading has a note."""
    mesh = read(path)
    assert mesh.notes == []
    return trimesh.Trimesh(*mesh.surface, process=False).volume


@pytest.mark.parametrize("scale", [[1, 1, 1], [-1, 1, 1], [-1, -1, -1]])
def test_a_joint_that_mirrors_keeps_faces_outward(tmp_path, scale):
    scene = skinned_scene([[0, 0, 0, 0]] * 8, [[1, 0, 0, 0]] * 8)
    scene.tree["nodes"][2] = {"scale": scale}
    assert volume(scene.glb(tmp_path / "a.glb")) == pytest.approx(1.0)


def test_an_instance_that_mirrors_keeps_faces_outward(tmp_path):
    scene = instanced_scene(scale=(np.array([[1, 1, 1], [-1, 1, 1], [1, 2, -3]], "<f4"), FLOAT))
    assert volume(scene.glb(tmp_path / "a.glb")) == pytest.approx(8.0)


def points_scene() -> tuple[Scene, dict, np.ndarray]:
    """Points of a sphere with their normals, and their primitive."""
    rows = sphere_points(100).astype("<f4")
    scene = Scene()
    mesh = scene.mesh(rows[:, :3], None, 0, NORMAL=scene.numbers(rows[:, 3:], FLOAT))
    scene.node(mesh=mesh)
    return scene, scene.tree["meshes"][mesh]["primitives"][0], rows


def test_normals_of_points_follow_a_skin(tmp_path):
    scene, primitive, rows = points_scene()
    scene.tree["nodes"] = [{"mesh": 0, "skin": 0}, {"rotation": QUARTER, "scale": [1, 1, 2]}]
    scene.tree["skins"] = [{"joints": [1]}]
    primitive["attributes"] |= {
        "JOINTS_0": scene.numbers(np.zeros((100, 4), "u1"), UBYTE),
        "WEIGHTS_0": scene.numbers(np.tile(np.array([[1, 0, 0, 0]], "<f4"), (100, 1)), FLOAT),
    }
    cloud = read(scene.glb(tmp_path / "a.glb"), up="y")
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    normals = rows[:, 3:] @ turn.T / [1, 1, 2]  # by the inverse transpose
    assert cloud.notes == []
    assert cloud.frame.from_model(cloud.points[:, :3]) == pytest.approx(rows[:, :3] @ turn.T * [1, 1, 2], abs=1e-5)
    assert cloud.points[:, 3:] == pytest.approx(normals / np.linalg.norm(normals, axis=1, keepdims=True), abs=1e-5)


def test_normals_of_points_follow_morph_targets(tmp_path):
    scene, primitive, rows = points_scene()
    primitive["targets"] = [{"NORMAL": scene.numbers(np.tile(np.array([[0, 0, 5]], "<f4"), (100, 1)), FLOAT)}]
    scene.tree["meshes"][0]["weights"] = [1.0]
    cloud = read(scene.glb(tmp_path / "a.glb"), up="y")
    assert cloud.points[:, 5].min() > 0.9
    assert cloud.frame.from_model(cloud.points[:, :3]) == pytest.approx(rows[:, :3], abs=1e-5)


def test_limits_of_instances(tmp_path):
    """A few bytes can place a mesh millions of times: refused before it is done."""
    places = np.zeros((1_000_000, 3), "u1")
    with pytest.raises(BadFile, match=f"{FACES:,} are the most"):
        read(instanced_scene(translation=(places, UBYTE)).glb(tmp_path / "a.glb"))


def test_a_long_chain_of_nodes_takes_no_time(tmp_path):
    scene = Scene()
    mesh, count = scene.mesh(*box()), 20_000
    scene.tree["nodes"] = [{"children": [i + 1], "translation": [0.5, 0, 0]} for i in range(count)]
    scene.tree["nodes"].append({"mesh": mesh})
    scene.tree["scenes"] = [{"nodes": [0]}]
    path = scene.glb(tmp_path / "a.glb")
    start = time.process_time()
    mesh = read(path)
    assert time.process_time() - start < 10
    assert mesh.surface[0][:, 0].min() == pytest.approx(count / 2 - 0.5)

"""The numbers of the quality panel, for shapes with known values and against trimesh."""

from __future__ import annotations

import numpy as np
import pytest
import trimesh

from engine.mesh.quality import MOST_FOR_QUADS, is_inside_out, quality
from tests.engine.mesh.shapes import box, join, table, torus


def test_a_box():
    assert quality(*box()) == {
        "faces": 12, "vertices": 8, "edges": 18, "watertight": True, "winding_consistent": True, "components": 1, "degenerate": 0,
        "duplicate": 0, "open_edges_percent": 0.0, "non_manifold_edges_percent": 0.0, "euler": 2, "quad_percent": 100.0,
    }  # fmt: skip


def test_an_open_box():
    vertices, faces = box()
    report = quality(vertices, faces[2:])
    assert not report["watertight"] and report["winding_consistent"]
    assert report["faces"] == 10 and report["vertices"] == 8 and report["edges"] == 17 and report["euler"] == 1
    assert report["open_edges_percent"] == pytest.approx(100 * 4 / 17)


def test_two_boxes():
    report = quality(*join(box(), box((1.0, 1.0, 1.0), (3.0, 0.0, 0.0))))
    assert report["components"] == 2 and report["watertight"] and report["euler"] == 4
    touching = quality(*join(box(), box((1.0, 1.0, 1.0), (1.0, 1.0, 0.0))))  # along an edge, which then has four faces
    assert touching["components"] == 1 and not touching["watertight"]
    assert touching["non_manifold_edges_percent"] == pytest.approx(100 / 35)


def test_a_soup_counts_as_the_mesh_it_shows():
    vertices, faces = torus()
    soup = vertices[faces].reshape(-1, 3), np.arange(faces.size).reshape(-1, 3)
    assert quality(*soup) == quality(vertices, faces)
    assert quality(vertices, faces)["euler"] == 0


def test_a_turned_face():
    vertices, faces = box()
    faces[0] = faces[0, ::-1]
    report = quality(vertices, faces)
    assert report["watertight"] and not report["winding_consistent"]


def test_flawed_faces():
    vertices, faces = box()
    vertices = np.concatenate([vertices, [[0.5, 0.5, 0.0], [9.0, 9.0, 9.0]]])  # the middle of an edge; used by none
    report = quality(vertices, np.concatenate([faces, faces[:1], faces[3:4, ::-1], [[0, 0, 1]], [[6, 8, 7]]]))
    assert report["degenerate"] == 2 and report["duplicate"] == 2 and report["vertices"] == 9
    assert not report["watertight"]


def test_nothing():
    report = quality(np.zeros((0, 3)), np.zeros((0, 3), int))
    assert report["faces"] == 0 and report["watertight"] is False and report["components"] == 0
    assert quality(np.zeros((3, 3)), np.zeros((1, 3), int))["degenerate"] == 1
    assert set(report) == set(quality(*box()))


@pytest.mark.parametrize("mesh", [box(), torus(), table(), join(box(), torus())], ids=["box", "torus", "table", "both"])
def test_trimesh_agrees(mesh):
    report, theirs = quality(*mesh), trimesh.Trimesh(*mesh)
    assert report["watertight"] == theirs.is_watertight and report["winding_consistent"] == theirs.is_winding_consistent
    assert report["components"] == theirs.body_count and report["euler"] == theirs.euler_number
    assert report["edges"] == len(theirs.edges_unique)


def test_quads():
    step = np.arange(3)
    grid = np.array([[x, 0.0, z] for x in range(4) for z in range(4)])
    corners = np.array([[4 * i + j, 4 * i + j + 1, 4 * i + j + 5, 4 * i + j + 4] for i in step for j in step])
    faces = np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]])
    assert quality(grid, faces)["quad_percent"] == 100.0
    assert quality(grid, faces[:-1])["quad_percent"] == pytest.approx(100 * 16 / 17)
    sphere = trimesh.creation.icosphere(1)
    assert quality(sphere.vertices, sphere.faces)["quad_percent"] == 0.0  # it bends by more than ten degrees everywhere
    folded = np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0.001, 1.0]])
    assert quality(folded, np.array([[0, 2, 1], [1, 2, 3]]))["quad_percent"] == 100.0
    assert quality(folded, np.array([[0, 2, 1], [1, 2, 0]]))["quad_percent"] == 0.0


def test_very_large_meshes_are_not_paired():
    vertices, faces = torus(300, 100)
    assert len(faces) > MOST_FOR_QUADS and quality(vertices, faces)["quad_percent"] is None


def test_inside_out():
    vertices, faces = torus()
    assert not is_inside_out(vertices + 100, faces) and is_inside_out(vertices + 100, faces[:, ::-1])
    assert not is_inside_out(vertices, faces[1:, ::-1])  # open: unknown

"""Meshes of packs: polygons keep the surface, large meshes become several shapes, whole packs are held out, bad files are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import trimesh
from numpy.random import PCG64, Generator

from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.surface import areas
from research.worlds.lowpoly_shapes import augment, disturb, sample_points
from research.worlds.mesh_packs import MOST_FACES, PackMesh, join_triangles, load_packs, shapes_of

BOX = trimesh.creation.box((1, 2, 3))
NOTCHED = np.array([[0, 0, 0], [2, 0, 0], [2, 2, 0], [1, 1, 0], [0, 2, 0]], float)  # a pentagon with a notch


def archive(path: Path, packs: tuple[str, ...]) -> Path:
    """An archive that has a box in each of the packs."""
    scaled = np.round((BOX.vertices - BOX.bounds[0]) / 3 * 65535).astype(np.uint16)
    n = len(packs)
    np.savez(
        path, vertices=np.tile(scaled, (n, 1)), faces=np.tile(BOX.faces, (n, 1)).astype(np.uint16),
        vertex_counts=np.full(n, 8, np.int32), face_counts=np.full(n, 12, np.int32), names=np.array(["box"] * n), packs=np.array(packs),
    )  # fmt: skip
    return path


def folder(path: Path, packs: tuple[str, ...]) -> Path:
    """A folder that has a box in each of the packs."""
    for pack in packs:
        (path / pack).mkdir(parents=True)
        BOX.export(path / pack / "box.obj")
    return path


@pytest.mark.parametrize(
    ("vertices", "faces", "polygons"),
    [
        (BOX.vertices, BOX.faces, 6),
        (NOTCHED, np.array([[0, 1, 3], [1, 2, 3], [0, 3, 4]]), 3),  # not convex: the triangles stay
        (NOTCHED, np.array([[0, 1, 3], [0, 3, 4]]), 2),  # the corner in the middle of a side: not strictly convex
        (NOTCHED + np.array([[0, 0, 0]] * 3 + [[0, 0, 1]] + [[0, 0, 0]]), np.array([[0, 1, 3], [0, 3, 4]]), 2),  # a fold
    ],
    ids=["box", "concave", "collinear", "folded"],
)
def test_coplanar_triangles_become_convex_polygons(vertices: np.ndarray, faces: np.ndarray, polygons: int) -> None:
    vertices = np.asarray(vertices, float)
    joined = join_triangles(vertices, faces)
    assert len(joined) == polygons
    corners = [p[p >= 0] for p in joined]
    area = sum(areas(vertices, np.array([[p[0], p[i], p[i + 1]] for i in range(1, len(p) - 1)])).sum() for p in corners)
    assert area == pytest.approx(areas(vertices, faces).sum())


def test_a_large_mesh_becomes_parts_and_a_reduced_whole() -> None:
    balls = trimesh.util.concatenate([trimesh.creation.icosphere(2).apply_translation([3 * i, 0, 0]) for i in range(4)])
    shapes = shapes_of(PackMesh("balls", "pack", np.asarray(balls.vertices), np.asarray(balls.faces)), Generator(PCG64(1)))
    assert len(shapes) >= 2 and all(len(s.faces) <= MOST_FACES + 2 for s in shapes)
    parts, whole = shapes[0], shapes[-1]
    assert np.ptp(parts.vertices[:, 0]) < np.ptp(balls.vertices[:, 0]) - 1
    assert np.ptp(whole.vertices, axis=0) == pytest.approx(np.ptp(balls.vertices, axis=0), abs=0.2)
    assert not any(s.parameters["whole"] for s in shapes)
    augment(whole, Generator(PCG64(0)))


@pytest.mark.parametrize("make", [archive, folder])
def test_whole_packs_are_held_out(tmp_path: Path, make: object) -> None:
    packs = load_packs(make(tmp_path / "packs.npz", ("castle", "farm")), ("farm",))
    assert {s.family for s in packs.trained} == {"castle"} and {s.family for s in packs.held_out} == {"farm"}
    assert packs.trained[0].vertices.max() <= 1 and len(packs.trained[0].faces) == 12


@pytest.mark.parametrize(
    ("held_out", "packs", "error", "words"),
    [
        (("zoo",), ("castle",), BadPrompt, "no pack 'zoo'. Its packs are: castle"),
        (("castle",), ("castle",), BadPrompt, "All packs"),
        ((), (), BadFile, "contains no meshes"),
    ],
)
def test_packs_that_cannot_be_used_are_refused(
    tmp_path: Path, held_out: tuple[str, ...], packs: tuple[str, ...], error: type[ForetokenError], words: str
) -> None:
    tmp_path.joinpath("here").mkdir()
    with pytest.raises(error, match=words):
        load_packs(folder(tmp_path / "here", packs), held_out)


def test_an_archive_of_other_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", points=np.zeros((3, 3)))
    with pytest.raises(BadFile, match="not an archive of meshes"):
        load_packs(tmp_path / "other.npz")


def test_what_lies_around_an_object_stays_in_its_box() -> None:
    cloud = sample_points(np.asarray(BOX.vertices), np.asarray(BOX.faces), 2048, Generator(PCG64(0)))
    for seed in range(30):
        other = disturb(cloud, Generator(PCG64(seed)))
        assert other.shape == cloud.shape and not np.array_equal(other, cloud)
        assert (other[:, :3].min(0) >= cloud[:, :3].min(0) - 1e-6).all() and (other[:, :3].max(0) <= cloud[:, :3].max(0) + 1e-6).all()
        assert np.allclose(np.linalg.norm(other[:, 3:], axis=1), 1, atol=1e-5)

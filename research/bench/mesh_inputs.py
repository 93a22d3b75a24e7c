"""Inputs of `bench mesh`, point clouds of held-out procedural shapes or of files, and the distances of meshes from them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.errors import BadFile, BadPrompt
from engine.mesh.bpt_tokens import frame_of
from engine.mesh.distance import Shape, available_points, box_points, distance
from engine.mesh.frame import centre, fit
from engine.recognition.up import read_standing
from engine.run import Run
from research.bench.rows import quartiles
from research.worlds.lowpoly_shapes import MeshShape, held_out_shapes, sample_points

CLOUD = 16_384  # points of an input
PUBLISHED = {"count": 1024, "repeats": 5}  # points and draws of the papers' protocol
SUFFIXES = (".glb", ".obj", ".ply", ".stl")


@dataclass
class BenchMesh:
    """An input: its surface in the model's frame and a point cloud of it [N, 6]. family : of a held-out shape, "" for a file"""

    name: str
    vertices: np.ndarray
    faces: np.ndarray
    points: torch.Tensor
    family: str = ""


def subject_of(shape: MeshShape, seed: int) -> BenchMesh:
    """Returns the input for a shape; the seed draws its points."""
    vertices = frame_of(shape.vertices).to_model(shape.vertices)
    points = sample_points(vertices, shape.faces, CLOUD, np.random.default_rng(seed))
    return BenchMesh(shape.family, vertices, shape.faces, torch.from_numpy(points), shape.family)


def subjects(count: int, kind: str, families: Iterable[str]) -> list[BenchMesh]:
    """Returns the first `count` held-out shapes: "boxes" of the families that the model was trained on, or unseen "families"."""
    trained = set(families)
    shapes = held_out_shapes(8 * count, kind)
    chosen = [s for s in shapes if kind == "families" or s.family in trained][:count]
    return [subject_of(s, i) for i, s in enumerate(chosen)]


def files(folders: Iterable[Path], count: int) -> list[Path]:
    """The first `count` files of asset packs in a fixed random order. Raises BadPrompt if there are none."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES]
    if not paths:
        raise BadPrompt(f"The folders of assets contain no file that ends in {', '.join(SUFFIXES)}. Give other folders with --packs.")
    return [paths[i] for i in np.random.default_rng(0).permutation(len(paths))[:count]]


def assets(folders: Iterable[Path], count: int, up: str = "auto") -> list[BenchMesh]:
    """Inputs of `count` files; prints and skips a file that cannot be read or has no faces."""
    subjects = []
    for number, path in enumerate(files(folders, count)):
        try:
            read = read_standing(path, up)
        except BadFile as e:
            print(e, file=sys.stderr)
            continue
        if read.surface is None:
            print(f"{path.name} has no faces and is left out.", file=sys.stderr)
            continue
        vertices, faces = read.frame.to_model(read.surface[0]), read.surface[1]
        points = sample_points(vertices, faces, CLOUD, np.random.default_rng([number, 77]))
        subjects.append(BenchMesh(path.stem, vertices, faces, torch.from_numpy(points)))
    if not subjects:
        raise BadPrompt("No file of the folders can be read as a mesh. Give other folders with --packs.")
    return subjects


# --- distances ----------------------------------------------------------------------------------------------------------


def distances(runs: list[Run], inputs: list[BenchMesh]) -> dict[str, Any]:
    """Returns mean chamfer and Hausdorff distances with their floors, and the number of meshes without a face."""
    return mean_distances([mesh_distances(run, subject) for run, subject in zip(runs, inputs, strict=True)])


class MeshDistances(NamedTuple):
    """Distances of a mesh from its input: by the papers' protocol, and with 16,384 points."""

    published: dict[str, float]
    ours: dict[str, float]


def mesh_distances(run: Run, subject: BenchMesh) -> MeshDistances | None:
    """Returns the distances of one run's mesh; None if it has no face."""
    mesh = run.result()
    if not len(mesh.faces):
        return None
    pair = (mesh.vertices, mesh.faces), (subject.vertices, subject.faces)
    return MeshDistances(published_distance(*pair), distance(*pair))


def published_distance(result: Shape, reference: Shape, seed: int = 0) -> dict[str, Any]:
    """Chamfer, Hausdorff and their floors by the protocol of the papers: each shape in its own box of 1.9, 1,024 points, mean of five
    draws. It does not penalise a result of the wrong size or in the wrong place; `distance` is the stricter measure."""
    alone = _fit_box(result), _fit_box(reference)
    if any(shape is None for shape in alone):
        return {"chamfer": None, "hausdorff": None, "floor": None, "floor_hausdorff": None, **PUBLISHED}
    runs = [distance(*alone, PUBLISHED["count"], seed + i) for i in range(PUBLISHED["repeats"])]
    names = ("chamfer", "hausdorff", "floor", "floor_hausdorff")
    return {**{n: float(np.mean([run[n] for run in runs])) for n in names}, **PUBLISHED, "count": runs[0]["count"]}


def _fit_box(shape: Shape) -> Shape | None:
    """The shape centred, with a box of longest side 1.9; None if it has no points."""
    if not available_points(shape):
        return None
    return (fit(box_points(shape), "y").to_model(shape[0]), shape[1]) if isinstance(shape, tuple) else centre(shape)


def mean_distances(measured: Sequence[MeshDistances | None]) -> dict[str, Any]:
    """Returns the mean distances of the meshes, and the number without a face."""
    with_faces = [each for each in measured if each is not None]
    theirs, ours = [each.published for each in with_faces], [each.ours for each in with_faces]
    columns: dict[str, Any] = {"without_face": len(measured) - len(with_faces)}
    for label, rows in (("published", theirs), ("16k", ours)):
        for key in ("chamfer", "hausdorff", "floor", "floor_hausdorff"):
            columns[f"{key}_{label}"] = round(float(np.mean([row[key] for row in rows])), 4) if rows else None
    chamfer = np.array([row["chamfer"] / row["floor"] for row in ours])
    columns["chamfer_over_floor"] = quartiles(chamfer) if len(chamfer) else None
    return columns

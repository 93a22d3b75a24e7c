"""Downloads of a finished mesh."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from app.runs.history import MESH_FORMATS, as_sentence, describe, file_name, to_input_frame, write_mesh, write_settings
from engine.backbones.lowpoly import Mesh
from engine.mesh.classical import reconstruct
from engine.mesh.distance import distance
from engine.mesh.read import Input
from engine.mesh.repair import repair
from engine.mesh.shrinkwrap import shrink_to_points
from engine.mesh.write import write
from engine.run import Run

REPAIRED = "repaired.glb"
LEAST_FACES = 200  # of a classical surface: a failed run has few
FILES = {  # name: (label of the button, written file, ending of the download's name)
    "glb": ("GLB", "result.glb", ".glb"),
    "coloured": ("GLB, coloured", "acceptance.glb", "-accepted.glb"),
    "repaired": ("GLB, repaired", REPAIRED, "-repaired.glb"),
    "obj": ("OBJ", "result.obj", ".obj"),
    "ply": ("PLY", "result.ply", ".ply"),
    "stl": ("STL", "result.stl", ".stl"),
    "settings": ("run.json", "run.json", ".json"),
}


def write_files(run: Run, shape: Input, folder: Path) -> dict[str, Path]:
    """Writes a run's settings and its mesh, in the position, size and axes of its input; returns the files by name. The repaired mesh is
    a separate file, omitted if there is nothing to repair.

    folder : the visitor's; earlier files are deleted. Raises BadOutput if the disk refuses.
    """
    settings = describe(run, shape)
    stem = re.sub(r"[^\w-]+", "-", Path(shape.name).stem, flags=re.ASCII).strip("-") or "mesh"
    paths = {}
    with as_sentence(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        mesh = run.result()
        write_mesh(run, mesh, folder, settings, shape, MESH_FORMATS)
        write_repaired(mesh, folder / REPAIRED, settings, shape)
        write_settings(settings, folder / "run.json")
        for name, (_, file, ending) in FILES.items():
            path = folder / file
            if path.exists():
                paths[name] = path.rename(folder / f"{stem}-{file_name(run)}-{run.prompt.seed}{ending}")
    return paths


def shrinkwrapped_vertices(run: Run) -> np.ndarray:
    """Vertices [V, 3] of a run's mesh, moved onto its input points, in the model's frame."""
    mesh, points = run.result(), run.prompt.points
    assert points is not None, "meshes need points"
    return shrink_to_points(mesh.vertices, mesh.faces, points.cpu().numpy())


def write_shrinkwrapped(run: Run, vertices: np.ndarray, shape: Input, path: Path) -> Path:
    """Writes a run's mesh with shrinkwrapped vertices, in the format of the path's suffix; raises BadOutput if the disk refuses."""
    settings = {**describe(run, shape), "shrinkwrap": "vertices moved to the points of the input after decoding"}
    return _write(vertices, run.result().faces, settings, shape, path)


def save_shrinkwrapped(run: Run, shape: Input, folder: Path, formats: Sequence[str]) -> float | None:
    """Writes shrinkwrapped.FORMAT of a run's mesh; returns the chamfer distance from the input, None for a mesh without area."""
    vertices = shrinkwrapped_vertices(run)
    for form in formats:
        write_shrinkwrapped(run, vertices, shape, folder / f"shrinkwrapped.{form}")
    return distance((to_input_frame(vertices, shape), run.result().faces), shape.reference)["chamfer"]


def classical_surface(run: Run, behind: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """A surface through the points of a run, made without its model: vertices [V, 3] in the model's frame, faces [F, 3].

    It has as many faces as the run may have or has, but at least LEAST_FACES. behind : at a low priority. Raises
    NotSupported if this machine cannot make it, or the points span no surface.
    """
    points = run.prompt.points
    assert points is not None, "a mesh is made of points"
    return reconstruct(points.cpu().numpy(), run.prompt.size or max(len(run.result().faces), LEAST_FACES), behind)


def write_classical(run: Run, mesh: tuple[np.ndarray, np.ndarray], shape: Input, path: Path) -> Path:
    """Writes a mesh of `classical_surface`, in the format of the path's suffix; raises BadOutput if the disk refuses."""
    settings = {"input": describe(run, shape)["input"], "made": "without a model: signed distance of the points, reduced by quadric error"}
    return _write(*mesh, settings, shape, path)


def _write(vertices: np.ndarray, faces: np.ndarray, settings: Mapping[str, Any], shape: Input, path: Path) -> Path:
    with as_sentence(path.parent):
        write(path, to_input_frame(vertices, shape), faces, metadata=settings, shift=shape.frame.shift)
    return path


def write_repaired(mesh: Mesh, path: Path, settings: Mapping[str, Any], shape: Input) -> None:
    """Writes the mesh repaired by trimesh, with the report in its settings; writes nothing if there is nothing to repair."""
    if not len(mesh.faces):
        return
    repaired = repair(mesh.vertices, mesh.faces)
    if repaired.mends:
        report = {"repair": f"{repaired.text}. {repaired.compared}."}
        write(path, to_input_frame(repaired.vertices, shape), repaired.faces, metadata={**settings, **report})

"""Turns a file into an input: recognises a cloud or a mesh, cleans it, adds normals and transforms it to the model's frame.

`notes` lists what was changed or estimated, a sentence each. The file's own coordinates are never lost: `frame` transforms back,
and `surface` and `reference` are in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import BadFile
from engine.mesh import surface
from engine.mesh.formats import arrays, first_bytes, gltf, obj, off, pcd, ply, stl, text
from engine.mesh.formats.source import Raw, Source
from engine.mesh.frame import MeshFrame, choose_up, fit, outliers
from engine.mesh.normals import complete, outwardness
from engine.mesh.quality import is_inside_out
from engine.mesh.random_streams import SAMPLE, SURFACE, generator

READERS: dict[str, Callable[[Source], Raw]] = {
    ".ply": ply.read,
    ".obj": obj.read,
    ".glb": gltf.read,
    ".gltf": gltf.read,
    ".stl": stl.read,
    ".off": off.read,
    **dict.fromkeys(text.SUFFIXES, text.read),
    ".npy": arrays.read_npy,
    ".npz": arrays.read_npz,
    ".pcd": pcd.read,
}
FEWEST = 16  # minimum distinct points of a shape
LARGEST = 1e30  # squares of larger values exceed the range of float32
DRAWN = 16_384  # points drawn from a mesh
TURNED = 200_000  # maximum faces of a mesh for the inside-out test; more would take seconds


@dataclass
class Input:
    """A user's file, ready for a model.

    kind    : "cloud" or "mesh"
    points  : [N, 6] float32 in the model's frame: xyz in a box of longest side 1.9 around 0, +Y up, and unit normals; of a mesh, drawn
              uniformly from its surface
    frame   : the transform between the file's coordinates and the model's
    surface : (vertices [V, 3] float64, faces [F, 3] int64) of a mesh in the file's coordinates, None for a cloud
    notes   : a sentence for each thing that was cleaned, drawn or estimated
    """

    name: str
    kind: str
    points: np.ndarray
    frame: MeshFrame
    surface: tuple[np.ndarray, np.ndarray] | None
    notes: list[str]

    @property
    def reference(self) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """The reference for a result in the file's coordinates: the mesh, or the points and normals [N, 6]."""
        if self.surface is not None:
            return self.surface
        return np.concatenate([self.frame.from_model(self.points[:, :3]), self.frame.turn_back(self.points[:, 3:])], 1)


def read(path: Path | str, up: str = "auto") -> Input:
    """Reads a file in one of the READERS' formats; raises BadFile with a sentence about what is wrong with it.

    up : the file's axis that is up: x, y, z, -x, -y, -z, or auto: by the convention of the format
    """
    suffix = Path(path).suffix.lower()
    if suffix not in READERS:
        known = ", ".join(name[1:].upper() for name in READERS)
        raise BadFile(f"{Path(path).name} has a format that cannot be read. Save it as one of: {known}.")
    source = Source(path)
    first_bytes.check_first_bytes(source, suffix)
    with np.errstate(all="ignore"):  # a file may hold any bits; values that are not finite are dropped below
        raw = READERS[suffix](source)
    return _cloud(source, raw, suffix, up) if raw.faces is None or not len(raw.faces) else _mesh(source, raw, suffix, up)


def sample(shape: Input, count: int, seed: int = 0) -> np.ndarray:
    """Points and unit normals [count, 6] float32 in the model's frame: uniform over the surface of a mesh; from a cloud, random points,
    without repetition if it has enough."""
    random = generator(SAMPLE, seed)
    if shape.surface is not None:
        return _in_frame(shape.frame, surface.draw(*shape.surface, count, random))
    have = len(shape.points)
    chosen = random.permutation(have)[:count]
    return shape.points[np.concatenate([chosen, random.integers(0, have, count - len(chosen))])]


def _in_frame(frame: MeshFrame, rows: np.ndarray) -> np.ndarray:
    """Points and normals [N, 6] of the file in the model's frame, float32."""
    return np.concatenate([frame.to_model(rows[:, :3]), frame.turn(rows[:, 3:])], 1).astype(np.float32)


def _is_usable(points: np.ndarray) -> np.ndarray:
    """True for points [N, 3] that are finite and not absurdly far away, bool [N]."""
    return (np.abs(points) < LARGEST).all(1)  # NaN compares false


def _dropped_note(count: int, what: str, why: str) -> str:
    """The note about dropped items."""
    return f"{count:,} {what} {why} was dropped." if count == 1 else f"{count:,} {what}s {why} were dropped."


def _shift_notes(frame: MeshFrame) -> list[str]:
    """The note about coordinates that STL cannot represent."""
    moved = ", ".join(f"{value:,.10g}" for value in -frame.shift)
    return [f"An STL, which has single precision only, is moved by ({moved}); other formats keep the place."] if frame.shift.any() else []


def _mesh(source: Source, raw: Raw, suffix: str, up: str) -> Input:
    """Cleans a mesh: drops faces with NaN; raises BadFile for faces that refer to missing vertices."""
    vertices, faces, notes = raw.points, raw.faces, list(raw.notes)
    if faces.min() < 0 or faces.max() >= len(vertices):
        worst = faces[(faces < 0) | (faces >= len(vertices))][0]
        raise source.bad_file(f"a face refers to vertex {worst:,} of {len(vertices):,}")
    good = _is_usable(vertices)
    if not good.all():
        usable = good[faces].all(1)
        notes += [_dropped_note(int((~usable).sum()), "face", "with NaN or infinite corners")] if not usable.all() else []
        faces = faces[usable]
    used, faces = np.unique(faces, return_inverse=True)
    vertices, faces = vertices[used], faces.reshape(-1, 3)
    if not len(faces) or np.ptp(vertices, 0).max() <= 0 or surface.areas(vertices, faces).sum() <= 0:
        raise BadFile(f"{source.name} has no face with an area; check that it holds a surface.")
    if len(faces) <= TURNED and is_inside_out(vertices, faces):
        faces = faces[:, ::-1]
        notes.append("The faces pointed inward and were turned over.")
    samples = surface.draw(vertices, faces, DRAWN, generator(SURFACE))
    frame = fit(vertices, choose_up(suffix, up))
    notes += _shift_notes(frame)
    return Input(source.name, "mesh", _in_frame(frame, samples), frame, (vertices, np.ascontiguousarray(faces)), notes)


def _cloud(source: Source, raw: Raw, suffix: str, up: str) -> Input:
    """Cleans a cloud: drops points that are not finite, repeated or far away, and estimates missing normals."""
    points, normals, notes = raw.points, raw.normals, list(raw.notes)
    if normals is not None and normals.shape != points.shape:
        raise source.bad_file(f"it has {len(points):,} points and {len(normals):,} normals")
    if raw.total is not None and raw.total > len(points):
        notes.append(f"The file has {raw.total:,} points: {len(points):,} of them were drawn at random.")

    def keep(chosen: np.ndarray, why: str) -> None:
        nonlocal points, normals
        if dropped := int((~chosen).sum()):
            notes.append(_dropped_note(dropped, "point", why))
            points, normals = points[chosen], None if normals is None else normals[chosen]

    keep(_is_usable(points), "with NaN or infinite coordinates")
    if len(points) > 1 and np.ptp(points, 0).max() <= 1e-12 * np.abs(points).max():
        raise BadFile(f"All {len(points):,} points of {source.name} lie in one place; give points on the surface of a shape.")
    rows = points if normals is None else np.concatenate([points, normals], 1)
    first = np.zeros(len(rows), bool)
    first[np.unique(rows, axis=0, return_index=True)[1]] = True
    keep(first, "equal to another")
    if len(points) < FEWEST:
        raise BadFile(f"{source.name} has {len(points):,} usable points; a shape needs at least {FEWEST}.")
    keep(~outliers(points), "far from all others")
    frame = fit(points, choose_up(suffix, up))
    had = normals is not None
    normals, note = complete(points, normals)
    notes += [note] if note else []
    if had and not note and outwardness(points, normals) < -0.5:
        notes.append("The normals of the file point inward; turn them over if the result looks wrong.")
    notes += _shift_notes(frame)
    return Input(source.name, "cloud", _in_frame(frame, np.concatenate([points, normals], 1)), frame, None, notes)

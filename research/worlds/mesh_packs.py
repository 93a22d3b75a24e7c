"""Meshes by artists to learn from: a folder of files, with one folder per pack, or one .npz archive of many meshes.

A mesh becomes a `MeshShape`: coplanar triangles are joined to convex polygons, whose diagonals `split` then chooses, because the
diagonals that an exporter chose cannot be known from a cloud. A mesh of more faces than the model writes becomes several shapes: groups of
its connected parts, and the whole reduced by quadric error (Garland and Heckbert, 1997). Whole packs are held out, never single meshes.

The archive has vertices uint16 [all V, 3] in the box of each model (longest side 65,535), faces [all F, 3] of each model's own vertices,
vertex_counts, face_counts, names and packs, one per model; +Y is up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from engine.errors import BadFile, BadPrompt
from engine.mesh.read import READERS, read
from engine.mesh.surface import areas
from research.worlds.families.family import MeshShape

MOST_FACES = 400  # of a shape; nearly all of these fit in the 1,024 tokens of the model
FEWEST_FACES = 4
GROUPS = 2  # shapes made of connected parts of a larger mesh
FLAT = np.cos(np.radians(1.0))  # of two normals: their faces are coplanar
Surface = tuple[np.ndarray, np.ndarray]  # vertices float64 [V, 3], faces int64 [F, 3]


@dataclass(frozen=True)
class PackMesh:
    """A mesh of a pack, +Y up: vertices float64 [V, 3], triangles int64 [F, 3]."""

    name: str
    pack: str
    vertices: np.ndarray
    faces: np.ndarray


@dataclass(frozen=True)
class MeshPacks:
    """Shapes of packs, by purpose; `trained` and `held_out` share no pack."""

    trained: tuple[MeshShape, ...]
    held_out: tuple[MeshShape, ...]
    trained_packs: tuple[str, ...]
    held_out_packs: tuple[str, ...]


def load_packs(path: Path, held_out: Sequence[str] = ()) -> MeshPacks:
    """The shapes of a folder or an archive; `held_out` names whole packs that are not trained on.

    Raises BadFile if there is no mesh, BadPrompt for a pack that it does not have.
    """
    meshes = list(_folder(path) if path.is_dir() else _archive(path))
    if not meshes:
        raise BadFile(f"{path} contains no meshes. Give a folder of {', '.join(sorted(READERS))} files, or an .npz archive of meshes.")
    packs = sorted({mesh.pack for mesh in meshes})
    if strange := sorted(set(held_out) - set(packs)):
        raise BadPrompt(f"{path} has no pack '{strange[0]}'. Its packs are: {', '.join(packs)}.")
    shapes = [shape for i, mesh in enumerate(meshes) for shape in shapes_of(mesh, Generator(PCG64([31, i])))]
    trained = tuple(s for s in shapes if s.family not in held_out)
    if not trained:
        raise BadPrompt(f"All packs of {path} are held out. Hold out fewer: {', '.join(packs)}.")
    return MeshPacks(
        trained,
        tuple(s for s in shapes if s.family in held_out and s.parameters["whole"]),
        tuple(pack for pack in packs if pack not in held_out),
        tuple(sorted(held_out)),
    )


def _archive(path: Path) -> Iterator[PackMesh]:
    """The meshes of an archive; raises BadFile for another file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            a = {name: file[name] for name in ("vertices", "faces", "vertex_counts", "face_counts", "names", "packs")}
    except (OSError, ValueError, KeyError) as e:
        raise BadFile(
            f"{path} is not an archive of meshes ({e}). It needs vertices, faces, vertex_counts, face_counts, names, packs."
        ) from e
    v, f = (np.concatenate([[0], a[name].cumsum()]) for name in ("vertex_counts", "face_counts"))
    for i, (name, pack) in enumerate(zip(a["names"], a["packs"], strict=True)):
        vertices = a["vertices"][v[i] : v[i + 1]] / 65535 * 2 - 1
        yield PackMesh(str(name), str(pack), vertices, a["faces"][f[i] : f[i + 1]].astype(np.int64))


def _folder(path: Path) -> Iterator[PackMesh]:
    """The meshes of the files in a folder; a pack is a folder in it, or the folder itself."""
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() not in READERS or file.suffix.lower() in (".npy", ".npz"):
            continue
        source = read(file)
        if source.surface is not None:
            vertices, faces = source.surface
            parts = file.relative_to(path).parts
            yield PackMesh(file.stem, parts[0] if len(parts) > 1 else path.name, source.frame.to_model(vertices), faces)


def shapes_of(mesh: PackMesh, rng: Generator) -> list[MeshShape]:
    """The shapes that a mesh teaches: itself, or groups of its parts and the reduced whole if it has more than MOST_FACES faces."""
    whole = mesh.vertices, mesh.faces
    if len(mesh.faces) <= MOST_FACES:
        surfaces = [whole]
    else:
        surfaces = [group for _ in range(GROUPS) if (group := _parts_near(whole, rng)) is not None]
        surfaces.append(reduce_surface(whole, int(rng.integers(MOST_FACES // 3, MOST_FACES + 1))))
    return [
        MeshShape(
            vertices, polygons, np.zeros(len(polygons), np.int64), ("mesh",), mesh.pack, {"name": mesh.name, "whole": faces is mesh.faces}
        )
        for vertices, faces in surfaces
        if len(faces) >= FEWEST_FACES and (polygons := join_triangles(vertices, faces)) is not None
    ]


def _parts_near(surface: Surface, rng: Generator) -> Surface | None:
    """A random connected part and its nearest neighbours, up to MOST_FACES faces together; None if that part alone has more."""
    vertices, faces = surface
    ends = np.concatenate([faces[:, :2], faces[:, 1:]])
    count, part_of = connected_components(coo_matrix((np.ones(len(ends)), ends.T), shape=(len(vertices),) * 2), directed=False)
    sizes = np.bincount(part_of[faces[:, 0]], minlength=count)
    sums = np.stack([np.bincount(part_of, vertices[:, axis], count) for axis in range(3)], 1)
    middles = sums / np.bincount(part_of, minlength=count)[:, None]
    start = rng.choice(count, p=sizes / sizes.sum())
    order = np.argsort(np.linalg.norm(middles - middles[start], axis=1), kind="stable")
    chosen = order[np.cumsum(sizes[order]) <= MOST_FACES]
    if start not in chosen:
        return None
    return _drop_unused(vertices, faces[np.isin(part_of[faces[:, 0]], chosen)])


def reduce_surface(surface: Surface, most: int) -> Surface:
    """A surface reduced to about `most` faces by quadric error."""
    import pyvista  # only recipes need it here, and its import takes seconds

    vertices, faces = surface
    data = pyvista.PolyData.from_regular_faces(vertices, faces).decimate(1 - most / len(faces))
    return _drop_unused(np.asarray(data.points, np.float64), data.regular_faces.astype(np.int64))


def _drop_unused(vertices: np.ndarray, faces: np.ndarray) -> Surface:
    """The surface without vertices that no face uses."""
    used, rest = np.unique(faces, return_inverse=True)
    return vertices[used], rest.reshape(-1, 3)


def join_triangles(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray | None:
    """Triangles int [F, 3] with coplanar neighbours joined to strictly convex polygons, int64 [P, K] padded with -1; None without area."""
    faces = faces[areas(vertices, faces) > 1e-12]
    if not len(faces):
        return None
    normals = np.cross(vertices[faces[:, 1]] - vertices[faces[:, 0]], vertices[faces[:, 2]] - vertices[faces[:, 0]])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    polygons = [polygon for group in _coplanar(faces, normals) for polygon in _convex(vertices, faces[group], normals[group[0]])]
    width = max(map(len, polygons))
    return np.array([polygon + [-1] * (width - len(polygon)) for polygon in polygons], np.int64)


def _coplanar(faces: np.ndarray, normals: np.ndarray) -> list[np.ndarray]:
    """Groups of faces with shared edges and nearly equal normals; an edge of more than two faces joins none."""
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    owner = np.tile(np.arange(len(faces)), 3)
    _, edge, count = np.unique(np.sort(ends, 1), axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(edge.ravel(), kind="stable")
    pairs = owner[order[count[edge.ravel()[order]] == 2]].reshape(-1, 2)
    pairs = pairs[(normals[pairs[:, 0]] * normals[pairs[:, 1]]).sum(1) > FLAT]
    number, group = connected_components(coo_matrix((np.ones(len(pairs)), pairs.T), shape=(len(faces),) * 2), directed=False)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(group, minlength=number))[:-1])


def _convex(vertices: np.ndarray, faces: np.ndarray, normal: np.ndarray) -> list[list[int]]:
    """The outline of a group of coplanar faces as one polygon, or its triangles if the outline is not one strictly convex loop."""
    triangles = faces.tolist()
    if len(triangles) == 1:
        return triangles
    edges = {(f[i], f[(i + 1) % 3]) for f in triangles for i in range(3)}
    after = {a: b for a, b in edges if (b, a) not in edges}
    start = next(iter(after), None)
    loop = [start] if start is not None else []
    while loop and (following := after.get(loop[-1])) is not None and following != start and len(loop) < len(after):
        loop.append(following)
    outer = sum((b, a) not in edges for a, b in edges)
    if len(loop) < 3 or len(loop) != outer or after.get(loop[-1]) != start:
        return triangles
    corners = vertices[loop]
    sides = np.roll(corners, -1, 0) - corners
    sides /= np.linalg.norm(sides, axis=1, keepdims=True).clip(1e-12)
    turns = np.cross(np.roll(sides, 1, 0), sides) @ normal
    return [loop] if (turns > 1e-3).all() else triangles

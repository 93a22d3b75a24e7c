"""A surface through an oriented cloud by geometry alone: no model and no tokens, for comparison and where the model fails.

Source: the signed distance to the tangent planes of the nearest points and its zero level (Hoppe et al., Surface Reconstruction from
Unorganized Points, 1992), then reduction by quadric error (Garland and Heckbert, Surface Simplification Using Quadric Error Metrics, 1997),
both by VTK.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from engine.errors import NotSupported
from engine.sandbox import Died, TookTooLong, run_sandboxed

NEIGHBOURS = 8  # the tangent plane of a point counts as far as its eighth neighbour, in the median
CELLS = 2.0  # of the grid, in that distance
FEWEST, MOST = 12, 96  # cells along the longest side
COUNTS = (12, 16, 24, 34, 50, 70, 100, 140, 200, 280)  # faces to choose from; more seldom fit in 1,024 tokens
NEAR = 0.005  # mean distance from the points that a surface of few faces may have, in longest sides
CHECKED = 1500  # points that this distance is measured at
PATIENCE = 60.0  # seconds
REMEMBERED = 16  # surfaces of recent clouds
BEHIND = 10  # of its priority, that it gives up to runs


@lru_cache(maxsize=REMEMBERED)
def reconstruct_once(points: bytes, faces: int | None) -> tuple[np.ndarray, np.ndarray]:
    """As `reconstruct`, of float32 points [N, 6] as bytes, so that the runs of one cloud make their surface once."""
    return reconstruct(np.frombuffer(points, np.float32).reshape(-1, 6), faces)


def reconstruct(points: np.ndarray, faces: int | None = None, behind: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float64 [V, 3] and faces int64 [F, 3] of a surface through points [N, 6] with outward unit normals.

    Computed in a separate process. faces : its faces, or a few more; None: as few of COUNTS as leave it NEAR the points. behind : at a low
    priority. Raises NotSupported if VTK cannot do it here, or there is no surface.
    """
    try:
        vertices, triangles = run_sandboxed(surface, np.asarray(points), faces, seconds=PATIENCE, nice=BEHIND if behind else 0)
    except TookTooLong as e:
        raise NotSupported(f"The classical surface took longer than {PATIENCE:.0f} seconds. Upload fewer points.") from e
    except (Died, ImportError, OSError) as e:
        raise NotSupported("VTK does not work on this machine, so there is no classical surface. Install libegl1 and libgl1.") from e
    if not len(triangles):
        raise NotSupported("The points span no classical surface. Upload more of them, with normals that point outward.")
    return vertices, triangles


def surface(points: np.ndarray, faces: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [V, 3] and faces [F, 3] as `reconstruct`, computed in this process. Both are empty if the points span no surface."""
    import pyvista

    pyvista.vtk_verbosity("off")
    places = points[:, :3]
    tree, length = cKDTree(places), max(float(np.ptp(places, axis=0).max()), 1e-9)
    level = zero_level(points, tree, length)
    if not level.n_cells:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    if faces is None:
        checked = places[np.random.default_rng(0).permutation(len(places))[:CHECKED]]
        mesh = fewest_faces(level, checked, NEAR * length)
    else:
        mesh = reduced(level, faces)
    vertices, triangles = np.asarray(mesh.points, np.float64), mesh.faces.reshape(-1, 4)[:, 1:].astype(np.int64)
    return vertices, outward(vertices, triangles, points[:, 3:], tree)


def zero_level(points: np.ndarray, tree: cKDTree, length: float) -> Any:
    """The zero level of the signed distance to the tangent planes of points [N, 6], as PolyData of triangles. length : longest side"""
    import pyvista
    import vtk
    from vtk.util.numpy_support import numpy_to_vtk

    places = points[:, :3]
    cloud = pyvista.PolyData(places.astype(np.float32))
    cloud.point_data.SetNormals(numpy_to_vtk(points[:, 3:].astype(np.float32), deep=True))
    reach = float(np.median(tree.query(places, min(NEIGHBOURS + 1, len(points)))[0][:, -1]))
    side = length / np.clip(CELLS * length / max(reach, 1e-9), FEWEST, MOST)
    reach = max(reach, CELLS * side)
    low, high = places.min(0) - 2 * reach, places.max(0) + 2 * reach
    field = vtk.vtkSignedDistance()
    field.SetInputData(cloud)
    field.SetRadius(reach)
    field.SetDimensions(*np.ceil((high - low) / side).astype(int).tolist())
    field.SetBounds(*np.stack([low, high], 1).ravel().tolist())
    level = vtk.vtkExtractSurface()
    level.SetInputConnection(field.GetOutputPort())
    level.SetRadius(reach)
    level.HoleFillingOn()
    level.Update()
    mesh = pyvista.wrap(level.GetOutput()).clean()  # triangles without an area become lines and points, which are left out
    return pyvista.PolyData(mesh.points, mesh.faces)


def reduced(mesh: Any, faces: int) -> Any:
    """A PolyData of triangles reduced by quadric error to about `faces`."""
    return mesh.decimate(1 - faces / mesh.n_cells) if mesh.n_cells > faces else mesh


def fewest_faces(mesh: Any, places: np.ndarray, near: float) -> Any:
    """The mesh reduced to the smallest of COUNTS at which places [N, 3] lie `near` it in the mean; to the largest if none does."""
    import pyvista

    def is_near(count: int) -> bool:
        measured = pyvista.PolyData(places).compute_implicit_distance(reduced(mesh, count))
        return float(np.abs(measured["implicit_distance"]).mean()) <= near

    smallest = bisect_left(COUNTS, True, hi=len(COUNTS) - 1, key=is_near)
    return reduced(mesh, COUNTS[smallest])


def outward(vertices: np.ndarray, faces: np.ndarray, normals: np.ndarray, tree: cKDTree) -> np.ndarray:
    """The faces [F, 3], all turned around if they look against the normals [N, 3] of the nearest points of the tree."""
    corners = vertices[faces]
    areas = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    return faces if (areas * normals[tree.query(corners.mean(1))[1]]).sum() >= 0 else faces[:, ::-1]

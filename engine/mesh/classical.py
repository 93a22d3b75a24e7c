"""A surface through an oriented cloud by geometry alone: no model and no tokens, for comparison and where the model fails.

Source: the signed distance to the tangent planes of the nearest points and its zero level (Hoppe et al., Surface Reconstruction from
Unorganized Points, 1992), then reduction by quadric error (Garland and Heckbert, Surface Simplification Using Quadric Error Metrics, 1997),
both by VTK.
"""

from __future__ import annotations

import numpy as np

from engine.errors import NotSupported
from engine.sandbox import Died, TookTooLong, run_sandboxed

CELLS = 40  # of the grid, along the longest side
REACH = 3.0  # cells around a point in which its tangent plane counts
FACES = 400  # of the surface, where nothing else is wanted
PATIENCE = 60.0  # seconds


def reconstruct(points: np.ndarray, faces: int = FACES) -> tuple[np.ndarray, np.ndarray]:
    """Vertices float64 [V, 3] and faces int64 [F, 3], F at most `faces` or a few more, through points [N, 6] with outward unit normals.

    Computed in a separate process. Raises NotSupported if VTK cannot do it here.
    """
    try:
        return run_sandboxed(surface, np.asarray(points, np.float64), faces, seconds=PATIENCE)
    except TookTooLong as e:
        raise NotSupported(f"The classical surface took longer than {PATIENCE:.0f} seconds. Upload fewer points.") from e
    except (Died, ImportError, OSError) as e:
        raise NotSupported("VTK does not work on this machine, so there is no classical surface. Install libegl1 and libgl1.") from e


def surface(points: np.ndarray, faces: int) -> tuple[np.ndarray, np.ndarray]:
    """The same in this process. Without an area to span, both arrays are empty."""
    import pyvista
    import vtk
    from vtk.util.numpy_support import numpy_to_vtk

    pyvista.vtk_verbosity("off")
    cloud = pyvista.PolyData(points[:, :3].astype(np.float32))
    cloud.point_data.SetNormals(numpy_to_vtk(points[:, 3:].astype(np.float32), deep=True))
    low, high = points[:, :3].min(0), points[:, :3].max(0)
    side = max(float((high - low).max()) / CELLS, 1e-9)
    low, high = low - REACH * side, high + REACH * side
    field = vtk.vtkSignedDistance()
    field.SetInputData(cloud)
    field.SetRadius(REACH * side)
    field.SetDimensions(*np.ceil((high - low) / side).astype(int).tolist())
    field.SetBounds(*np.stack([low, high], 1).ravel().tolist())
    level = vtk.vtkExtractSurface()
    level.SetInputConnection(field.GetOutputPort())
    level.SetRadius(REACH * side)
    level.HoleFillingOn()
    level.Update()
    mesh = pyvista.wrap(level.GetOutput()).clean()  # triangles without an area become lines and points, which are left out
    mesh = pyvista.PolyData(mesh.points, mesh.faces)
    if mesh.n_cells > faces:
        mesh = mesh.decimate(1 - faces / mesh.n_cells)
    return np.asarray(mesh.points, np.float64), mesh.faces.reshape(-1, 4)[:, 1:].astype(np.int64)

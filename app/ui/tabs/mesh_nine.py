"""Nine meshes at once: the one nearest to the input is framed."""

from __future__ import annotations

from collections.abc import Sequence

from app.requests.meshes import UNLIMITED, settings
from app.runs.mesh_pictures import SketchedMesh
from app.ui.mesh_side import floors
from app.ui.tabs.mesh_outcome import fit_to
from app.ui.tabs.race import RaceRequest
from app.ui.tabs.seed_grid import Judged, Kind
from engine.mesh.fit import Fit

NONE = "No seed gave a mesh of this input. Try another seed, or more points with outward normals."


def judge(boards: Sequence[SketchedMesh], request: RaceRequest) -> Judged:
    """The judgement by the distances to the input."""
    meshes = [board.run.result() for board in boards]
    return judged([fit_to(mesh.vertices, mesh.faces, request.shape) for mesh in meshes], [len(mesh.faces) for mesh in meshes])


def judged(fits: Sequence[Fit | None], faces: Sequence[int]) -> Judged:
    """The judgement by the fits of the meshes, None for one without area; and their numbers of faces."""
    words, known = [floors(fit) for fit in fits], [i for i, fit in enumerate(fits) if fit]
    if not known:
        return Judged(None, words, "None of the nine is a mesh", NONE, {"faces": 0})
    best = min(known, key=lambda i: fits[i].over_floor)
    headline = f"{sum(fits[i].verdict == 'good' for i in known)} of {len(fits)} match your points well"
    return Judged(best, words, headline, f"Framed: the nearest. {fits[best].text}", {"faces": faces[best], "fit": fits[best].word})


MESHES = Kind(
    "meshes", "nine", lambda backbone: settings(backbone.sampling), SketchedMesh, lambda board: f"{len(board.parser.faces):,} faces", judge,
    UNLIMITED,
)  # fmt: skip

"""Values of the Mesh tab's panels for a race: the view, the charts, and the line above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.live.boards.mesh import MeshBoard
from app.live.stream import pair
from app.ui.method_menu import CLASSICAL_SIDE, left_badge, run_badge, title_of
from app.ui.panels import canvas, mesh, to_text, verdict
from app.ui.panels.captions import bpt_words
from app.ui.panels.race import RaceFrame
from app.ui.race_panels import MESHES
from engine.mesh.bpt_tokens import dequantize
from engine.mesh.fit import Fit
from engine.run import Run

SPAN = 128  # the token count of a mesh is not known in advance, so the trace axis ends at a multiple of this
WORDS = verdict.Words("The downloads contain the accelerated mesh.")
MEASURING = {"state": "running", "live": "Measuring the meshes", "detail": "Their quality, and how well they fit the input."}
FLAT = {"state": "done", "tone": "bad", "headline": "The mesh has no area", "detail": "All of its faces are flat. Try another seed."}


class MadeMesh(NamedTuple):
    """A mesh made after a run: vertices [V, 3] in the model's frame, faces [F, 3], its fit (None without an area), and the seconds that it
    took."""

    vertices: np.ndarray
    faces: np.ndarray
    fit: Fit | None
    seconds: float = 0.0


def token_count(run: Run) -> str:
    """Token count of a run, in words."""
    return f"{len(run.tokens):,} token{'' if len(run.tokens) == 1 else 's'}"


def without_a_face(run: Run) -> dict[str, Any]:
    """The line above the view for a run without faces: what happened, and what to try."""
    if run.stopped and not run.finished:
        detail = f"It had {token_count(run)}. Let it run longer before you cancel."
        return {"state": "stopped", "headline": "Stopped before the first face", "detail": detail}
    ended = bool(run.tokens) and run.tokens[-1] == run.backbone.end
    what = "ended the mesh" if ended else "reached the length limit"
    detail = f"{run.method.title} {what} after {token_count(run)}. Try another seed, choose another up axis, or give points with "
    return {
        "state": "done",
        "tone": "bad",
        "headline": "The mesh has no faces",
        "detail": f"{detail}normals that point outward.",
        **verdict.INSTEAD,
    }


def side_of(board: MeshBoard, title: str, badge: Mapping[str, Any] | None, course: Mapping[str, str] | None = None) -> mesh.Side:
    """Side of the view for a board. course : of a finished run, for the replay"""
    faces = board.records
    empty = f"No faces in {token_count(board.run)}." if board.ended and not len(faces) else ""
    return mesh.Side(faces, board.ghosts, title, canvas.state(board), badge, board.run.totals, empty, course)


def course_of(board: MeshBoard) -> dict[str, str]:
    """Course of a run, as base64: seconds (float32), passes and tokens (int32) after each step, its drafts, see MeshBoard.guesses, its
    tokens (int32), and MeshBoard.corners."""
    steps = board.run.steps
    return {
        "seconds": to_text(np.cumsum([step.seconds for step in steps]).astype(np.float32)),
        "passes": to_text(np.cumsum([step.forwards for step in steps]).astype(np.int32)),
        "tokens": to_text(np.cumsum([len(step.tokens) for step in steps]).astype(np.int32)),
        "drafts": to_text(board.guesses()),
        "ids": to_text(np.array(board.run.tokens, np.int32)),
        "corners": to_text(board.corners),
    }


def floors(fit: Fit | None) -> str:
    """The distance of a mesh from its input, in words."""
    return "No area" if fit is None else f"{max(fit.over_floor, 1):.1f} sampling floors"


def surfaces_of(board: MeshBoard, fit: Fit | None, others: Mapping[str, MadeMesh]) -> dict[str, mesh.Surface]:
    """Surfaces that a finished side can show. fit : of its own mesh; others : meshes by the names of SURFACES"""
    surfaces = {mesh.DECODED: mesh.Surface(floors(fit))}
    if mesh.SNAPPED in others:
        snapped = others[mesh.SNAPPED]
        surfaces[mesh.SNAPPED] = mesh.Surface(floors(snapped.fit), snapped_corners(board, snapped.vertices))
    if mesh.CLASSICAL in others:
        surfaces[mesh.CLASSICAL] = classical_surface(others[mesh.CLASSICAL])
    return surfaces


def snapped_corners(board: MeshBoard, vertices: np.ndarray) -> np.ndarray:
    """float [F, 3, 3]: the faces of a board with the vertices of its mesh moved. vertices : [V, 3], moved; a corner that the mesh does not
    have, of a face without area, stays"""
    cells = ((board.run.result().vertices + 1) / 2 * mesh.CELLS - 0.5).round().astype(int)
    moved = dict(zip(map(tuple, cells.tolist()), vertices, strict=True))
    corners = board.faces.reshape(-1, 3)
    places = [moved.get(tuple(cell), place) for cell, place in zip(corners.tolist(), dequantize(corners), strict=True)]
    return np.array(places).reshape(-1, 3, 3)


def classical_surface(made: MadeMesh) -> mesh.Surface:
    """A surface made without the model, for a side."""
    return mesh.Surface(f"{floors(made.fit)}, no tokens, no model", made.vertices[made.faces])


def classical_side(made: MadeMesh | str | None) -> mesh.Side:
    """A left side that shows a surface made without the model. made : None = not yet, a sentence = why there is none"""
    title, text = CLASSICAL_SIDE
    if not isinstance(made, MadeMesh):
        return mesh.Side.empty(title, made or text)
    counters, surfaces = {"seconds": made.seconds}, {mesh.CLASSICAL: classical_surface(made)}
    return mesh.Side(title=title, state="done", counters=counters, surfaces=surfaces, shows=mesh.CLASSICAL)


def draw_race(boards: Sequence[MeshBoard], points: np.ndarray, changed: set[int], left: mesh.Side | None = None) -> dict[str, Any]:
    """Values of the view, of the line above it during the race, and of the charts if the accelerated board changed. boards : the right
    one first; left : a side without a run"""
    over = all(board.ended for board in boards)
    sides = {"plain": left}
    for name, board in zip(("accelerated", "plain"), boards, strict=False):
        mark = (run_badge if board is boards[0] else left_badge)(board.run) if board.count else None
        sides[name] = side_of(board, title_of(board.run.name), mark, course_of(board) if over and board.count else None)
    fast = boards[0]
    courses = MESHES.live_values(frame_of(boards)) if 0 in changed and fast.count else {}
    line = {} if over else {"verdict": verdict.encode(*pair(boards), WORDS)}
    return {"viewer": mesh.encode(sides, points), **line, **courses}


def frame_of(boards: Sequence[MeshBoard]) -> RaceFrame:
    """Input of the panels for a race of meshes."""
    return RaceFrame(boards, -(-len(boards[0].trail.positions) // SPAN) * SPAN, words=bpt_words)

"""Results of a race of meshes: measurements, files, the verdict with the fit, and the rows of the table of runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from app.live.boards.mesh import MeshBoard
from app.live.stream import pair
from app.requests.sides import CLASSICAL
from app.runs.history import to_input_frame
from app.runs.mesh_files import FILES, classical_surface, write_files
from app.runs.mesh_pictures import SketchedMesh
from app.runs.run_store import RunStore
from app.ui.mesh_side import FLAT, WORDS, MadeMesh, floors, without_a_face
from app.ui.panels import notice, runs, verdict
from app.ui.tabs import quality_table
from app.ui.tabs.forking import Fork
from app.ui.tabs.quality_table import MeasuredSide
from app.ui.tabs.saving import try_save
from engine.errors import NotSupported
from engine.mesh.distance import distance
from engine.mesh.fit import Fit, fit_of
from engine.mesh.read import Input
from engine.mesh.repeats import REPEATS, loop_start
from engine.run import Run


class MeshOutcome(NamedTuple):
    """sides : measured boards, the left one first; fit : of the accelerated mesh, None if it has no area
    classical : the surface made in place of a left run, or why there is none; None: not wanted"""

    sides: list[MeasuredSide]
    fit: Fit | None
    classical: MadeMesh | str | None = None


def measure(boards: Sequence[MeshBoard], shape: Input, left: str | None = None) -> MeshOutcome:
    """Measures the meshes of a race, and makes the classical surface if it is the left side. boards : the right one first"""
    fast = boards[0]
    sides = [quality_table.measure(b, "fast" if b is fast else "plain", shape) for b in reversed(boards) if b.count]
    made = make_classical(fast.run, shape) if left == CLASSICAL else None
    return MeshOutcome(sides, fit_of(sides[-1].numbers) if len(fast.faces) else None, made)


def make_classical(run: Run, shape: Input) -> MadeMesh | str:
    """The classical surface of a run's points, or the sentence that says why there is none."""
    start = time.perf_counter()
    try:
        vertices, faces = classical_surface(run)
    except NotSupported as e:
        return str(e)
    seconds = time.perf_counter() - start
    return MadeMesh(vertices, faces, fit_to(vertices, faces, shape), seconds)


def fit_to(vertices: np.ndarray, faces: np.ndarray, shape: Input) -> Fit | None:
    """The fit of a mesh in the model's frame to its input; None without an area."""
    return fit_of(distance((to_input_frame(vertices, shape), faces), shape.reference))


def against_classical(line: Mapping[str, Any], fast: MeshBoard, outcome: MeshOutcome) -> dict[str, Any]:
    """The line of a finished run next to a surface without tokens: both distances instead of a speed-up."""
    if isinstance(outcome.classical, str):
        return {**line, "detail": outcome.classical}
    made, run = outcome.classical, fast.run
    headline = f"Model {floors(outcome.fit)}, classical surface {floors(made.fit)}".replace(" sampling", "")
    detail = (
        f"{run.seconds:.2f} s and {len(run.result().faces):,} faces by the model, {made.seconds:.2f} s and {len(made.faces):,} by geometry."
    )
    return {**line, "headline": headline, "detail": detail, "tone": "even"}


def summary(
    boards: Sequence[MeshBoard], outcome: MeshOutcome, seconds: Sequence[Sequence[float]], fork: Fork | None = None
) -> dict[str, Any]:
    """The line above the view, with warnings for a mesh that is empty, has no area or does not match its input. fork : if they are two
    futures of a run"""
    fast = boards[0]
    if not len(fast.faces):
        return without_a_face(fast.run)
    line = verdict.encode(*pair(boards), WORDS, seconds)
    if outcome.classical and line["state"] == "done":
        line = against_classical(line, fast, outcome)
    fits = {"fit": outcome.fit.text, "fits": outcome.fit.verdict} if outcome.fit else {}
    loop = loop_start(fast.faces.tolist())
    if loop is not None and line["state"] == "done":  # a race over repeated faces shows no speed-up
        detail = f"It ends with at least {REPEATS} faces that it already had, so there is no speed-up to show. Try another seed."
        return {**line, **fits, "headline": f"It repeats itself since face {loop:,}", "tone": "even", "detail": detail}
    if fork and line["state"] == "done":
        shared = sum(face.tokens[2][-1] < fork.at for face in fast.parser.faces)
        new, old = (len(board.faces) for board in boards)
        headline = f"{new - shared:,} new faces instead of {old - shared:,}, after {shared:,} shared ones"
        return verdict.with_fork(line, boards, fork.tokens, fork.at, headline) | fits
    if outcome.fit:
        return verdict.with_fit(line, outcome.fit, bool(outcome.classical))
    return line if line["state"] != "done" else FLAT


def rows(boards: Sequence[SketchedMesh], outcome: MeshOutcome, shape: Input) -> list[runs.RunRow]:
    """Rows of the table of runs, the right side first."""
    entries = []
    for board in boards:
        side = next((s for s in outcome.sides if (s.side == "fast") == (board is boards[0])), None)
        more = {"faces": side.numbers["faces"] if side else 0, "holes": side.repair.holes if side else 0, "fit": None}
        if board is boards[0] and outcome.fit:
            more["fit"] = outcome.fit.word
        entries.append(runs.RunRow(board, runs.thumbnail(board.final()), shape, more))
    return entries


def offers(
    fast: MeshBoard, shape: Input, folder: Path, run_store: RunStore, notices: list[dict[str, str]], other: Run | None = None
) -> dict[str, Any]:
    """Writes the downloads and saves the run; returns updates of the buttons and messages. If the disk refuses one, the other is still
    written. notices : to keep on the page; other : the left run"""
    files, lost = try_save("downloads", lambda: write_files(fast.run, shape, folder))
    _, unkept = try_save("history", lambda: run_store.save(fast.run, shape, other))
    paths: Mapping[str, Path] = files or {}
    buttons = {name: gr.DownloadButton(value=str(paths.get(name, "")) or None, interactive=name in paths) for name in FILES}
    return {"messages": [*notices, *notice.error(*lost, *unkept)], **buttons}

"""Export of saved runs to one file that replays them: HTML, GIF or MP4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from app.live.boards.mesh import MeshBoard
from app.live.boards.patches import Patches
from app.live.boards.picture import Board
from app.live.stream import Growth, pair
from app.runs import mesh_pictures, race_files, replay_page
from app.runs.finished import FinishedRun
from app.ui import mesh_side, picture_side, race_panels
from app.ui.method_menu import PLAIN_SIDE, run_badge, title_of
from app.ui.panels import canvas, mesh, overlay, replay, verdict
from engine.errors import NotSupported

SHOWN = 4096  # maximum number of points in the view


def write(folders: Sequence[Path], out: Path, kind: str) -> Path:
    """Writes the runs of one to four folders to a file. kind : ".html", ".gif" or ".mp4". Two runs: the right side first; more: from left
    to right.

    Raises BadFile for damaged folders, NotSupported for a mix of pictures and meshes, and where nothing can be drawn or encoded.
    """
    runs = [FinishedRun.open(folder) for folder in folders]
    are_meshes = [run.prompt.points is not None for run in runs]
    if any(are_meshes) != all(are_meshes):
        raise NotSupported("Pictures and meshes cannot be in one race. Give runs of one kind.")
    boards = [play_to_end((MeshBoard if are_meshes[0] else Board)(run)) for run in runs]
    if len(boards) > len(race_files.SIDES):
        return write_several(boards, runs, out, kind)
    if kind == ".html":
        return write_page(boards, runs[0], out)
    return mesh_pictures.write_any(boards[::-1], [title_of(run.name) for run in runs[::-1]], out, are_meshes[0])


def write_several(boards: Sequence[Growth], runs: Sequence[FinishedRun], out: Path, kind: str) -> Path:
    """Writes the file of three or four runs."""
    meshes, names, colours = runs[0].prompt.points is not None, canvas.LANES[: len(runs)], race_files.LANES[: len(runs)]
    titles = [title_of(run.name) for run in runs]
    if kind == ".html":
        parts, values = (lanes_of_meshes if meshes else lanes_of_pictures)(boards, runs, dict(zip(names, titles, strict=True)))
        text = replay_page.page_text(boards[::-1], runs[0].prompt.text or "", runs[0].settings)
        return replay_page.write(out, replay_page.LANES, parts, values, text._replace(whose="the first run"))
    return mesh_pictures.write_any(boards, titles, out, meshes, colours)


def lanes_of_pictures(
    boards: Sequence[Board], runs: Sequence[FinishedRun], titles: Mapping[str, str]
) -> tuple[dict[str, gr.HTML], dict[str, Any]]:
    """Panels of several pictures, and their values. titles : by lane name"""
    scales = canvas.scales(list(boards))
    values = {
        name: canvas.encode(board, board.final(boards), scales, name, title, run_badge(run), boards)
        for (name, title), board, run in zip(titles.items(), boards, runs, strict=True)
    }
    return {name: canvas.build(name, "", "") for name in titles} | {"replay": replay.build("lanes-replay")}, values


def lanes_of_meshes(
    boards: Sequence[MeshBoard], runs: Sequence[FinishedRun], titles: Mapping[str, str]
) -> tuple[dict[str, gr.HTML], dict[str, Any]]:
    """Panels of several meshes, and their values. titles : by lane name"""
    sides = {
        name: mesh_side.side_of(board, title, run_badge(run), mesh_side.course_of(board))
        for (name, title), board, run in zip(titles.items(), boards, runs, strict=True)
    }
    parts = {"viewer": mesh.build(None, "mesh-lanes-view", canvas.LANES), "replay": replay.build("mesh-lanes-replay")}
    return parts, {"viewer": mesh.encode(sides, points_of(runs[0]), canvas.LANES)}


def points_of(run: FinishedRun) -> np.ndarray:
    """Input points of a mesh, at most SHOWN of them."""
    points = run.prompt.points.numpy()
    return points[:: -(-len(points) // SHOWN)].astype(np.float32)


def play_to_end(board: Growth) -> Growth:
    """Adds all steps of its run to a board; returns the board."""
    for step in board.run:
        board.add(step)
    return board


def write_page(boards: Sequence[Any], run: FinishedRun, out: Path) -> Path:
    """Writes the HTML file of one or two runs, the right one first. It lacks the quality of meshes, because a run's folder contains the
    points that the model read, not the input."""
    every = set(range(len(boards)))
    if isinstance(boards[0], MeshBoard):
        view, order = mesh.build(mesh.encode({name: mesh.Side.empty("") for name in mesh.SIDES})), replay_page.MESHES
        parts = {"verdict": verdict.build(elem_id="mesh-verdict"), "viewer": view, "replay": replay.build("mesh-replay")}
        parts |= race_panels.MESHES.build()
        values = mesh_side.draw_race(boards, points_of(run), every) | {"verdict": verdict.encode(*pair(boards), mesh_side.WORDS)}
    else:
        order, sides = replay_page.PICTURES, {"left": canvas.build("plain", *PLAIN_SIDE), "right": canvas.build("fast", "", "")}
        parts = {"verdict": verdict.build(), **sides, "replay": replay.build(), "overlay": overlay.build(), **race_panels.PICTURES.build()}
        values = picture_side.draw_race(boards, every, Patches(run.backbone))
    return replay_page.write(out, order, parts, values, replay_page.page_text(boards, run.prompt.text or "", run.settings))

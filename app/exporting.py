"""Saved runs as one file that replays them: HTML, GIF or MP4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from app import mesh_pictures, race_files
from app.boards.mesh import MeshBoard
from app.boards.patches import Patches
from app.boards.picture import Board
from app.recorded import Recorded, open_run
from app.stream import Growth
from app.ui import mesh_side, picture_side, replay_page
from app.ui.comparing import PLAIN_SIDE, pair
from app.ui.method_menu import title_of
from app.ui.panels import canvas, mesh, overlay, replay, trace, tree, verdict
from engine.errors import NotSupported

SHOWN = 4096  # most points of a cloud in the view


def write(folders: Sequence[Path], out: Path, kind: str) -> Path:
    """Writes the runs of one or two folders, the right one first, as a file of a kind: ".html", ".gif" or ".mp4".

    Raises BadFile for damaged folders, NotSupported for a picture beside a mesh, and where nothing can be drawn or encoded.
    """
    runs = [open_run(folder) for folder in folders]
    are_meshes = [run.prompt.points is not None for run in runs]
    if any(are_meshes) != all(are_meshes):
        raise NotSupported("A picture and a mesh cannot stand side by side. Give two runs of one kind.")
    boards = [played((MeshBoard if are_meshes[0] else Board)(run)) for run in runs]
    if kind == ".html":
        return (write_meshes if are_meshes[0] else write_pictures)(boards, runs, out)
    titles = [title_of(run.name) for run in runs]
    if are_meshes[0]:
        drawn = mesh_pictures.draw_race(boards)
        return (mesh_pictures.write_video if kind == ".mp4" else mesh_pictures.write_race)(drawn, boards, titles, out)
    shown = boards[::-1]
    return (race_files.write_video if kind == ".mp4" else race_files.write_gif)(shown, titles[::-1], out)


def played(board: Growth) -> Growth:
    """The board at the end of its run."""
    for step in board.run:
        board.add(step)
    return board


def write_pictures(boards: Sequence[Board], runs: Sequence[Recorded], out: Path) -> Path:
    """The HTML file of pictures."""
    parts = {
        "verdict": verdict.build(), "left": canvas.build("plain", *PLAIN_SIDE), "right": canvas.build("fast", "", ""),
        "replay": replay.build(), "overlay": overlay.build(), "trace": trace.build(), "tree": tree.build(),
    }  # fmt: skip
    values = picture_side.draw_race(boards, set(range(len(boards))), Patches(runs[0].backbone))
    told = replay_page.told(boards, runs[0].prompt.text or "", runs[0].settings)
    return replay_page.write(out, replay_page.PICTURES, parts, values, told)


def write_meshes(boards: Sequence[MeshBoard], runs: Sequence[Recorded], out: Path) -> Path:
    """The HTML file of meshes. Their quality is not in it: the folder of a run holds the points that the model read, not the input."""
    waiting = {name: mesh.Side.waiting("") for name in mesh.SIDES}
    parts = {
        "verdict": verdict.build(elem_id="mesh-verdict"), "viewer": mesh.build(mesh.encode(waiting)),
        "replay": replay.build("mesh-replay"), "trace": trace.build("mesh-trace"), "tree": tree.build("mesh-tree"),
    }  # fmt: skip
    points = runs[0].prompt.points.numpy()
    points = points[:: -(-len(points) // SHOWN)].astype(np.float32)
    values = mesh_side.draw_race(boards, points, set(range(len(boards)))) | {"verdict": verdict.encode(*pair(boards), mesh_side.WORDS)}
    told = replay_page.told(boards, runs[0].prompt.text or "", runs[0].settings)
    return replay_page.write(out, replay_page.MESHES, parts, values, told)

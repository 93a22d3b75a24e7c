"""Pictures of meshes: of a growing one, and of a finished race as GIF and MP4, with a turntable.

engine/mesh/picture.py draws the latter off screen in one process of low priority.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from app.live.boards.mesh import MeshBoard
from app.runs import race_files
from app.runs.race_files import FAST, PLAIN, Colours, heading_of, sheet_at, step_count_at, times, write_film, write_frames
from engine.mesh.bpt_tokens import BPT, dequantize
from engine.mesh.picture import View, pictures
from engine.mesh.rotation import rotation
from engine.mesh.sketch import Sketch
from engine.run import Run

SIDE = 288  # pixels
PATIENCE = 300.0  # seconds: nobody waits for these pictures, and a busy machine gives them little time
FRAMES = 20  # of a race
TURNS = 30  # of a turntable
CLAY = (201, 211, 224)
BEHIND = "#e9edf2"  # colour behind the picture of a growing mesh


class SketchedMesh(MeshBoard):
    """A growing mesh with its picture."""

    def __init__(self, run: Run):
        super().__init__(run)
        self._sketch, self._drawn = Sketch(run.prompt.points.cpu().numpy()), 0

    def growing(self) -> np.ndarray:
        """uint8 [H, W, 4]: the faces so far, and opacity."""
        faces = self.faces
        self._sketch.add(dequantize(faces[self._drawn :]))
        self._drawn = len(faces)
        return self._sketch.picture()

    def final(self) -> np.ndarray:
        """uint8 [H, W, 3]: the picture for the file."""
        mesh = Image.fromarray(self.growing())
        behind = Image.new("RGB", mesh.size, BEHIND)
        behind.paste(mesh, mask=mesh)
        return np.asarray(behind)


@dataclass(frozen=True)
class RaceFrames:
    """uint8 [SIDE, SIDE, 3] each. race : frames [FRAMES][boards]; turns : frames of the accelerated mesh"""

    race: list[list[np.ndarray]]
    turns: list[np.ndarray]


def draw_race(
    boards: Sequence[MeshBoard], colours: Colours = (FAST, PLAIN), turns: bool = True, wanted: Callable[[], bool] | None = None
) -> RaceFrames:
    """Draws the pictures of a race; raises NotSupported where nothing can be drawn off screen.

    boards : the right one first; colours : of each board's newest faces; turns : with the turntable; wanted : once False, raises Unwanted
    """
    race = [view_after(board, step_count_at(board, now), colour) for now in times(boards, FRAMES) for board, colour in zip(boards, colours)]
    whole = view_after(boards[0], len(boards[0].run.steps), None)
    around = [rotate(whole, 360.0 * number / TURNS) for number in range(TURNS if turns else 0)]
    images = pictures([*race, *around], SIDE, PATIENCE, behind=True, wanted=wanted)
    frames = [images[at : at + len(boards)] for at in range(0, len(race), len(boards))]
    return RaceFrames(frames, images[len(race) :])


def view_after(board: MeshBoard, steps: int, colour: tuple[int, int, int] | None) -> View:
    """View of a mesh after some steps. colour : of the faces completed by the last step, None = like the others"""
    count = int((board.step < steps).sum())  # faces are in the order of their steps
    corners = (board.faces[:count].astype(np.float32) + 0.5) / BPT.cells * 2 - 1
    shades = np.full((count, 3), CLAY, np.uint8)
    if colour is not None and not (steps == len(board.run.steps) and board.ended):
        shades[board.step[:count] == steps - 1] = colour
    return View(corners.reshape(-1, 3), np.arange(3 * count).reshape(-1, 3), shades)


def rotate(view: View, degrees: float) -> View:
    """A view turned about the vertical axis."""
    return View(view.vertices @ rotation(degrees).T.astype(np.float32), view.faces, view.colours)


def write_race(race: RaceFrames, boards: Sequence[MeshBoard], titles: Sequence[str], path: Path, colours: Colours = ()) -> Path:
    """Writes the race as a GIF or an MP4, by the path's suffix, each side on its own clock, the last board leftmost. titles, colours : per
    board. Raises NotSupported without an encoder."""
    order = boards[::-1], titles[::-1], colours[::-1]
    return write_film(frames(race, *order), path, FRAMES)


def frames(race: RaceFrames, boards: Sequence[MeshBoard], titles: Sequence[str], colours: Colours) -> Iterator[Image.Image]:
    """Yields the captioned frames of a race, the last board of `race` first."""
    for now, row in zip(times(boards, FRAMES), race.race, strict=True):
        yield sheet_at(boards, [Image.fromarray(picture) for picture in reversed(row)], titles, now, colours, heading_of(boards))


def write_turntable(race: RaceFrames, path: Path) -> Path:
    """Writes a GIF of the accelerated mesh turning once about the vertical axis."""
    return write_frames([Image.fromarray(picture) for picture in race.turns], path)


def write_any(boards: Sequence[Any], titles: Sequence[str], path: Path, meshes: bool, colours: Colours = ()) -> Path:
    """Writes a race of pictures or meshes as a GIF or an MP4, by the path's suffix. boards : from left to right

    Raises NotSupported without an encoder, and for meshes where nothing can be drawn off screen.
    """
    if not meshes:
        return race_files.write_race(boards, titles, path, colours)
    boards, titles, colours = boards[::-1], titles[::-1], colours[::-1]  # meshes: the first board is rightmost
    return write_race(draw_race(boards, colours or (FAST, PLAIN), turns=False), boards, titles, path, colours)

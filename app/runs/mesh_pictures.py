"""Pictures of a finished race of meshes: a thumbnail of each side, the race as a GIF and as an MP4, and a turntable.

They are drawn off screen by engine/mesh/picture.py in one process, behind everything else on the machine.
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
from app.runs.race_files import FAST, PLAIN, Colours, sheet_at, step_count_at, times, write_film, write_frames
from engine.mesh.bpt_tokens import BPT
from engine.mesh.picture import View, pictures
from engine.mesh.rotation import rotation

SIDE = 288  # pixels
FRAMES = 20  # of a race
TURNS = 30  # of a turntable
CLAY = (201, 211, 224)


@dataclass(frozen=True)
class RaceFrames:
    """thumbnails : uint8 [SIDE, SIDE, 3] of each board; race : frames of the boards, [FRAMES][boards]; turns : of the accelerated mesh"""

    thumbnails: list[np.ndarray]
    race: list[list[np.ndarray]]
    turns: list[np.ndarray]


def draw_race(
    boards: Sequence[MeshBoard], colours: Colours = (FAST, PLAIN), turns: bool = True, wanted: Callable[[], bool] | None = None
) -> RaceFrames:
    """The pictures of a race, the right board first; raises NotSupported where nothing can be drawn off screen.

    colours : of the newest faces of each board; turns : with the turntable; wanted : once it says False, raises Unwanted
    """
    whole = [view_after(board, len(board.run.steps), None) for board in boards]
    race = [view_after(board, step_count_at(board, now), colour) for now in times(boards, FRAMES) for board, colour in zip(boards, colours)]
    around = [rotate(whole[0], 360.0 * number / TURNS) for number in range(TURNS if turns else 0)]
    images = pictures([*whole, *race, *around], SIDE, behind=True, wanted=wanted)
    first, last = len(whole), len(whole) + len(race)
    frames = [images[at : at + len(boards)] for at in range(first, last, len(boards))]
    return RaceFrames(images[:first], frames, images[last:])


def view_after(board: MeshBoard, steps: int, colour: tuple[int, int, int] | None) -> View:
    """A mesh after some steps. colour: of the faces that the last of them completed, None = they look like the others"""
    count = int((board.step < steps).sum())  # faces come in the order of their steps
    corners = (board.faces[:count].astype(np.float32) + 0.5) / BPT.cells * 2 - 1
    shades = np.full((count, 3), CLAY, np.uint8)
    if colour is not None and not (steps == len(board.run.steps) and board.ended):
        shades[board.step[:count] == steps - 1] = colour
    return View(corners.reshape(-1, 3), np.arange(3 * count).reshape(-1, 3), shades)


def rotate(view: View, degrees: float) -> View:
    """A mesh that is turned about the vertical."""
    return View(view.vertices @ rotation(degrees).T.astype(np.float32), view.faces, view.colours)


def write_race(race: RaceFrames, boards: Sequence[MeshBoard], titles: Sequence[str], path: Path, colours: Colours = ()) -> Path:
    """Writes the race as a GIF or an MP4, by the path's ending: every side on its own clock, the right one last. titles, colours: of the
    boards. Raises NotSupported without an encoder."""
    order = boards[::-1], titles[::-1], colours[::-1]
    return write_film(frames(race, *order), path, FRAMES)


def frames(race: RaceFrames, boards: Sequence[MeshBoard], titles: Sequence[str], colours: Colours) -> Iterator[Image.Image]:
    """The frames of a race with their words, the last board of `race` first."""
    for now, row in zip(times(boards, FRAMES), race.race, strict=True):
        yield sheet_at(boards, [Image.fromarray(picture) for picture in reversed(row)], titles, now, colours)


def write_turntable(race: RaceFrames, path: Path) -> Path:
    """Writes the accelerated mesh as a GIF that turns once about the vertical."""
    return write_frames([Image.fromarray(picture) for picture in race.turns], path)


def write_any(boards: Sequence[Any], titles: Sequence[str], path: Path, meshes: bool, colours: Colours = ()) -> Path:
    """Writes a race of pictures or meshes as a GIF or an MP4, by the path's ending. boards : from left to right

    Raises NotSupported without an encoder, and for meshes where nothing can be drawn off screen.
    """
    if not meshes:
        return race_files.write_race(boards, titles, path, colours)
    boards, titles, colours = boards[::-1], titles[::-1], colours[::-1]  # files of meshes have the first one last
    return write_race(draw_race(boards, colours or (FAST, PLAIN), turns=False), boards, titles, path, colours)

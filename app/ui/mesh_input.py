"""What a visitor gives the Mesh tab to work on: an example or a file of their own, what it is, and the points that are shown of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.ui import knobs as knob_panel
from app.ui.panels import notice
from engine import assets
from engine.core import Knob
from engine.errors import BadFile
from engine.mesh.formats import ply
from engine.mesh.formats.source import Source
from engine.mesh.frame import UP
from engine.mesh.read import Input, sample

EXAMPLES = assets.clouds()
ORDER = ("table", "chair", "house", "tree", "tower", "bottle", "mushroom", "rocket")  # of the examples
FIRST = "chair"
SHOWN = 4096  # points in the view at most
AXIS = Knob(
    "up_axis", "", "auto", choices=("auto", *UP), live=False, help="Which axis of the file points up. auto: what its kind suggests."
)


class Given(NamedTuple):
    """What a visitor works on, the file it was read from with which axis up, and the file that was refused after it."""

    path: Path
    shape: Input
    up: str = "auto"
    refused: str = ""


def axis(name: str = "auto") -> dict[str, Any]:
    """The panel of the axis that is up."""
    return knob_panel.encode("input", (AXIS,), {"up_axis": name})


def describe(given: Input) -> list[dict[str, str]]:
    """What was read, and a line for everything that was cleaned or guessed on the way."""
    if given.surface is None:
        what = f"{given.name}: a cloud of {len(given.points):,} points."
    else:
        what = f"{given.name}: a mesh of {len(given.surface[1]):,} faces; {len(given.points):,} points were drawn from its surface."
    return notice.notes([what, *given.notes])


def shown_points(given: Input) -> np.ndarray:
    """The points [N, 6] that the view shows of an input."""
    return sample(given, min(SHOWN, len(given.points)))


def example_clouds() -> dict[str, np.ndarray]:
    """The points and normals of the examples, [N, 6] by name: as they are, since cleaning all would keep the page waiting."""
    raw = {name: ply.read(Source(EXAMPLES / f"{name}.ply")) for name in ORDER}
    return {name: np.concatenate([found.points, found.normals], 1) for name, found in raw.items()}


def adopt(file: Path, folder: Path) -> Path:
    """Moves a file that was sent into a folder of its own, and returns its new place; raises BadFile for what is no file any more."""
    if not file.is_file():
        raise BadFile(f"{file.name} did not arrive. Drop it again.")
    folder.mkdir(parents=True)
    return Path(shutil.move(file, folder / file.name))


def example_name(given: Given | None) -> str:
    """The example that somebody works on; "" if it is a file of their own."""
    return given.path.stem if given is not None and given.path.parent == EXAMPLES else ""

"""The input of the Mesh tab: an example or the visitor's own file, its description, and the points that the view shows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.ui.panels import axes, notice
from app.ui.tabs import checked_values as asked
from engine import assets
from engine.errors import BadFile, BadPrompt
from engine.mesh.formats import ply
from engine.mesh.formats.source import Source
from engine.mesh.frame import UP
from engine.mesh.read import Input, sample

EXAMPLES = assets.clouds()
ORDER = ("table", "chair", "house", "tree", "tower", "bottle", "barrel", "sword")  # of the examples
FIRST = "chair"
SHOWN = 4096  # most points in the view


class Given(NamedTuple):
    """A visitor's input, the file it was read from, the axis that is up, and the name of a file that was refused after it."""

    path: Path
    shape: Input
    up: str = "auto"
    refused: str = ""


def axis(given: Given) -> dict[str, Any]:
    """The value of the up-axis panel for an input."""
    return axes.encode(given.shape.points, given.shape.frame.up, given.up)


def checked_axis(value: object) -> str:
    """The axis that a page sent: of the panel's value, or by its name. Raises BadPrompt."""
    name = value.get("up") if isinstance(value, Mapping) else value
    if name != axes.AUTO and name not in tuple(UP):
        raise BadPrompt(f"The up axis cannot be {asked.brief(name)}. Choose one of the pictures.")
    return str(name)


def describe(given: Input) -> list[dict[str, str]]:
    """Notices: what was read, and one line for everything that was cleaned or guessed."""
    if given.surface is None:
        what = f"{given.name}: a point cloud of {len(given.points):,} points."
    else:
        what = f"{given.name}: a mesh of {len(given.surface[1]):,} faces; {len(given.points):,} points were sampled from its surface."
    return notice.notes([what, *given.notes])


def shown_points(given: Input) -> np.ndarray:
    """The points [N, 6] that the view shows of an input."""
    return sample(given, min(SHOWN, len(given.points)))


def example_clouds() -> dict[str, np.ndarray]:
    """The points and normals of the examples, [N, 6] by name, not cleaned: cleaning all would delay the page."""
    raw = {name: ply.read(Source(EXAMPLES / f"{name}.ply")) for name in ORDER}
    return {name: np.concatenate([found.points, found.normals], 1) for name, found in raw.items()}


def adopt(file: Path, folder: Path) -> Path:
    """Moves an uploaded file into its own folder and returns the new path; raises BadFile if the file is gone."""
    if not file.is_file():
        raise BadFile(f"{file.name} did not arrive. Drop it again.")
    folder.mkdir(parents=True)
    return Path(shutil.move(file, folder / file.name))


def example_name(given: Given | None) -> str:
    """The name of the example that a visitor works on; "" for their own file."""
    return given.path.stem if given is not None and given.path.parent == EXAMPLES else ""

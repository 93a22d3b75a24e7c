"""The input of the Mesh tab: an example or the visitor's own file, its description, and the points that the view shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.requests.meshes import EXAMPLES, ORDER
from app.ui.panels import axes, notice
from engine.mesh.formats import ply
from engine.mesh.formats.source import Source
from engine.mesh.read import Input, sample

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


def example_name(given: Given | None) -> str:
    """The name of the example that a visitor works on; "" for their own file."""
    return given.path.stem if given is not None and given.path.parent == EXAMPLES else ""

"""What an experiment keeps of a single run besides the numbers of its row: columns for figures that need more than a mean, and pictures.

A column holds JSON. Pictures lie in a folder beside the CSV, one file for each input and row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from engine.errors import BadOutput
from engine.mesh.picture import View, pictures
from engine.run import Run

PICTURE = "picture"  # kept as a file
SIDE = 256  # pixels of a drawn mesh
POINTS = 2048  # of a drawn cloud


def committed(run: Run) -> list[int]:
    """Returns for every position, in raster order, how many tokens the pass committed that committed it."""
    found = {position: len(step.tokens) for step in run.steps for position in step.positions}
    return [found[position] for position in sorted(found)]


def stages(run: Run) -> dict[str, float]:
    """Returns the seconds of a run by stage, and the rest as "other"."""
    found: Counter[str] = Counter()
    for step in run.steps:
        found.update(step.trace.stages or {})
    return {name: round(seconds, 5) for name, seconds in found.items()} | {"other": round(run.seconds - found.total(), 5)}


KEPT: dict[str, Callable[[Run], Any]] = {"committed": committed, "stages": stages}  # by the name of the column


def kept(names: Sequence[str], run: Run) -> dict[str, Any]:
    """Returns the columns of a run."""
    return {name: KEPT[name](run) for name in names if name != PICTURE}


# --- pictures ---------------------------------------------------------------------------------------------------------


def picture_at(table: Path, number: int, place: int) -> Path:
    """Returns the file of a picture. table : the CSV; number : of the input; place : of the row in the declaration, -1: the input itself"""
    name = "input" if place < 0 else f"{place:02}"
    return table.with_suffix("") / f"{number:03}-{name}.png"


def save(picture: np.ndarray, path: Path) -> None:
    """Writes a picture uint8 [H, W, 3]; raises BadOutput if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another folder with --to.") from e


def save_meshes(points: Tensor, meshes: Mapping[int, Any], table: Path, number: int) -> None:
    """Draws the cloud [N, 6] of an input and its meshes by place, and writes them; raises NotSupported where meshes cannot be drawn."""
    views = [View(points[:POINTS].numpy()), *(View(mesh.vertices, mesh.faces) for mesh in meshes.values())]
    for place, drawn in zip((-1, *meshes), pictures(views, SIDE), strict=True):
        save(drawn, picture_at(table, number, place))

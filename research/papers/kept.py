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

from engine.diagnostics import per_token
from engine.errors import BadOutput
from engine.mesh.picture import View, pictures
from engine.run import Run
from research.bench.likelihood import scores

PICTURE = "picture"  # kept as a file
SIDE = 256  # pixels of a drawn mesh
POINTS = 2048  # of a drawn cloud
SHARES = (0.02, 0.3, 0.98)  # of all places, in order of the top-1 probability, whose distributions are kept
SHOWN = 64  # most probable tokens of such a distribution


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


def lengths(run: Run) -> list[int]:
    """Returns the number of drafts that each pass with drafts accepted."""
    return [int(np.nansum(per_token(step, "accepted"))) for step in run.steps if step.drafted]


def ranks(run: Run) -> list[int]:
    """Returns of each accepted node of the draft trees its place among its siblings, 1 = the first, in the order they are verified.

    For chosen children, that is the rank of their probability under the drafter.
    """
    trees = [step.trace.tree for step in run.steps if step.trace.tree]
    return [1 + sum(parent == tree.parents[node] for parent in tree.parents[:node]) for tree in trees for node in tree.path]


def laws(run: Run) -> dict[str, Any]:
    """Returns the distributions that plain decoding draws from, given the tokens of the finished run.

    top : the top-1 probability at every place, in raster order
    at  : by place, the greatest probabilities in order, of a place with a flat, one with a middling and one with a peaked distribution
    """
    found = scores(run.backbone, run.prompt, run.tokens, run.positions).softmax(-1)
    top = found.amax(-1)
    order = top.argsort().tolist()
    asked = dict.fromkeys(order[int(share * (len(order) - 1))] for share in SHARES)
    return {
        "top": [round(x, 4) for x in top.tolist()],
        "at": {place: [round(x, 5) for x in found[place].sort(descending=True).values[:SHOWN].tolist()] for place in asked},
    }


def contrast(picture: np.ndarray, side: int) -> np.ndarray:
    """Returns the standard deviation of grey values in each tile of a square picture [H, W, 3], [side * side] in raster order."""
    grey = picture.astype(float).mean(2)
    size = len(grey) // side
    tiles = grey[: size * side, : size * side].reshape(side, size, side, size)
    return tiles.std((1, 3)).ravel()


def detail(run: Run) -> float:
    """Returns the rank correlation, -1 to 1, of the top-1 probability at a place and the contrast of its tile of the picture."""
    top = scores(run.backbone, run.prompt, run.tokens, run.positions).softmax(-1).amax(-1).cpu().numpy()
    pair = [values.argsort().argsort() for values in (top, contrast(run.result(), round(len(top) ** 0.5)))]
    return round(float(np.corrcoef(*pair)[0, 1]), 4)


KEPT: dict[str, Callable[[Run], Any]] = {  # by the name of the column
    "committed": committed,
    "lengths": lengths,
    "ranks": ranks,
    "laws": laws,
    "detail": detail,
    "stages": stages,
}


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

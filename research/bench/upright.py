"""`launch.py bench mesh --upright`: how often the up axis is found, on held-out shapes of all families and on the files of asset packs.

The files of the packs must have +Y up. Every input is turned into each of the six orientations. An answer is right if the shape, stood
on it, looks the same as upright: of a family by `alike_up`, of a file if a sample of it is no farther from the upright one than ALIKE
times the sampling floor, turned about the vertical in quarters. "shape" is the network alone, which gives the same answer turned for a
turned cloud; "file" also weighs the convention of the format (of OBJ) and the ground, as reading a file does; "as it is" is the file in
the orientation that it has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.errors import BadFile
from engine.mesh.distance import distance
from engine.mesh.frame import fit
from engine.mesh.read import Input, read
from engine.mesh.rotation import rotation as around
from engine.networks.weights import read_card
from engine.recognition import up
from engine.recognition.up import AXES, Upright, rotation, stood
from research.bench.plan import MeshJudgeBench
from research.bench.rows import append_csv, check_csv
from research.survey import BOXES, FAMILIES, Surface, files, subject_of
from research.worlds.lowpoly_shapes import HELD_OUT_FAMILIES, TRAINED_FAMILIES, alike_up, held_out_shape

ALIKE, COMPARED = 1.3, 2048  # times the floor; points
PACKS = "packs"
Answers = tuple[str, str, list[bool], list[bool]]  # source, name, and for each orientation whether shape and file are right


def bench(plan: MeshJudgeBench) -> list[dict[str, Any]]:
    """Returns the rows: each family or pack that is not always right, then all of each source."""
    check_csv(plan.csv)
    found = list(answers(plan, up.load()))
    groups: dict[str, list[Answers]] = {}
    for one in found:
        groups.setdefault(one[1] if one[0] in (BOXES, FAMILIES) else one[0], []).append(one)
    rows = [row for name, of in groups.items() if (row := summary(name, of))["shape"] < 1]
    for source in (BOXES, FAMILIES, PACKS):
        of = [one for one in found if source in (one[0], *([PACKS] if one[0] not in (BOXES, FAMILIES) else []))]
        rows += [summary(f"all {source}", of)] if of else []
    stamp = {"network": read_card(up.FOLDER)["upright"]["steps"]}
    rows = [row | stamp for row in rows]
    for row in rows:
        print(
            f"{row['row']:32} {row['inputs']:4}  shape {row['shape']:6.1%}  file {row['file']:6.1%}  as it is {row['as_it_is']:6.1%}",
            flush=True,
        )
    if plan.csv:
        append_csv(plan.csv, rows)
    return rows


def summary(name: str, of: list[Answers]) -> dict[str, Any]:
    """Returns the shares of right answers."""
    shape, file = (round(float(np.mean([right for one in of for right in one[k]])), 4) for k in (2, 3))
    return {"row": name, "inputs": len(of), "shape": shape, "file": file, "as_it_is": round(float(np.mean([one[3][0] for one in of])), 4)}


def answers(plan: MeshJudgeBench, judge: Upright) -> Iterator[Answers]:
    """Yields what is answered about each input of the plan."""
    number = 0
    for _ in range(plan.each):
        for family in (*TRAINED_FAMILIES, *HELD_OUT_FAMILIES):
            shape = held_out_shape(family, number)
            subject = subject_of(shape, FAMILIES if family in HELD_OUT_FAMILIES else BOXES, number)
            likes = {AXES[i] for i in alike_up(shape)}
            ground = shape.vertices - [0, shape.vertices[:, 1].min(), 0]
            yield subject.source, family, *asked(judge, (ground, shape.faces), subject.points, likes)
            number += 1
    for source, path in files(plan.packs, plan.count) if plan.packs else ():
        try:
            read_up = read(path, "y")
        except BadFile as e:
            print(e, file=sys.stderr)
            continue
        if read_up.surface is not None:
            yield source, path.stem, *asked(judge, read_up.surface, read_up.points, None)


def asked(judge: Upright, surface: Surface, points: np.ndarray, likes: set[str] | None) -> tuple[list[bool], list[bool]]:
    """Returns for each orientation whether the network alone, and the reading of a file, find an axis that looks upright.

    likes : the axes of the upright shape that look the same; None: compare the surface
    """
    said = AXES[int(judge.chances(points).argmax())]
    right: dict[str, bool] = {}

    def looks_upright(axis: str) -> bool:
        if axis not in right:
            right[axis] = axis == "y" or (axis in likes if likes is not None else alike(surface, axis))
        return right[axis]

    found = []
    for axis in AXES:
        turn = rotation(axis)  # takes the axis of the turned file to +Y
        vertices = surface[0] @ turn
        cloud = np.concatenate([points[:, :3] @ turn, points[:, 3:] @ turn], 1)
        given = stood(Input("a.obj", "mesh", cloud, fit(vertices, "y"), (vertices, surface[1]), []), judge)
        found.append(looks_upright(named(turn @ rotation(given.frame.up)[1])))
    return [looks_upright(said)] * len(AXES), found


def named(direction: np.ndarray) -> str:
    """The axis of a direction [3]."""
    return next(axis for axis in AXES if np.allclose(rotation(axis)[1], direction))


def alike(surface: Surface, axis: str) -> bool:
    """Whether a surface stood on another axis looks the same as on +Y from some side."""
    vertices, faces = surface
    centre = (vertices.min(0) + vertices.max(0)) / 2
    for quarter in range(4):
        stands = (vertices - centre) @ (around(90.0 * quarter) @ rotation(axis)).T
        apart = distance((stands, faces), (vertices - centre, faces), COMPARED)
        if apart["chamfer"] < ALIKE * apart["floor"]:
            return True
    return False

"""The quality of the meshes of `bench mesh`: distance to their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.mesh.distance import distance, published
from engine.run import Run
from research.bench.mesh_inputs import Subject
from research.bench.rows import quartiles


def apart(runs: list[Run], inputs: list[Subject]) -> dict[str, Any]:
    """Returns mean chamfer and Hausdorff distances with their floors, and the number of inputs that gave no face."""
    return together([near(run, subject) for run, subject in zip(runs, inputs, strict=True)])


class Near(NamedTuple):
    """How far a mesh is from its input: by the papers' protocol, and with 16,384 points."""

    published: dict[str, float]
    ours: dict[str, float]


def near(run: Run, subject: Subject) -> Near | None:
    """Returns the distances of one run's mesh; None if it has no face."""
    mesh = run.result()
    if not len(mesh.faces):
        return None
    pair = (mesh.vertices, mesh.faces), (subject.vertices, subject.faces)
    return Near(published(*pair), distance(*pair))


def together(measured: Sequence[Near | None]) -> dict[str, Any]:
    """Returns the means of some meshes, and how many had no face."""
    some = [each for each in measured if each is not None]
    theirs, ours = [each.published for each in some], [each.ours for each in some]
    found: dict[str, Any] = {"without_face": len(measured) - len(some)}
    for label, rows in (("published", theirs), ("16k", ours)):
        for key in ("chamfer", "hausdorff", "floor", "floor_hausdorff"):
            found[f"{key}_{label}"] = round(float(np.mean([row[key] for row in rows])), 4) if rows else None
    chamfer = np.array([row["chamfer"] / row["floor"] for row in ours])
    found["chamfer_over_floor"] = quartiles(chamfer) if len(chamfer) else None
    return found

"""`launch.py bench mesh --judge`: whether plain decoding makes the right thing, on held-out shapes of all families and on asset packs.

The judge of meshes (`research/mesh_judge.py`) names what it sees in a mesh. Of a held-out shape its family is known; of a file of a
pack the mesh is right if it is named as the file itself is. Distances are those of `engine/mesh/distance.py` over their floor. Rows: one
for every family and every pack, then all boxes, families and packs together. With --csv every input gets a row of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.backbones.lowpoly import Lowpoly, Mesh
from engine.core import Backbone, Sampling
from engine.mesh.fit import VERDICTS, verdict_of
from engine.mesh.picture import View, contact_sheet
from engine.networks.weights import read_card
from research import mesh_judge
from research.bench.figures import sheet
from research.bench.plan import MeshJudgeBench
from research.bench.rows import append_csv, check_csv, experiment, quartiles
from research.survey import BOXES, FAMILIES, Record, Subject, assets, shapes, survey

PAIRS, CELL = 4, 192  # of the sheet: pairs in a row, pixels
PACKS = "packs"


def bench(plan: MeshJudgeBench) -> list[dict[str, Any]]:
    """Returns the rows of the table, printed when all inputs are measured; raises MissingWeights if there is no judge."""
    check_csv(plan.csv)
    backbone, judge = plan.load(), mesh_judge.load()
    sampling = plan.sampling_of(backbone)
    records = [record for _, record, _ in surveyed(plan, backbone, judge, sampling)]
    told = {"judge": read_card(mesh_judge.FOLDER)["mesh_judge"]["held_out"], "up": plan.up, "faces_allowed": plan.faces}
    told |= {"best_of": plan.best_of, "shrinkwrap": plan.shrinkwrap}
    stamp = experiment(backbone, sampling, **told)
    rows = [row | {k: v for k, v in stamp.items() if k not in row} for row in table(records)]
    for row in rows:
        print(readable(row), flush=True)
    if plan.csv:
        append_csv(plan.csv, [record.row() | stamp for record in records])
    return rows


def surveyed(
    plan: MeshJudgeBench, backbone: Lowpoly, judge: mesh_judge.MeshJudge, sampling: Sampling
) -> Iterator[tuple[Subject, Record, Mesh]]:
    """The inputs of a plan, each with its record and mesh."""
    inputs = subjects(plan, backbone)
    return survey(backbone, judge, inputs, sampling, plan.faces, best_of=plan.best_of, shrinkwrap=plan.shrinkwrap)


def subjects(plan: MeshJudgeBench, backbone: Backbone) -> Iterator[Subject]:
    """Yields the inputs of a plan: held-out shapes of the families that the model was taught, and files."""
    mine = shapes(backbone.card["families"], plan.each) if plan.each else iter(())
    theirs = assets(plan.packs, plan.count, plan.up) if plan.packs else iter(())
    return chain(mine, theirs)


def table(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yields a row for every family and every pack, then one for each kind of source."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.family or record.source, []).append(record)
    for name, of in groups.items():
        yield summary(name, of)
    for name in (BOXES, FAMILIES, PACKS):
        of = [r for r in records if (r.source if r.family else PACKS) == name]
        if of:
            yield summary(f"all {name}", of)


def summary(name: str, records: Sequence[Record]) -> dict[str, Any]:
    """Returns a row: the shares of right and of empty meshes, quartiles of the distance over the floor, and what the meshes are named."""
    over = np.array([r.over_floor for r in records if r.over_floor is not None])
    kinds = Counter(r.mesh_kind for r in records if r.mesh_kind)
    known = [r for r in records if r.family]
    return {
        "row": name,
        "inputs": len(records),
        "right_kind": round(float(np.mean([r.right for r in records])), 4),
        "input_recognised": round(float(np.mean([r.input_kind == r.family for r in known])), 4) if known else None,
        "empty": round(float(np.mean([r.over_floor is None for r in records])), 4),
        "chamfer_over_floor": quartiles(over) if len(over) else None,
        "chamfer": round(float(np.mean([r.chamfer for r in records if r.chamfer is not None])), 4) if len(over) else None,
        "fits": {verdict: sum(verdict_of(x) == verdict for x in over) for verdict in VERDICTS},
        "named": dict(kinds.most_common(3)),
    }


def readable(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    over = row["chamfer_over_floor"]
    near = "no mesh" if over is None else f"{over[0]:5.2f} ({over[1]:.2f}-{over[2]:.2f}) times the floor"
    seen = "" if row["input_recognised"] is None else f" (input {row['input_recognised']:4.0%})"
    fits = ", ".join(f"{name} {count}" for name, count in row["fits"].items())
    named = ", ".join(f"{name} {count}" for name, count in row["named"].items())
    return (
        f"{row['row']:32} {row['inputs']:4}  right kind {row['right_kind']:4.0%}{seen}  empty {row['empty']:3.0%}  {near}  {fits}; {named}"
    )


def draw(plan: MeshJudgeBench, path: Path) -> None:
    """Writes a sheet of inputs beside their meshes, in the order of the plan; raises BadOutput if the file cannot be written."""
    sheet.check(path)
    backbone, judge = plan.load(), mesh_judge.load()
    sampling = plan.sampling_of(backbone)
    views = []
    for subject, record, mesh in surveyed(plan, backbone, judge, sampling):
        over = "no face" if record.over_floor is None else f"{record.over_floor:.1f} x floor, {record.mesh_kind}"
        views.append(View(*subject.surface, title=subject.name[:24]))
        views.append(View(mesh.vertices, mesh.faces, title=over))
    rows = [views[i : i + 2 * PAIRS] for i in range(0, len(views), 2 * PAIRS)]
    sheet.write(Image.fromarray(contact_sheet(rows, CELL)), path)

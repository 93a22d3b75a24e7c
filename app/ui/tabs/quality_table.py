"""Table of the quality of finished meshes: defects, trimesh's repair report, and the distance from the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from app.live.boards.mesh import MeshBoard
from app.runs.history import to_input_frame
from app.runs.mesh_files import FILES
from app.ui.method_menu import title_of
from engine.mesh.distance import distance
from engine.mesh.quality import quality
from engine.mesh.read import Input
from engine.mesh.repair import Repair, repair


class MeasuredSide(NamedTuple):
    """A side: title, name ("plain" or "fast", which sets its colour), measurements, repair report and token counts."""

    title: str
    side: str
    numbers: Mapping[str, Any]
    repair: Repair
    tokens: int
    dangling: int
    dropped: int  # faces that were decoded but are not in the mesh


ROWS = (  # name, label, explanation
    ("faces", "Faces", "Triangles of the mesh."),
    ("vertices", "Vertices", "Corners of the faces; equal positions count once."),
    ("watertight", "Watertight", "Every edge has exactly two faces, so the surface has no holes."),
    ("holes", "Holes", "Loops of edges with only one face."),
    ("winding_consistent", "Winding", "Neighbouring faces agree on which side is the outside."),
    ("components", "Pieces", "Parts that share no vertex."),
    ("degenerate", "Degenerate faces", "Faces with zero height."),
    ("open_edges_percent", "Open edges", "Edges with only one face."),
    ("chamfer", "Chamfer distance", "Mean distance from mesh to input, plus that from input to mesh; the input's longest side is 1.9."),
    ("hausdorff", "Hausdorff distance", "The largest of these distances."),
)
WORDS = {"watertight": ("yes", "no"), "winding_consistent": ("consistent", "mixed")}
FLOORS = {"chamfer": "floor", "hausdorff": "floor_hausdorff"}
FLOOR_HELP = "Floor: the same distance between two samples of the input itself, about what a perfect mesh would reach."


def measure(board: MeshBoard, side: str, shape: Input) -> MeasuredSide:
    """Measures a run's mesh in the coordinates of its input."""
    mesh = board.run.result()
    numbers, report = numbers_of(mesh.vertices, mesh.faces, shape)
    tokens, parsed = len(board.run.tokens), len(mesh.parser.faces)
    return MeasuredSide(title_of(board.run.name), side, numbers, report, tokens, len(mesh.parser.dangling()), parsed - len(mesh.faces))


def numbers_of(vertices: np.ndarray, faces: np.ndarray, shape: Input) -> tuple[dict[str, Any], Repair]:
    """Measurements of a mesh in the model's frame by the names of ROWS, with the floors; and its repair report."""
    report = repair(vertices, faces)
    numbers = quality(vertices, faces) | distance((to_input_frame(vertices, shape), faces), shape.reference)
    return numbers | {"holes": report.holes}, report


def with_column(value: Mapping[str, Any], title: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Value of the panel with one more mesh, which is a download; the page shows it only in place of `value`."""
    rows = [row | {"cells": [*row["cells"], _cell(name, numbers)]} for row, (name, _, _) in zip(value["rows"], ROWS, strict=True)]
    return {**value, "late": True, "heads": [*value["heads"], {"title": title, "side": "download"}], "rows": rows}


def encode(sides: list[MeasuredSide]) -> dict[str, Any] | None:
    """Value of the panel, as text; None if no side has a face."""
    if not any(side.numbers["faces"] for side in sides):
        return None
    notes = [FLOOR_HELP, *map(token_sentence, sides), *map(repair_sentence, sides)]
    return {
        "heads": [{"title": s.title, "side": s.side} for s in sides],
        "rows": [_row(sides, *row) for row in ROWS],
        "notes": [line for line in notes if line],
    }


def _row(sides: list[MeasuredSide], name: str, label: str, help_: str) -> dict[str, Any]:
    floor = next((s.numbers[FLOORS[name]] for s in sides if name in FLOORS and s.numbers[FLOORS[name]] is not None), None)
    return {"label": label, "help": help_, "cells": [_cell(name, side.numbers) for side in sides], "floor": _number(floor)}


def _cell(name: str, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """A cell: text, and whether it is good (None = neither)."""
    value = numbers[name]
    if not numbers["faces"] and name != "faces":
        return {"text": "–", "good": None}
    if name in WORDS:
        return {"text": WORDS[name][not value], "good": bool(value)}
    return {"text": f"{value:.1f} %" if name == "open_edges_percent" else _number(value), "good": None}


def _number(value: float | None) -> str:
    """A number as text: counts with commas, distances with four decimals, "" for None."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def repair_sentence(side: MeasuredSide) -> str:
    """Sentence about possible repairs and the repaired mesh; "" without faces."""
    if not side.numbers["faces"]:
        return ""
    file_note = f" “{FILES['repaired'][0]}” is the repaired mesh; the other files stay as generated." if side.side == "fast" else ""
    return f"Repair of {side.title}: {side.repair.text}." + (f" {side.repair.compared}.{file_note}" if side.repair.mends else "")


def token_sentence(side: MeasuredSide) -> str:
    """Sentence about tokens that are not part of a face; "" without tokens."""
    if not side.tokens:
        return ""
    owns = "is" if side.dangling == 1 else "are"
    text = f"{side.title}: {side.dangling:,} of {side.tokens:,} tokens {owns} part of no face (the end token, and unfinished patches)"
    if not side.dangling:
        text = f"{side.title}: every token became part of a face"
    if not side.dropped:
        return f"{text}."
    faces = "1 duplicate or zero-area face is" if side.dropped == 1 else f"{side.dropped:,} duplicate or zero-area faces are"
    return f"{text}; {faces} left out of the files."

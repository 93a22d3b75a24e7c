"""The quality of the finished meshes, side by side: defects of each mesh, and its distance from the input."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

from app.boards.mesh import MeshBoard
from app.history import placed
from engine.mesh.distance import distance
from engine.mesh.quality import quality
from engine.mesh.read import Input


class Measured(NamedTuple):
    """One side: its title, its name ("plain" or "fast", which sets its colour), its measurements, and what its tokens became."""

    title: str
    side: str
    numbers: Mapping[str, Any]
    tokens: int
    dangling: int
    dropped: int  # faces of the tokens that are not in the mesh


ROWS = (  # name, label, what it means
    ("faces", "Faces", "Triangles of the mesh."),
    ("vertices", "Vertices", "Corners of the faces; equal positions count once."),
    ("watertight", "Watertight", "Every edge has exactly two faces, so the surface has no holes."),
    ("components", "Pieces", "Parts that share no vertex."),
    ("degenerate", "Degenerate faces", "Faces with zero height."),
    ("open_edges_percent", "Open edges", "Edges with only one face."),
    ("chamfer", "Chamfer distance", "Mean distance from mesh to input plus that from input to mesh; the input's longest side is 1.9."),
    ("hausdorff", "Hausdorff distance", "The largest of these distances."),
)
FLOORS = {"chamfer": "floor", "hausdorff": "floor_hausdorff"}
FLOOR_HELP = "Floor: the same distance between two samples of the input itself, about what a perfect mesh would have."


def measure(board: MeshBoard, side: str, given: Input) -> Measured:
    """Measures a run's mesh in the coordinates of its input."""
    mesh = board.run.result()
    numbers = quality(mesh.vertices, mesh.faces) | distance((placed(mesh.vertices, given), mesh.faces), given.reference)
    tokens, came = len(board.run.tokens), len(mesh.parser.faces)
    return Measured(board.run.method.title, side, numbers, tokens, len(mesh.parser.dangling()), came - len(mesh.faces))


def table(sides: list[Measured]) -> str:
    """The panel's HTML, escaped."""
    heads = "".join(f'<th scope="col"><i class="ft-dot" data-side="{s.side}"></i>{escape(s.title)}</th>' for s in sides)
    rows = "".join(_row(sides, *row) for row in ROWS)
    said = "".join(f"<p>{escape(line)}</p>" for line in (FLOOR_HELP, *map(spent, sides)) if line)
    floor = '<th scope="col" class="ft-floor">Floor</th>'
    head = f"<thead><tr><td></td>{heads}{floor}</tr></thead>"
    return f'<table class="ft-quality">{head}<tbody>{rows}</tbody></table><div class="ft-spent">{said}</div>'


def _row(sides: list[Measured], name: str, label: str, help_: str) -> str:
    cells = "".join(f"<td>{_cell(name, side.numbers)}</td>" for side in sides)
    floor = next((s.numbers[FLOORS[name]] for s in sides if name in FLOORS and s.numbers[FLOORS[name]] is not None), None)
    return f'<tr><th scope="row" title="{escape(help_)}">{label}</th>{cells}<td class="ft-floor">{_number(floor)}</td></tr>'


def _cell(name: str, numbers: Mapping[str, Any]) -> str:
    value = numbers[name]
    if not numbers["faces"] and name != "faces":
        return "–"
    if name == "watertight":
        return f'<span class="ft-verdict-chip" data-good="{str(value).lower()}">{"yes" if value else "no"}</span>'
    if name == "open_edges_percent":
        return f"{value:.1f} %"
    return _number(value)


def _number(value: float | None) -> str:
    """A count with commas, a distance with four decimals, "" for None."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def spent(side: Measured) -> str:
    """A sentence about the tokens that no face shows; "" without tokens."""
    if not side.tokens:
        return ""
    owns = "owns" if side.dangling == 1 else "own"
    said = f"{side.title}: {side.dangling:,} of {side.tokens:,} tokens {owns} no face (the end token, and unfinished patches)"
    if not side.dropped:
        return f"{said}."
    faces = "1 duplicate or zero-area face is" if side.dropped == 1 else f"{side.dropped:,} duplicate or zero-area faces are"
    return f"{said}; {faces} left out of the files."

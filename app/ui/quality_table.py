"""How good the finished meshes are, side by side: what is wrong with a mesh by itself, and how far it is from the input."""

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
    """One side: its title, its name ("plain" or "fast", which gives it its colour), what was measured, and how its tokens were spent."""

    title: str
    side: str
    numbers: Mapping[str, Any]
    tokens: int
    dangling: int
    dropped: int  # faces of the tokens that the mesh does without


ROWS = (  # name, label, what it means
    ("faces", "Faces", "Triangles that the mesh keeps."),
    ("vertices", "Vertices", "Corners of the faces; equal places count once."),
    ("watertight", "Watertight", "Every edge has exactly two faces, so nothing could leak out."),
    ("components", "Pieces", "Parts that share no vertex."),
    ("degenerate", "Degenerate faces", "Faces without a height."),
    ("open_edges_percent", "Open edges", "Edges that have one face only."),
    ("chamfer", "Chamfer distance", "Mean distance from mesh to input plus that from input to mesh; the longest side is 1.9."),
    ("hausdorff", "Hausdorff distance", "The largest of these distances."),
)
FLOORS = {"chamfer": "floor", "hausdorff": "floor_hausdorff"}
FLOOR_HELP = "Floor: the same distance between two samples of the input itself, about what a perfect mesh would have."


def measure(board: MeshBoard, side: str, given: Input) -> Measured:
    """Measures the mesh of a run, in the coordinates of its input."""
    mesh = board.run.result()
    numbers = quality(mesh.vertices, mesh.faces) | distance((placed(mesh.vertices, given), mesh.faces), given.reference)
    tokens, came = len(board.run.tokens), len(mesh.parser.faces)
    return Measured(board.run.method.title, side, numbers, tokens, len(mesh.parser.dangling()), came - len(mesh.faces))


def table(sides: list[Measured]) -> str:
    """The panel; everything is escaped."""
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
    """A count with its commas, a distance with four digits, nothing for what is not known."""
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def spent(side: Measured) -> str:
    """What became of the tokens that no face shows, in words."""
    if not side.tokens:
        return ""
    owns = "owns" if side.dangling == 1 else "own"
    said = f"{side.title}: {side.dangling:,} of {side.tokens:,} tokens {owns} no face (the end, and what was begun and not finished)"
    if not side.dropped:
        return f"{said}."
    faces = "1 face without an area or said twice is" if side.dropped == 1 else f"{side.dropped:,} faces without an area or said twice are"
    return f"{said}; {faces} left out of the files."

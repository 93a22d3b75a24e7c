"""The verdict on a finished race of meshes, and restored settings of a run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from app.live.boards.mesh import MeshBoard
from app.requests import meshes
from app.runs import history
from app.ui.panels import runs
from app.ui.tabs import mesh_outcome, mesh_tab, restoring
from app.ui.tabs.mesh_outcome import MeshOutcome
from engine.errors import BadFile
from engine.mesh.fit import Fit
from engine.mesh.read import read
from tests.app.boards import CHAIR, board_of, mesh_run


@pytest.fixture(scope="module")
def boards(low) -> list[MeshBoard]:
    """Boards of a finished race whose right side is faster."""
    boards = []
    for name, seconds in (("xspecmesh", 1.0), ("ar", 4.0)):
        board = board_of(mesh_run(low, name))
        board.run.seconds = seconds * len(board.run.tokens)
        boards.append(board)
    return boards


def fit(verdict: str) -> Fit:
    """A fit with this verdict."""
    return Fit(verdict, 3.0, f"{verdict} match.")


def test_only_a_mesh_that_fits_is_celebrated(boards):
    verdicts = {name: mesh_outcome.summary(boards, MeshOutcome([], fit(name)), [[1.0], [4.0]]) for name in ("good", "fair", "foreign")}
    assert verdicts["good"]["headline"].startswith("4.0× faster") and verdicts["good"]["fits"] == "good"
    assert verdicts["fair"]["headline"] == verdicts["good"]["headline"] and verdicts["fair"]["tone"] == "even"
    assert verdicts["foreign"]["headline"] == "The mesh does not match its input" and verdicts["foreign"]["tone"] == "even"
    assert "Classical" in verdicts["foreign"]["fit"] and "Classical" not in verdicts["fair"]["fit"]
    flat = mesh_outcome.summary(boards, MeshOutcome([], None), [[1.0], [4.0]])
    assert (flat["headline"], flat["tone"]) == ("The mesh has no area", "bad")
    empty = SimpleNamespace(faces=[], run=boards[0].run)
    assert mesh_outcome.summary([empty, boards[1]], MeshOutcome([], None), [])["headline"] == "The mesh has no faces"


def test_the_table_tells_faces_holes_and_fit(boards):
    shape = read(CHAIR)
    outcome = mesh_outcome.measure(boards, shape)
    race = runs.encode(runs.MESHES, mesh_outcome.rows(boards, outcome, shape), [[1.0], [4.0]], {})
    right, left = race["rows"]
    assert race["kind"] == "mesh" and (right["prompt"], left["fit"]) == ("chair.ply", None)
    assert right["faces"] == outcome.sides[-1].numbers["faces"] and right["holes"] == outcome.sides[-1].repair.holes
    assert right["settings"]["input"]["up"] == "y"


def test_settings_of_a_run_fill_the_form_or_only_the_left_side(boards, low):
    own, saved = low.sampling, history.describe(boards[0].run, read(CHAIR)) | {"about": 300}
    panel, declared = mesh_tab.settings_panel(own), meshes.settings(own)

    def restore(settings: object, side: str = "right"):
        return restoring.from_run({"ask": {"settings": settings, "side": side}}, low, panel, declared)

    form, wished = restore(saved)
    assert wished == ("chair.ply", "y") and (form["seed"], form["method"]) == (7, "xspecmesh")
    assert {"face_budget": 8, "about": 300}.items() <= form["settings"]["values"].items()
    assert form["settings"]["declarations"] == panel["declarations"]
    left, wished = restore(saved, "left")
    assert wished is None and (left["compare"], left["other"]) == (True, "xspecmesh")
    for wrong, sentence in (({}, "not contain"), (saved | {"input": None}, "made a picture"), (saved | {"backbone": "bpt"}, "made by bpt")):
        with pytest.raises(BadFile, match=sentence):
            restore(wrong)

"""The verdict on a finished race of meshes, and restored settings of a run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from app.live.boards.mesh import MeshBoard
from app.requests import meshes, sides
from app.runs import history
from app.ui import knobs as knob_panel
from app.ui import mesh_side
from app.ui.mesh_side import MadeMesh
from app.ui.panels import runs
from app.ui.tabs import mesh_outcome, mesh_tab, restoring
from app.ui.tabs.mesh_outcome import MeshOutcome
from engine.errors import BadFile, NotSupported
from engine.mesh.bpt_tokens import dequantize
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
    assert verdicts["fair"]["headline"] == "A rough match of its input" and verdicts["fair"]["tone"] == "even"
    assert verdicts["foreign"]["headline"] == "The mesh does not match its input" and verdicts["foreign"]["tone"] == "even"
    assert "classical surface" in verdicts["foreign"]["fit"] and "classical" not in verdicts["fair"]["fit"]
    assert {name for name, line in verdicts.items() if line.get("offer") == "classical"} == {"foreign"}
    flat = mesh_outcome.summary(boards, MeshOutcome([], None), [[1.0], [4.0]])
    assert (flat["headline"], flat["tone"]) == ("The mesh has no area", "bad")
    empty = SimpleNamespace(faces=[], run=boards[0].run)
    assert mesh_outcome.summary([empty, boards[1]], MeshOutcome([], None), [])["headline"] == "The mesh has no faces"


def test_a_mesh_that_repeats_itself_is_no_speed_up(boards):
    faces = np.arange(9 * 14, dtype=np.uint8).reshape(-1, 3, 3)
    looping = np.concatenate([faces, *[faces[3:5]] * 40])
    board = SimpleNamespace(faces=looping, run=boards[0].run, ended=True)
    line = mesh_outcome.summary([board, boards[1]], MeshOutcome([], fit("good")), [[1.0], [4.0]])
    assert line["headline"] == "It repeats itself since face 14" and line["tone"] == "even" and "faster" not in line["detail"]
    assert "ends with at least 32 faces that it already had" in line["detail"] and line["fits"] == "good"


def made(over: float = 1.2) -> MadeMesh:
    """A triangle made without the model."""
    return MadeMesh(np.eye(3), np.array([[0, 1, 2]]), Fit("good", over, "Good match."), 1.5)


def test_a_surface_without_tokens_is_compared_by_distance_alone(boards):
    """The table: fit of the model's mesh, what was made on the left, the headline, and words that the lines must not contain."""
    fast = [boards[0]]
    for own, left, headline in (
        ("good", made(), "Model 3.0 floors, classical surface 1.2 floors"),
        ("fair", made(0.8), "Model 3.0 floors, classical surface 1.0 floors"),
        ("foreign", made(), "The mesh does not match its input"),
    ):
        line = mesh_outcome.summary(fast, MeshOutcome([], fit(own), left), [[1.0]])
        assert line["headline"] == headline and line["tone"] == "even"
        text = f"{line['headline']} {line['detail']}"
        assert "floors, classical surface" in text and not any(word in text for word in ("×", "token", "faster", "Compare"))
    failed = mesh_outcome.summary(fast, MeshOutcome([], fit("good"), "The points span no surface."), [[1.0]])
    assert failed["detail"] == "The points span no surface."


def test_snapped_faces_are_those_of_the_board_one_by_one(boards):
    """Also faces that the finished mesh lacks: repeats move along, and a corner that only a face without area has stays."""
    board = boards[0]
    vertices = board.run.result().vertices
    shift = np.random.default_rng(0).normal(size=vertices.shape) / 10
    snapped = mesh_side.snapped_corners(board, vertices + shift)
    own = dequantize(board.faces)
    assert snapped.shape == own.shape and len(own) >= len(board.run.result().faces)
    moves = {tuple(place): move for place, move in zip(vertices.round(4).tolist(), shift, strict=True)}
    still = np.zeros(3)
    for place, corner in zip(own.reshape(-1, 3), snapped.reshape(-1, 3), strict=True):
        assert np.allclose(corner - place, moves.get(tuple(np.float32(place).round(4).tolist()), still), atol=1e-4)
    assert np.abs(snapped - own).max() > 0.05


def test_the_surfaces_of_a_side_have_their_own_distances(boards):
    surfaces = mesh_side.surfaces_of(boards[0], fit("fair"), {"classical": made()})
    notes = {name: surface.note for name, surface in surfaces.items()}
    assert notes == {"decoded": "3.0 sampling floors", "classical": "1.2 sampling floors, no tokens, no model"}
    assert mesh_side.surfaces_of(boards[0], None, {})["decoded"].note == "No area"
    left = mesh_side.classical_side(made())
    assert (left.shows, left.counters, left.surfaces["classical"].corners.shape) == ("classical", {"seconds": 1.5}, (1, 3, 3))
    waiting, failed = mesh_side.classical_side(None), mesh_side.classical_side("No surface.")
    assert "after the run" in waiting.text and failed.text == "No surface." and waiting.state == failed.state == "empty"


def test_the_classical_surface_is_a_left_side_of_meshes_alone(low, picto):
    knobs, panel = {"values": {}}, knob_panel.encode("settings", ())
    assert sides.checked_sides(low, "ar", knobs, True, "classical", {}) == [("ar", {}), ("classical", {})]
    for wrong in (lambda: sides.checked_sides(picto, "ar", knobs, True, "classical", knobs),
                  lambda: sides.checked_sides(low, "classical", knobs, True, "ar", knobs)):  # fmt: skip
        with pytest.raises(NotSupported, match="classical"):
            wrong()
    stored = {"other": "classical", "other_knobs": {"values": {}}, "method": "classical", "knobs": {"values": {}}}
    assert restoring.from_memory(stored, low, panel, ()) == {"other": "classical", "other_knobs": knob_panel.encode("classical", ())}
    assert restoring.from_memory(stored, picto, panel, ()) == {}


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

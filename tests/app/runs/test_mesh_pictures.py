"""Pictures of a race of meshes: each side on its own clock, and a turntable."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from app.live.boards.mesh import MeshBoard
from app.runs import mesh_pictures, race_files
from engine.errors import NotSupported
from tests.app.boards import board_of, mesh_run


@pytest.fixture(scope="module")
def race(low) -> list[MeshBoard]:
    """A method and plain decoding, both finished, with artificial clocks, so that times map to steps."""
    return [board_of(mesh_run(low, name, size=24), seconds=0.1) for name in ("xspecmesh", "ar")]


def test_a_mesh_after_some_steps_has_the_faces_of_those_steps(race):
    board = race[0]
    half = len(board.run.steps) // 2
    view = mesh_pictures.view_after(board, half, race_files.FAST)
    assert len(view.faces) == (board.step < half).sum() > 0
    fresh = (view.colours == race_files.FAST).all(1)
    assert (fresh == (board.step[: len(view.faces)] == half - 1)).all()
    whole = mesh_pictures.view_after(board, len(board.run.steps), race_files.FAST)
    assert len(whole.faces) == len(board.faces) and not (whole.colours == race_files.FAST).all(1).any()
    assert np.abs(whole.vertices).max() < 1


def test_the_race_and_the_turntable_are_drawn(race, tmp_path, monkeypatch):
    monkeypatch.setattr(mesh_pictures, "FRAMES", 4)
    monkeypatch.setattr(mesh_pictures, "TURNS", 3)
    try:
        drawn = mesh_pictures.draw_race(race)
    except NotSupported as e:
        pytest.skip(str(e))
    with Image.open(mesh_pictures.write_race(drawn, race, ["XSpecMesh", "Plain"], tmp_path / "race.gif")) as gif:
        assert gif.n_frames >= 3 and gif.size[0] > 2 * mesh_pictures.SIDE
    with Image.open(mesh_pictures.write_turntable(drawn, tmp_path / "turn.gif")) as gif:
        assert gif.n_frames == mesh_pictures.TURNS and gif.size == (mesh_pictures.SIDE,) * 2
    first, later = drawn.race[0][0], drawn.race[-1][0]
    assert np.abs(first.astype(int) - later).mean() > 1


def test_a_growing_mesh_is_drawn_as_far_as_it_has_grown(low):
    run = mesh_run(low, "ar", size=24)
    board, opaque = mesh_pictures.SketchedMesh(run), [0]
    for number, step in enumerate(run):
        board.add(step)
        if number % 8 == 0 or run.finished:
            opaque.append((board.growing()[..., 3] > 0).sum())
    assert opaque == sorted(opaque) and len(set(opaque)) > 2
    whole = mesh_pictures.SketchedMesh(run)
    for step in run.steps:
        whole.add(step)
    assert (whole.growing() == board.growing()).all() and board.final().shape == (*board.growing().shape[:2], 3)

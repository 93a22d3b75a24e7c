"""The board of a growing mesh: its faces and drafts."""

from __future__ import annotations

import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import trimesh

from app.live.boards.mesh import ALL, FACE, NATS, NOTHING_DRAFTED, MeshBoard, steps_of
from app.live.stream import Throttle, updates
from app.requests.sides import start_values
from app.runs.mesh_files import FILES, write_files, write_shrinkwrapped
from app.ui import mesh_side
from app.ui.panels import verdict
from engine.core import Step
from engine.diagnostics import per_face
from engine.mesh.bpt_tokens import parse, tokenize
from engine.mesh.read import read
from engine.trace import Trace
from research.worlds.solids import box
from tests.app.boards import CHAIR, board_of, mesh_run, numbers


def tokens_of_a_box() -> list[int]:
    """The tokens of a box of 12 faces."""
    solid = box(3, 2, 1)
    faces = [(p[0], b, c) for p in solid.polygons for b, c in pairwise(p[1:])]
    return tokenize(solid.points, np.array(faces))[0].tolist()


def fake_run() -> SimpleNamespace:
    """An unfinished run."""
    return SimpleNamespace(finished=False, stopped=False, tokens=[], positions=[])


def feed(board: MeshBoard, tokens: list[int], sizes: list[int], **trace) -> list[Step]:
    """Gives a board the tokens in Steps of these sizes; all but the last token of a Step are accepted drafts."""
    steps, at = [], 0
    for size in sizes:
        own = Trace([True] * (size - 1) + [False], **{name: value[:size] for name, value in trace.items()})
        steps.append(Step(tokens[at : at + size], list(range(at, at + size)), drafted=size, trace=own))
        at += size
        board.add(steps[-1])
    return steps


# ---------------------------------------------------------------- the board


def test_every_token_is_painted_once_and_every_face_knows_its_step():
    tokens, sizes = tokens_of_a_box(), [1, 4, 2, 5, 3]
    sizes.append(len(tokens) - sum(sizes))
    board = MeshBoard(fake_run())
    feed(board, tokens, sizes)
    whole = parse(tokens)
    assert (board.faces == whole.triangles()).all() and len(board.faces) == 12
    assert board.records["tokens"].sum() + board.dangling == len(tokens)
    ends = np.cumsum(sizes)
    assert board.step.tolist() == [int(np.searchsorted(ends, face.tokens[2][-1], side="right")) for face in whole.faces]


def test_a_face_shows_the_share_of_its_tokens_that_were_accepted_and_how_far_ahead_the_last_was_drafted():
    tokens = tokens_of_a_box()
    sizes = [3] * (len(tokens) // 3) + [len(tokens) % 3] * (len(tokens) % 3 > 0)
    board = MeshBoard(fake_run())
    steps = feed(board, tokens, sizes)
    accepted = np.concatenate([step.trace.accepted for step in steps]).astype(np.float32)
    assert np.abs(board.records["accepted"] / ALL - per_face(parse(tokens).faces, accepted)).max() < 0.5 / ALL + 1e-6
    place = [face.tokens[2][-1] for face in parse(tokens).faces]
    assert board.records["depth"].tolist() == [p % 3 + 1 if accepted[p] else 0 for p in place]


def test_a_method_may_say_itself_how_deep_it_drafted():
    tokens = tokens_of_a_box()
    board = MeshBoard(fake_run())
    feed(board, tokens, [len(tokens)], depth=[9] * len(tokens))
    assert set(board.records["depth"].tolist()) == {0, 9}


def test_without_a_draft_nothing_is_said_of_acceptance():
    tokens = tokens_of_a_box()
    board = MeshBoard(fake_run())
    for i, token in enumerate(tokens):
        board.add(Step([token], [i], trace=Trace([False])))
    assert set(board.records["accepted"].tolist()) == set(board.records["depth"].tolist()) == {NOTHING_DRAFTED}


def test_ghosts_are_the_faces_of_the_open_draft_and_disturb_nothing():
    tokens = tokens_of_a_box()
    known, ahead = tokens[:14], tokens[14:30]
    board = MeshBoard(fake_run())
    feed(board, known, [len(known)])
    board.draft = {"tokens": torch.tensor(ahead), "positions": list(range(14, 30)), "status": "draft"}
    before = len(board.faces)
    assert (board.ghosts == parse(tokens[:30]).triangles(before)).all() and len(board.ghosts) > 0
    assert len(board.faces) == before and board.parser.length == 14
    board.draft = {"tokens": ahead, "positions": list(range(15, 31))}
    assert board.ghosts.shape == (0, 3, 3), "tokens behind a gap cannot be read"
    board.draft = {"tokens": ahead, "positions": list(range(14, 30))}
    board.run.stopped = True
    assert board.ghosts.shape == (0, 3, 3)


def test_ghosts_without_an_area_are_not_shown():
    tokens = tokens_of_a_box()[:4]
    offset = tokens[-1]
    board = MeshBoard(fake_run())
    feed(board, tokens, [len(tokens)])
    board.draft = {"tokens": [offset, offset], "positions": [4, 5]}
    assert board.ghosts.shape == (0, 3, 3)


@pytest.mark.parametrize("name", ["xspecmesh", "sjdpp", "lookup", "jacobi"])
def test_a_race_ends_with_all_faces_on_both_boards(low, name):
    values = start_values(name)[1]
    boards = [MeshBoard(mesh_run(low, name, size=4, **values)), MeshBoard(mesh_run(low, "ar", size=4))]
    seen = list(updates(boards, Throttle(0.0)))
    assert seen[-1] == {0, 1}
    for board in boards:
        assert board.ended and board.count == len(board.run.steps)
        assert (board.faces == parse(board.run.tokens).triangles()).all()
        assert board.records["tokens"].sum() + board.dangling == len(board.run.tokens)
    if values.get("verify") == "match seed":
        assert verdict.agreement(*boards)["same"] is True
        assert (boards[0].faces == boards[1].faces).all()


def test_a_stopped_run_keeps_what_it_has(low, tmp_path):
    board = MeshBoard(mesh_run(low, "ar", size=None))
    for step in board.run:
        board.add(step)
        if len(board.faces) == 5:
            board.run.stop()
    side = mesh_side.side_of(board, "Plain decoding", None)
    assert (side.state, len(side.faces), side.text) == ("stopped", 5, "")
    shape = read(CHAIR)
    files = write_files(board.run, shape, tmp_path / "mesh")
    assert set(files) == set(FILES)
    assert files["coloured"].name == "chair-ar-7-accepted.glb"
    whole = board.run.result()
    for name in ("glb", "obj", "ply", "stl"):
        mesh = trimesh.load(files[name], force="mesh")
        assert len(mesh.faces) == len(whole.faces)
        assert np.abs(mesh.bounds - np.stack([f(shape.frame.from_model(whole.vertices), 0) for f in (np.min, np.max)])).max() < 1e-4
    assert json.loads(files["settings"].read_text())["prompt"] == "chair.ply"


def test_files_of_a_shape_on_a_map_keep_its_place(low, tmp_path):
    """Single precision would move such points by half a metre."""
    np.savetxt(tmp_path / "map.xyz", read(CHAIR).reference[:, :3] + [512_345.678, 5_412_345.678, 245.3], "%.4f")
    shape, run = read(tmp_path / "map.xyz"), mesh_run(low, "ar", size=4)
    board_of(run)
    files = write_files(run, shape, tmp_path / "mesh") | {
        f"wrapped {form}": write_shrinkwrapped(run, run.result().vertices, shape, tmp_path / f"wrapped.{form}") for form in ("glb", "stl")
    }
    right = shape.frame.from_model(run.result().vertices)
    assert shape.frame.shift.any()
    for name in ("glb", "coloured", "obj", "ply", "stl", "wrapped glb", "wrapped stl"):
        bounds = trimesh.load(files[name], force="mesh").bounds + (shape.frame.shift if "stl" in name else 0)
        assert bounds == pytest.approx(np.stack([right.min(0), right.max(0)]), abs=1e-4), name
    assert any("An STL" in note for note in json.loads(files["settings"].read_text())["input"]["notes"])


def test_every_draft_of_a_run_is_known_as_faces_that_came_or_did_not(low):
    board = board_of(mesh_run(low, "xspecmesh", size=24))
    guesses = board.guesses()
    assert len(guesses) > 0
    whole = {face.tobytes(): int(step) for face, step in zip(board.faces, board.step, strict=True)}
    for face, step, came in zip(guesses["corners"], steps_of(guesses), guesses["accepted"], strict=True):
        if came:
            assert whole[face.tobytes()] > step, "a draft is there before its tokens are"
    assert not guesses["accepted"].all(), "a random model refuses some drafts"
    course = mesh_side.course_of(board)
    assert numbers(course["tokens"], "<i4")[-1] == len(board.run.tokens)
    assert numbers(course["passes"], "<i4")[-1] == board.run.totals["forwards"]
    assert numbers(course["seconds"], "<f4")[-1] <= board.run.seconds and (numbers(course["drafts"], FACE) == guesses).all()


def test_faces_know_how_undecided_the_model_was():
    tokens = tokens_of_a_box()
    board = MeshBoard(fake_run())
    feed(board, tokens, [len(tokens)], entropy=[1.5] * len(tokens), top=[0.5] * len(tokens), accept_probability=[0.25] * len(tokens))
    assert set(board.records["entropy"].tolist()) == {round(ALL * 1.5 / NATS)}
    assert set(board.records["probability"].tolist()) == {round(ALL * 0.25)} and set(board.records["top"].tolist()) == {round(ALL * 0.5)}
    silent = MeshBoard(fake_run())
    for i, token in enumerate(tokens):
        silent.add(Step([token], [i], trace=Trace([False])))
    assert all(set(silent.records[name].tolist()) == {NOTHING_DRAFTED} for name in ("entropy", "probability", "top"))

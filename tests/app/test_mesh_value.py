"""Values sent to the mesh panel."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gradio.utils import diff

from app.live.boards.mesh import records
from app.ui.panels import mesh
from app.ui.panels.mesh import Side, Surface
from tests.app.boards import numbers
from tests.app.still_life import cloud, side, waiting

SIDE = {"accelerated": Side.empty("XSpecMesh")}


def mesh_value(count: int) -> dict:
    """A value in which both sides have this many faces."""
    return mesh.encode({name: side(name, count) for name in mesh.SIDES}, cloud(64))


def test_faces_travel_as_eighteen_bytes_each():
    shape, columns = np.arange(18, dtype=np.uint8).reshape(2, 3, 3), ("accepted", "depth", "tokens", "entropy", "probability", "top")
    faces = records(shape, [7, 70_000], **{name: [i, 100 + i] for i, name in enumerate(columns)})  # a step number above two bytes
    rows = numbers(mesh.encode({"accelerated": Side(faces)})["sides"]["accelerated"]["faces"], np.uint8).reshape(2, 18)
    assert (rows[:, :9].reshape(-1, 3, 3) == shape).all()
    assert rows[:, 9:12].tolist() == [[0, 1, 2], [100, 101, 102]] and rows[:, 15:].tolist() == [[3, 4, 5], [103, 104, 105]]
    assert (rows[:, 12:15].astype(int) @ [1, 256, 65536]).tolist() == [7, 70_000]


def test_an_update_costs_only_its_new_faces():
    before, after = mesh_value(600), mesh_value(603)
    edits = diff(before, after)
    assert sorted((edit[0], edit[1][1:]) for edit in edits) == [("append", ["accelerated", "faces"]), ("append", ["plain", "faces"])]
    assert len(json.dumps(edits)) < 300
    assert len(json.dumps(after)) < 33_000
    assert diff(after, mesh_value(603)) == []


def test_sides_may_be_missing_and_states_add_up():
    assert list(mesh.encode({"plain": None, "accelerated": side("accelerated", 3)})["sides"]) == ["accelerated"]
    states = ("running", "done"), ("done", "done"), ("stopped", "done")
    combined = [mesh.encode({n: side(n, 3, state=s) for n, s in zip(mesh.SIDES, pair)})["state"] for pair in states]
    assert combined == ["running", "done", "stopped"]
    assert waiting()["state"] == "empty"
    with pytest.raises(AssertionError, match="at least one side"):
        mesh.encode({})


def test_counters_are_words_and_unknown_ones_are_left_out():
    board = side("plain", 3)
    board.counters = {"seconds": np.float64(2.5), "forwards": 12_345, "draft_forwards": 7}
    assert mesh.encode({"plain": board})["sides"]["plain"]["counters"] == {"seconds": "2.50", "forwards": "12,345"}


def test_points_are_int16_with_or_without_normals():
    points = cloud(50)
    points[0, 0] = 1.5  # outside the box: clipped to its wall
    full = numbers(mesh.encode(SIDE, points)["points"], "<i2").reshape(-1, 6) / 32767
    assert np.abs(full - np.clip(points, -1, 1)).max() < 1 / 32767
    bare = numbers(mesh.encode(SIDE, points[:, :3])["points"], "<i2").reshape(-1, 6)
    assert (bare[:, 3:] == 0).all() and bare[:, :3].any()


def test_corners_of_another_surface_are_uint16_in_the_cube():
    corners = np.array([[[-1.5, -1, 0], [0.25, 0.5, 1], [1, 0.95, -0.95]]])
    sent = mesh.encode_surfaces({mesh.CLASSICAL: Surface("far", corners), mesh.DECODED: Surface("near")})
    assert list(sent) == ["decoded", "classical"] and sent["decoded"] == {"note": "near", "corners": ""}
    fine = numbers(sent["classical"]["corners"], "<u2").reshape(1, 3, 3)
    assert np.abs((fine + 0.5) / 32768 - 1 - np.clip(corners, -1, 1)).max() <= 1 / 32768
    value = mesh.with_surfaces(mesh_value(3), sent)
    assert value["sides"]["accelerated"]["surfaces"] == sent and not value["sides"]["plain"]["surfaces"]


def test_a_corner_outside_the_lattice_is_a_bug():
    board = side("plain", 3)
    board.faces["corners"] += 128
    with pytest.raises(AssertionError, match=r"corners must be in 0\.\.127"):
        mesh.encode({"plain": board})

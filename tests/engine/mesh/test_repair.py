"""The repair report: the faults of a mesh, and those that trimesh repairs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import trimesh

from engine.mesh.quality import quality
from engine.mesh.repair import repair
from research.worlds.solids import box

SOLID = box(3, 2, 1)
FACES = np.array([(p[0], b, c) for p in SOLID.polygons for b, c in pairwise(p[1:])])
ONE_TURNED = np.concatenate([FACES[:5], FACES[5:6, ::-1], FACES[6:]])


@pytest.mark.parametrize(
    ("faces", "sentence"),
    [
        (FACES, (True, True, 0, 0, 0, True)),
        (FACES[2:], (False, True, 1, 1, 0, True)),  # one side of the box is gone
        (ONE_TURNED, (True, False, 0, 0, 1, True)),
        (ONE_TURNED[1:], (False, False, 1, 1, 1, True)),
        (FACES[:, ::-1], (True, True, 0, 0, 12, True)),  # inside out
        (FACES[:1], (False, True, 1, 0, 0, False)),
        (FACES[:0], (False, False, 0, 0, 0, False)),
    ],
)
def test_the_report_counts_holes_and_turned_faces(faces, sentence):
    before = faces.copy()
    report = repair(SOLID.points, faces)
    assert (report.watertight, report.winding_consistent, report.holes, report.closed, report.turned, report.watertight_after) == sentence
    assert (faces == before).all()
    if len(faces):
        assert quality(report.vertices, report.faces)["watertight"] is report.watertight_after
    if report.watertight_after:
        assert trimesh.Trimesh(report.vertices, report.faces).volume == pytest.approx(6)


def test_corners_at_one_place_are_one_corner():
    soup = SOLID.points[FACES].reshape(-1, 3)
    report = repair(soup, np.arange(len(soup)).reshape(-1, 3))
    assert report.watertight and report.holes == 0 and len(report.vertices) == 8


def test_the_report_is_a_sentence():
    assert repair(SOLID.points, FACES).text == "closed, and all faces agree on the outside: nothing to repair"
    assert repair(SOLID.points, ONE_TURNED[1:]).text == "trimesh turns 1 face and closes 1 of 1 hole; then it is watertight"
    assert repair(SOLID.points, ONE_TURNED).text == "trimesh turns 1 face; then all agree"
    assert repair(SOLID.points, ONE_TURNED[1:]).compared == (
        "Before: open, 1 hole, mixed winding; after: watertight, 0 holes, consistent winding"
    )
    assert [repair(SOLID.points, faces).mends for faces in (FACES, ONE_TURNED, FACES[1:], FACES[:1])] == [False, True, True, False]
    assert repair(SOLID.points, FACES[:1]).text == "trimesh closes 0 of 1 hole; it stays open"

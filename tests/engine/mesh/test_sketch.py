"""Small pictures of growing meshes."""

from __future__ import annotations

import numpy as np
import pytest

from engine.mesh.sketch import FILLED, SIDE, Sketch
from tests.engine.mesh.shapes import box, torus

NEAR, FAR = (np.array([[[-1, -1, z], [1, -1, z], [0, 1, z]]], float) * 0.9 for z in (0.9, -0.9))


def drawn(*parts: np.ndarray, points: np.ndarray | None = None) -> np.ndarray:
    """The picture of faces that are added one after the other."""
    sketch = Sketch(np.concatenate(parts).reshape(-1, 3) if points is None else points)
    for faces in parts:
        sketch.add(faces)
    return sketch.picture()


@pytest.mark.parametrize("shape", [box((1.9, 0.6, 0.6)), box((0.3, 1.8, 0.3)), torus()], ids=["wide", "high", "torus"])
def test_the_input_fills_the_frame(shape):
    faces = shape[0][shape[1]]
    rows, columns = np.nonzero(drawn(faces)[..., 3] > 127)
    spans = np.ptp(rows) + 1, np.ptp(columns) + 1
    assert max(spans) == pytest.approx(FILLED * SIDE, abs=3) and abs(rows.min() + rows.max() - SIDE) < 5


def test_the_order_of_faces_does_not_matter_and_the_nearer_one_is_seen():
    points = np.concatenate([NEAR, FAR]).reshape(-1, 3)
    both, other, near = drawn(NEAR, FAR, points=points), drawn(FAR, NEAR, points=points), drawn(NEAR, points=points)
    assert (both == other).all()
    inside = near[..., 3] == 255
    assert inside.sum() > 1000 and (both[inside] == near[inside]).all() and (both[..., 3] > 0).sum() > inside.sum() * 1.2


def test_both_sides_of_a_face_are_lit_and_a_face_without_area_is_left_out():
    assert (drawn(NEAR) == drawn(NEAR[:, ::-1])).all()
    line = NEAR[:, [0, 1, 1]]
    assert not drawn(line, points=NEAR[0])[..., 3].any()

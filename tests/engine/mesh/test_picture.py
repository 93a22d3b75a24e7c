"""Pictures without a display. Without a graphics library these tests are skipped, with its error as the reason."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from engine.errors import NotSupported
from engine.mesh import picture
from engine.mesh.picture import View, pictures, sheet
from tests.engine.mesh.shapes import box, points_on, torus


@pytest.fixture(scope="module")
def drawings() -> list[np.ndarray]:
    """A box, the same box in colours, its points, a torus, nothing, and the box again: drawn once for all tests."""
    vertices, faces = box((1.9, 1.9, 1.9))
    colours = np.tile(np.array([[220, 40, 40]], np.uint8), (12, 1))
    ring = torus(24, 12, 0.7, 0.25)
    views = [
        View(vertices, faces), View(vertices, faces, colours), View(points_on((vertices, faces), 2000)), View(*ring),
        View(np.zeros((0, 3)), np.zeros((0, 3), int)), View(vertices, faces),
    ]  # fmt: skip
    try:
        return pictures(views, 160)
    except NotSupported as e:
        pytest.skip(str(e))


def test_pictures_show_something(drawings):
    assert all(p.shape == (160, 160, 3) and p.dtype == np.uint8 for p in drawings)
    assert all(drawings[k].std() > 10 for k in (0, 1, 2, 3)) and drawings[4].std() < 10


def test_a_picture_does_not_depend_on_those_before(drawings):
    assert np.abs(drawings[0].astype(int) - drawings[5]).max() <= 2


def test_colours_are_shown(drawings):
    red = (drawings[1][..., 0].astype(int) - drawings[1][..., 1]) > 60
    assert red.mean() > 0.2 and ((drawings[0][..., 0].astype(int) - drawings[0][..., 1]) > 60).mean() == 0


def test_the_box_of_the_model_fits_and_fills(drawings):
    """Nothing touches the border, and the box is at least half as wide as the picture."""
    changed = np.abs(drawings[0].astype(int) - drawings[4]).max(2) > 8
    assert not changed[[0, -1]].any() and not changed[:, [0, -1]].any()
    assert changed.any(0).sum() > 80 and changed.any(1).sum() > 80


def test_a_sheet():
    cells = [np.full((100, 100, 3), shade, np.uint8) for shade in (10, 90, 170)]
    table = sheet([cells[:2], cells[2:]], [["input", "result"], [""]], gap=4)
    assert table.shape == (2 * 126 + 4, 2 * 104 + 4, 3) and table.dtype == np.uint8
    assert (table[4:104, 4:104] == 10).all() and (table[4:104, 108:208] == 90).all()
    plain = sheet([cells])
    assert plain.shape == (108, 316, 3)


def test_a_process_that_dies_is_a_sentence(monkeypatch):
    monkeypatch.setattr(picture, "draw", _die)
    with pytest.raises(NotSupported, match="cannot draw meshes off screen"):
        pictures([View(*box())])


def test_a_bug_stays_a_bug(monkeypatch):
    monkeypatch.setattr(picture, "draw", _stumble)
    with pytest.raises(ZeroDivisionError):
        pictures([View(*box())])


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(picture, "draw", _sleep)
    with pytest.raises(NotSupported, match="took longer than 1 seconds"):
        pictures([View(*box())], patience=1.0)


def _die(*_: object) -> None:
    os._exit(11)


def _stumble(*_: object) -> None:
    raise ZeroDivisionError


def _sleep(*_: object) -> None:
    time.sleep(60)

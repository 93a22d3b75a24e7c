"""The fit of a mesh: fixed limits of the distance over the floor, the same for a cloud as for its surface."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.mesh.distance import COUNT, distance
from engine.mesh.fit import FAIR, GOOD, fit_of, sentence, verdict_of
from tests.engine.mesh.shapes import box, points_on, table


def test_limits():
    assert [verdict_of(x) for x in (1.0, GOOD, GOOD + 0.1, FAIR, FAIR + 0.1)] == ["good", "good", "fair", "fair", "foreign"]


def test_the_line_says_how_far():
    assert sentence(1.9) == "Good match: 1.9 times as far from your points as a perfect mesh would be."
    assert sentence(4.7) == "Rough match (4.7 times): parts may be missing or bent. Another seed may do better."
    assert sentence(6.0) == "Poor match: 6 times as far from your points as a perfect mesh would be."
    assert "more than 10 times" in sentence(30.0) and "1 times" in sentence(0.97)


def test_of_a_surface_it_is_the_ratio():
    apart = distance(box((1.0, 1.1, 1.0)), box())
    fit = fit_of(apart)
    assert apart["count"] == COUNT and fit.over_floor == pytest.approx(apart["chamfer"] / apart["floor"])
    assert json.loads(json.dumps(fit.row())) == {"verdict": fit.verdict, "over_floor": round(fit.over_floor, 2), "text": fit.text}


@pytest.mark.parametrize("points", [1_000, 2_048, 16_384])
@pytest.mark.parametrize(("stretch", "verdict"), [(1.0, "good"), (1.14, "fair"), (1.6, "foreign")])
def test_a_cloud_has_the_verdict_of_its_surface(points: int, stretch: float, verdict: str):
    stretched = table()[0] * [stretch, 1, 1], table()[1]
    exact = fit_of(distance(stretched, table()))
    seen = fit_of(distance(stretched, points_on(table(), points)))
    assert exact.verdict == seen.verdict == verdict


def test_a_mesh_without_an_area_has_no_fit():
    assert fit_of(distance((np.zeros((0, 3)), np.zeros((0, 3), np.int64)), points_on(table(), 100))) is None

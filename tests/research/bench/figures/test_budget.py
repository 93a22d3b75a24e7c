"""The plane of speed over deviation: a point per budget, a curve per method."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from engine.backbones.toy import Toy
from engine.core import Prompt
from engine.methods import METHODS
from engine.run import Run, generate
from research.bench.figures import budget
from research.bench.figures import style as figures

GROUPS = {"window": 6, "half_width": 4, "probability_gap": 1.0, "code_distance": 2.0}


@pytest.fixture(scope="module")
def runs() -> dict[str, list[list[Run]]]:
    """Plain decoding and three budgets of gsd on four pictures of the toy."""
    toy = Toy(5, 1, 32, sharpness=1.0)
    rows = {"ar": ("ar", {})} | {f"gsd allowed_deviation={b}": ("gsd", GROUPS | {"allowed_deviation": b}) for b in (0.9, 0.0, 0.05)}
    return {
        label: [[generate(toy, METHODS[name], Prompt(seed=seed), knobs).finish()] for seed in range(4)]
        for label, (name, knobs) in rows.items()
    }


def test_a_point_for_every_budget(runs: dict[str, list[list[Run]]]) -> None:
    found = {point["budget"]: point for point in budget.points(runs)}
    assert set(found) == {0.0, 0.05, 0.9} and {point["method"] for point in found.values()} == {"gsd"}
    assert found[0.0]["deviation"] == 0 < found[0.05]["deviation"] <= 0.05 + 1e-9 < found[0.9]["deviation"]
    assert found[0.0]["tokens_a_pass"] < found[0.9]["tokens_a_pass"]
    assert all(point["speedup"] > 0 for point in found.values())


def test_the_figure_is_chosen_by_the_sweep_and_is_a_picture(runs: dict[str, list[list[Run]]], tmp_path: Path) -> None:
    assert figures.drawn(["allowed_deviation", "gsd", "cross_regression"]) == "allowed_deviation"
    assert len(figures.draw("allowed_deviation", runs, tmp_path / "plane.png")) == 3
    with Image.open(tmp_path / "plane.png") as picture:
        assert picture.width > 1200

"""The figure of ADT-Tree's controller: the data it takes from the Steps, and that it is a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.backbones.toy import Toy
from engine.core import Prompt
from engine.methods import METHODS
from engine.run import Run, generate
from research.bench.figures import controller
from research.bench.figures import style as figures

SHAPES = {"controller": "adjacent", "depth_below": 4, "width_above": 0, "width_below": 3, "width_step": 1, "nodes": 5, "width": 2}


@pytest.fixture(scope="module")
def runs() -> dict[str, list[list[Run]]]:
    """Plain decoding and trees on four pictures of the toy."""
    toy = Toy(rows=4, columns=4)
    rows = {"ar": ("ar", {}), "trees": ("adt_tree", SHAPES)}
    return {
        label: [[generate(toy, METHODS[name], Prompt(seed=seed), knobs).finish()] for seed in range(4)]
        for label, (name, knobs) in rows.items()
    }


def test_every_token_knows_the_depth_of_its_tree(runs: dict[str, list[list[Run]]]) -> None:
    run = runs["trees"][0][0]
    found = controller.traces(run)
    assert found["map"].shape == (16,) and found["map"][0] == 0  # the first pass has no tree
    assert len(found["depth"]) == len(found["width"]) == len(found["accepted"]) == sum(controller.asked(s) for s in run.steps)
    for step in run.steps:
        assert (found["map"][step.positions] == (step.trace.tree.levels if controller.asked(step) else 0)).all()
    assert found["accepted"].sum() == 16 - len(run.steps)  # every pass adds one token besides
    assert not np.isnan(found["entropy"]).any()


def test_the_figure_is_a_picture(runs: dict[str, list[list[Run]]], tmp_path: Path) -> None:
    assert figures.drawn(["sjd", "adt_tree"]) == "adt_tree"
    points = figures.draw("adt_tree", runs, tmp_path / "trees.png")
    assert len(points) == 4 and all(p["depth"] >= 1 and p["entropy"] > 0 for p in points)
    with Image.open(tmp_path / "trees.png") as picture:
        assert picture.width > 800

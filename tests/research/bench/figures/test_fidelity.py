"""The figure of speed and fidelity of a relaxed rule: a point per row, a curve for rows that differ only in the tolerance."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from engine.backbones.toy import Toy
from engine.core import Prompt
from engine.methods import METHODS
from engine.run import Run, generate
from research.bench.figures import fidelity
from research.bench.figures import style as figures


@pytest.fixture(scope="module")
def runs() -> dict[str, list[list[Run]]]:
    """Plain decoding and five settings of cross_regression on eight pictures of the toy."""
    toy = Toy(columns=16)
    rows = {"ar": ("ar", {})} | {
        f"{tolerance} {smoothing}": ("cross_regression", {"energy_tolerance": tolerance, "energy_smoothing": smoothing})
        for tolerance, smoothing in ((8, 0), (0, 0), (2, 0), (8, 0.5), (0, 0.5))
    }
    return {
        label: [[generate(toy, METHODS[name], Prompt(seed=seed), knobs).finish()] for seed in range(8)]
        for label, (name, knobs) in rows.items()
    }


def test_more_tolerance_buys_tokens_with_fidelity(runs: dict[str, list[list[Run]]]) -> None:
    found = fidelity.points(runs)
    plain, smoothed = fidelity.curves(found)
    assert [p["row"] for p in plain] == ["0 0", "2 0", "8 0"] and [p["row"] for p in smoothed] == ["0 0.5", "8 0.5"]
    assert plain[0]["deviation"] == 0 < plain[1]["deviation"] < plain[2]["deviation"]
    assert plain[0]["tokens_a_pass"] < plain[2]["tokens_a_pass"]
    assert smoothed[0]["deviation"] > 0


def test_the_figure_is_a_picture(runs: dict[str, list[list[Run]]], tmp_path: Path) -> None:
    assert len(figures.draw("cross_regression", runs, tmp_path / "curve.png")) == 5
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.width > 800

"""MuLo-SD's figure: a point per row, on the line by its share of drafts, and below it in tokens per pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from engine.backbones.toy import Toy
from engine.core import Prompt
from engine.errors import NotSupported
from engine.methods import METHODS
from engine.run import Run, generate
from research.bench.figures import multi_scale
from research.bench.figures import style as figures


@pytest.fixture(scope="module")
def runs() -> dict[str, list[list[Run]]]:
    """Plain decoding and two settings of mulo on four pictures of the toy."""
    toy = Toy(rows=4, columns=4)
    rows = {"ar": ("ar", {}), "strict": ("mulo", {"least_mass": 1}), "loose": ("mulo", {"least_mass": 0, "radius": 0})}
    return {
        label: [[generate(toy, METHODS[name], Prompt(seed=seed), knobs).finish()] for seed in range(4)]
        for label, (name, knobs) in rows.items()
    }


def test_points_lie_where_the_share_of_drafts_puts_them(runs: dict[str, list[list[Run]]]) -> None:
    strict, loose = multi_scale.points(runs)
    assert strict["row"] == "strict" and strict["stayed"] == 0 and strict["theory"] == pytest.approx(16 / (16 + 4))
    assert loose["stayed"] > 0.5 and loose["theory"] > strict["theory"]
    assert all(p["factor"] == 2 and p["tokens"] == 16 and p["time"] > 0 for p in (strict, loose))
    assert loose["passes"] < loose["theory"]  # verification is not free


def test_the_figure_is_a_picture(runs: dict[str, list[list[Run]]], tmp_path: Path) -> None:
    assert [p["row"] for p in figures.draw("mulo", runs, tmp_path / "theory.png")] == ["strict", "loose"]
    with Image.open(tmp_path / "theory.png") as picture:
        assert picture.width > 800


def test_rows_that_lie_on_one_another_share_a_label() -> None:
    places = [("mulo radius=1", 0.5, 2.0), ("mulo radius=3", 0.4, 1.5), ("mulo least_mass=1e-4", 0.4, 1.5)]
    points = [{"row": row, "stayed": a, "passes": passes} for row, a, passes in places]
    assert multi_scale.labels(points) == {(0.5, 2.0): "radius=1", (0.4, 1.5): "radius=3, least_mass=1e-4"}


def test_rows_without_a_figure_are_refused() -> None:
    assert figures.drawn(["sjd", "mulo"]) == "mulo"
    with pytest.raises(NotSupported, match="mulo"):
        figures.drawn(["ar"])

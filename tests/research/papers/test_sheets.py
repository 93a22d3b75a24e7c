"""Sheets and maps: what a run keeps for them, and that they are drawn from it alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.backbones.toy import Toy
from engine.core import Prompt
from engine.errors import BadFile
from engine.methods import METHODS
from engine.run import generate
from research.papers import figures, kept, running, sheets
from research.papers.declaration import Arm, Drawing, Experiment, Meshes, Pictures
from research.papers.page import section
from research.papers.xspecmesh import PANELS
from research.papers.xspecmesh import PAPER as XSPECMESH

ARMS = (Arm("plain", "ar"), Arm("SJD", "sjd"))


def shown(kind: str, keeps: tuple[str, ...]) -> Experiment:
    """A small experiment with prompts of its own."""
    runs = Pictures(arms=ARMS, prompts=("a dog", "a cat"), count=2, settings={"size": 64}, keeps=keeps)
    return Experiment(key="figure-1", title="One", asks="A?", reports="B.", runs=runs, drawing=Drawing(kind=kind))


def test_a_sheet_is_drawn_from_what_was_kept_and_asks_for_its_pictures(tmp_path: Path) -> None:
    asked, path = shown("sheet", ("picture",)), tmp_path / "rows.csv"
    rows = running.run(asked, path, 100, 60)
    assert [(row["prompt"], row["label"]) for row in rows] == [(p, a) for p in ("a dog", "a cat") for a in ("plain", "SJD")]
    assert "objects" not in rows[0]  # the judge has no scene to compare with
    with Image.open(kept.picture_at(path, 1, 1)) as picture:
        assert picture.size == (64, 64)
    figures.draw(asked, rows, tmp_path / "rows.png")
    drawn = np.asarray(Image.open(tmp_path / "rows.png").convert("RGB"))
    assert drawn.shape[0] > 2 * sheets.CELL and drawn.shape[1] > 2 * sheets.CELL and drawn.std() > 10
    figures.draw(asked, rows[1:], tmp_path / "rows.png")  # plain decoding was left out for the first prompt
    assert sheets.said(rows[0]).endswith("64 passes") and "x  " in sheets.said(rows[1])
    kept.picture_at(path, 1, 1).unlink()
    with pytest.raises(BadFile, match="measure again"):
        figures.draw(asked, rows, tmp_path / "rows.png")


def test_a_map_has_the_tokens_of_every_pass() -> None:
    run = generate(Toy(rows=4, columns=4), METHODS["zipar"], Prompt(seed=0), {"window": 1}).finish()
    found = kept.committed(run)
    assert len(found) == 16 and found[0] == 1 and max(found) > 1
    assert sum(1 / count for count in found) == pytest.approx(len(run.steps))
    shade = sheets.shaded([1, 2, 16, 32])
    side = shade.shape[0]
    assert shade.shape[0] == shade.shape[1] >= sheets.CELL
    corners = [shade[y, x, 0] for y in (side // 4, 3 * side // 4) for x in (side // 4, 3 * side // 4)]
    assert corners == [255, 204, 51, 0]


def test_stages_add_up_to_the_time_of_a_run(tmp_path: Path) -> None:
    run = generate(Toy(rows=4, columns=4), METHODS["mulo"], Prompt(seed=0), {"least_mass": 0.4}).finish()
    found = kept.stages(run)
    assert {"draft", "redraw", "other"} <= {*found} and sum(found.values()) == pytest.approx(run.seconds, abs=1e-3)
    rows = [{"label": label, "stages": json.dumps(found)} for label in ("plain", "SJD")]
    figures.draw(shown("stages", ("stages",)), rows, tmp_path / "stages.png")
    assert (tmp_path / "stages.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_without_what_it_needs_is_refused() -> None:
    for kind in ("sheet", "map", "stages"):
        with pytest.raises(AssertionError, match="needs"):
            shown(kind, ())
    with pytest.raises(AssertionError, match="prompts"):
        Pictures(arms=ARMS, prompts=("a dog",), count=2)


def test_panels_and_families_of_meshes(tmp_path: Path) -> None:
    asked = XSPECMESH.find("figure-5")
    assert asked is not None and isinstance(asked.runs, Meshes)
    stamp = {"backbone": "lowpoly", "weights": "w", "processor": "p", "torch": "t", "commit": "c"}
    rows = [
        {"label": label, "input": str(i), "family": family, "speedup": "1.5", "step_compression": "2"} | stamp
        for label in asked.runs.labels
        for i, family in enumerate(("house", "chair", "tower"))
    ]
    figures.draw(asked, rows, tmp_path / "panels.png")
    assert len(PANELS) == 6 and (tmp_path / "panels.png").read_bytes().startswith(b"\x89PNG")
    text = "\n".join(section(XSPECMESH, asked, rows))
    assert "By group of families, times as fast as plain decoding" in text and "| row | buildings | furniture |" in text

"""Several seeds of one cloud, and the nearest mesh of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.requests import limits
from engine import nearest
from engine.backbones.lowpoly import Mesh
from engine.core import Prompt
from engine.errors import BadKnob, BadPrompt
from engine.mesh.bpt_tokens import parse
from engine.methods import METHODS, PRESETS, find
from engine.run import generate
from tests.engine.backbones import tiny


def tried_seed(seed: int, chamfer: float | None) -> nearest.TriedSeed:
    """A mesh at a distance."""
    empty = Mesh(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int64), parse([]))
    return nearest.TriedSeed(seed, empty, {"chamfer": chamfer})


def test_the_nearest_has_the_smallest_distance_and_a_face() -> None:
    seeds = [tried_seed(4, None), tried_seed(5, 2.0), tried_seed(6, 1.0), tried_seed(7, 1.0)]
    assert nearest.nearest(seeds).seed == 6 and nearest.nearest(seeds).chamfer == 1
    assert nearest.nearest([tried_seed(4, None), tried_seed(5, None)]).seed == 4


def test_seeds_that_are_tried_are_those_of_plain_decoding() -> None:
    backbone = tiny.lowpoly()
    prompt = Prompt(points=tiny.sphere(300), seed=3, size=8)
    seeds = nearest.try_seeds(backbone, prompt, 4)
    assert [each.seed for each in seeds] == [3, 4, 5, 6] and len({each.mesh.vertices.tobytes() for each in seeds}) > 1
    for each in seeds:
        alone = generate(backbone, METHODS["ar"], replace(prompt, seed=each.seed)).finish().result()
        assert np.array_equal(alone.vertices, each.mesh.vertices) and np.array_equal(alone.faces, each.mesh.faces)


def test_seeds_end() -> None:
    last = 2**63 - 1
    with pytest.raises(BadPrompt, match=f"There are no 2 seeds from {last} on"):
        nearest.try_seeds(tiny.lowpoly(), Prompt(points=tiny.sphere(), seed=last), 2)


@pytest.mark.parametrize("name", ["ar", "sjdpp", "xspecmesh_exact"])
def test_a_method_that_makes_the_mesh_of_a_seed_is_taken_with_match_seed(name: str) -> None:
    method, preset = find(name)
    assert nearest.seed_knobs(method, preset) == dict(preset) | ({} if name == "ar" else {"verify": "match seed"})


@pytest.mark.parametrize(("name", "more"), [("xspecmesh", {}), ("sjdpp", {"verify": "residual"})])
def test_a_method_that_draws_another_mesh_is_refused(name: str, more: dict[str, str]) -> None:
    method, preset = find(name)
    with pytest.raises(BadKnob, match="draws another mesh of a seed"):
        nearest.seed_knobs(method, dict(preset) | more)


def test_the_command_line_and_the_engine_have_one_limit() -> None:
    assert limits.MOST_SEEDS == nearest.MOST and "xspecmesh_exact" in PRESETS

"""Settings that are labelled exact. tests/engine/decoding/test_policy.py tests that match seed refuses the others."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core import Knobs
from engine.methods import find

BADGES: list[tuple[str, dict[str, Any], bool]] = [
    ("eagle", {}, True), ("lantern", {}, False), ("lantern_static", {}, False), ("adt_tree_lantern", {}, False),
    ("gsd", {}, False), ("gsd", {"half_width": 0}, True),
    ("mulo", {}, False), ("mulo", {"least_mass": 1.0}, True),
    ("sjdpp", {}, True), ("sjdpp_published", {}, False), ("sjdpp_published", {"verify": "match seed"}, True),
    ("zipar", {}, False), ("zipar_verified", {}, True), ("zipar", {"window": 256}, True),
    ("zipar", {"window": 256, "adaptive": "on"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changed", "exact"), BADGES)
def test_the_badge_is_that_of_the_knobs(name: str, changed: dict[str, Any], exact: bool) -> None:
    method, preset = find(name)
    knobs = Knobs({knob.name: knob.default for knob in method.knobs} | preset | changed)
    assert method.exact(knobs) == exact and method.why(knobs).startswith("Exact" if exact else "Not exact")

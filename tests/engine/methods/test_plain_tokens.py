"""Exact methods give the tokens of plain decoding, greedy and with the same seed: tiny models of every family, every drafter that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from engine.core import Sampling
from engine.methods import METHODS
from engine.run import Run, generate
from tests.engine.device.models import MODELS, methods_for, near

GREEDY, WARM = "greedy", "match seed"
SIZES = {"pictogram": 64, "lowpoly": 12}  # of a picture, and faces of a mesh; others have one
SAMPLING = {  # open distributions, and filtered ones
    "pictogram": Sampling(0.8, 20, 0.95, 2.0), "janus": Sampling(1.0, 12, 0.95, 3.0), "lumina": Sampling(1.0, 12, 0.95, 3.0),
}  # fmt: skip


def run(model: str, method: str, way: str, seed: int = 5, **knobs: Any) -> Run:
    """A finished run."""
    backbone = near(model)
    sampling = Sampling(temperature=0.0, guidance=2.0) if way == GREEDY else SAMPLING.get(model)
    size = 128 if method == "mulo" else SIZES.get(model)
    prompt = replace(backbone.prompt, seed=seed, size=size, sampling=sampling)
    return generate(backbone.backbone, METHODS[method], prompt, knobs, backbone.drafter_of(METHODS[method])).finish()


@cache
def plain(model: str, way: str, seed: int, large: bool) -> list[int]:
    """The tokens of plain decoding. large : at two scales"""
    if large:
        prompt = replace(near(model).prompt, seed=seed, size=128, sampling=SAMPLING[model] if way == WARM else Sampling(0.0, guidance=2.0))
        return generate(near(model).backbone, METHODS["ar"], prompt).finish().in_order
    return run(model, "ar", way, seed).in_order


EVERY: list[tuple[str, str, Mapping[str, Any]]] = [
    (model, name, {}) for model in MODELS for name in methods_for(near(model)) if name in METHODS and name != "ar"
]
KINDS = ("independent", "most probable", "tree", "tree pruned")
VARIANTS: list[tuple[str, str, Mapping[str, Any]]] = [
    *(("lowpoly", "xspecmesh", {"drafts": drafts, "heads": kind}) for drafts in KINDS for kind in ("cross-attention", "multilayer")),
    ("lowpoly", "lookup", {"drafted": 8}), ("lowpoly", "surface", {"drafted": 0, "heads": "multilayer"}),
    ("lowpoly", "surface", {"drafted": 16, "guessed": 0}), ("lowpoly", "eagle", {"children": "auto"}),
    ("pictogram", "eagle", {"children": "deterministic", "width": 5, "nodes": 20}),
    ("pictogram", "adt_tree", {"children": "deterministic"}), ("pictogram", "spatial", {"window": 20}),
    ("pictogram", "spatial", {"window": 6, "foresee": "rows"}), ("pictogram", "spatial", {"window": 12, "foresee": "columns"}),
    *(("pictogram", "cross_regression", knobs) for knobs in ({"refresh": "carry"}, {"refresh": "coupled"}, {"mode": "sequential"})),
]  # fmt: skip


@pytest.mark.parametrize("way", [GREEDY, WARM])
@pytest.mark.parametrize(("model", "name", "knobs"), EVERY + VARIANTS)
def test_the_tokens_are_those_of_plain_decoding(model: str, name: str, knobs: Mapping[str, Any], way: str) -> None:
    chosen = dict(METHODS[name].common) | ({"factor": "2"} if name == "mulo" else {}) | dict(knobs)
    for seed in (5, 6) if way == WARM and model in SIZES else (5,):
        ours = run(model, name, way, seed, **chosen | {"verify": "match seed" if way == WARM else "residual"})
        assert ours.in_order == plain(model, way, seed, name == "mulo") and ours.exact
        assert name == "mulo" or ours.totals["forwards"] <= len(ours.tokens)

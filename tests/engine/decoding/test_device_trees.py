"""Trees that are grown and verified on the device: the host's trees, paths and tokens, on every kind of tree; mutants are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core import Sampling, Step
from engine.decoding import device_verify, growth, trees
from engine.decoding.deviation import Meter
from engine.decoding.device_growth import fits
from engine.drafters.feature_draft import NetworkGrowth
from engine.methods import find
from engine.run import generate
from tests.engine.device.far import as_on_a_gpu
from tests.engine.device.models import Model, near

SMALL = {"depth": 3, "width": 3, "nodes": 9}
LANTERN = {"relax": "additive", "added_mass": 0.3, "neighbour_share": 0.2}
LENIENT = LANTERN | {"added_mass": 0.9, "neighbour_share": 0.5}
FLAT = Sampling(temperature=3.0)  # the drafter is as good as the model: long paths
GREEDY, NARROW = Sampling(temperature=0.0, guidance=2.0), Sampling(top_k=2, guidance=2.0)
CASES: list[tuple[str, str, dict[str, Any], Sampling | None]] = [
    ("pictogram", "eagle", {}, None), ("pictogram", "eagle", {"children": "sampled"}, None),
    ("pictogram", "eagle", {"children": "deterministic"}, None), ("pictogram", "eagle", {"verify": "match seed"}, None),
    ("pictogram", "eagle", {}, GREEDY), ("pictogram", "eagle", {"children": "sampled"}, NARROW), ("janus", "eagle", {"depth": 5}, None),
    ("pictogram", "eagle", LANTERN, None), ("pictogram", "eagle", LANTERN | {"children": "deterministic"}, None),
    ("pictogram", "eagle", LANTERN, GREEDY), ("pictogram", "eagle", LENIENT, GREEDY),
    ("pictogram", "eagle", LANTERN | {"relax": "multiplicative"}, None),
    ("pictogram", "adt_tree_published", {}, None), ("pictogram", "medusa", {}, None), ("pictogram", "lookahead", {}, None),
    ("pictogram", "adt_tree", {}, None), ("pictogram", "adt_tree", {"row_cost": 0.01, "level_cost": 0.02}, FLAT),
    ("lowpoly", "eagle", {"depth": 5}, None), ("lowpoly", "eagle", {"children": "sampled"}, None),
]  # fmt: skip


def steps(model: Model, method: str, knobs: dict[str, Any], sampling: Sampling | None, count: int = 24) -> list[Step]:
    """The first steps of a run."""
    entry, preset = find(method)
    chosen: dict[str, Any] = {knob.name: SMALL[knob.name] for knob in entry.knobs if knob.name in SMALL}
    prompt = replace(model.prompt, sampling=sampling) if sampling else model.prompt
    run = generate(model.backbone, entry, prompt, chosen | preset | knobs, model.drafter_of(entry))
    taken = list(islice(run, count))
    run.close()
    return taken


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes later runs on the processor grow and verify as on a device. No pass is measured, because the host verifies those."""
    monkeypatch.setattr(Meter, "begin", lambda *arguments, **options: False)

    def use() -> None:
        monkeypatch.setattr(trees, "fits", lambda growth, sequence: isinstance(growth, NetworkGrowth))

    return use


@pytest.mark.parametrize(("name", "method", "knobs", "sampling"), CASES)
def test_steps_are_those_of_the_host(
    name: str, method: str, knobs: dict[str, Any], sampling: Sampling | None, on_device: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = steps(near(name), method, knobs, sampling)
    on_device()
    with as_on_a_gpu(monkeypatch):
        there = steps(near(name), method, knobs, sampling)
    for ours, theirs in zip(there, plain, strict=True):
        assert (ours.tokens, ours.draft) == (theirs.tokens, theirs.draft)
        assert ours.draft_forwards == theirs.draft_forwards or (method == "adt_tree" and ours.draft_forwards > theirs.draft_forwards)
        mine, other = ours.trace.tree, theirs.trace.tree
        assert (mine.tokens, mine.parents, mine.path, mine.levels) == (other.tokens, other.parents, other.path, other.levels)
        for pair in ((mine.p, other.p), (mine.q, other.q), (ours.trace.accept_probability, theirs.trace.accept_probability)):
            torch.testing.assert_close(*(torch.as_tensor(each).float() for each in pair), atol=1e-4, rtol=1e-3)


def without_earlier(bases: Tensor, rows: Tensor) -> Tensor:
    """Siblings' distributions that are not conditional on the earlier ones."""
    return bases[rows[4] + 1]


def one_level(child: Tensor, levels: int) -> tuple[Tensor, Tensor]:
    """A path that ends after its first level."""
    first = child[:1]
    return torch.cat([first, first.new_full((levels - 1,), -1)]), torch.cat([first * 0, (first + 1).clamp(min=0).repeat(levels)])


MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "residual is p": (device_verify, "residual", lambda p, q: p),
    "siblings' distributions not conditional": (growth, "sibling_probs", without_earlier),
    "the first nodes, not the best": (growth, "leaders", lambda scores, count: torch.arange(min(count, len(scores)))),
    "a path ends after a level": (device_verify, "walk_there", one_level),
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_mutants_are_found(mutant: tuple[Any, str, Any], on_device: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:

    def tokens() -> list[list[int]]:
        taken = (steps(near("pictogram"), "eagle", {"children": "sampled"}, sampling, 60) for sampling in (None, FLAT))
        return [step.tokens for run in taken for step in run]

    plain = tokens()
    on_device()
    monkeypatch.setattr(*mutant)
    with as_on_a_gpu(monkeypatch):
        assert tokens() != plain


@pytest.mark.parametrize(("automaton", "state", "there"), [(object(), (5,), True), (None, None, True), (None, (5,), False)])
def test_trees_grow_on_the_device_unless_a_grammar_has_no_tables(automaton: object, state: object, there: bool) -> None:
    growth = object.__new__(NetworkGrowth)
    growth.workspace = object()
    sequence = SimpleNamespace(device=torch.device("cpu"), automaton=automaton, state=lambda path: state)
    assert fits(growth, sequence) is there

"""Pairs of runs in threads over the same weights: each gives the same tokens as alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from engine.backbones import load
from engine.core import Backbone, Prompt
from engine.methods import METHODS, find
from engine.run import generate
from tests.engine.backbones import tiny
from tests.faults import folders
from tests.faults.outcome import Outcome
from tests.faults.sentences import hold

PATIENCE = 300  # seconds until a thread counts as stuck
TOKENS = 30  # of a run, after which it is stopped
PRESETS = {"pictogram": ("sjdpp_published", "adt_tree_lantern"), "lowpoly": ("xspecmesh_exact", "adt_tree_published")}


@pytest.fixture(scope="module")
def backbones(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Backbone]:
    """Both kinds, with all files that may accompany their weights."""
    folder = tmp_path_factory.mktemp("threads")
    folders_of = {"pictogram": folders.pictogram(folder / "pictures"), "lowpoly": folders.lowpoly(folder / "meshes")}
    return {name: load(name, str(path)) for name, path in folders_of.items()}


def names_for(backbone: Backbone) -> list[str]:
    """The methods and presets that work on a backbone."""
    return [name for name in (*METHODS, *PRESETS[backbone.name]) if find(name)[0].needs <= backbone.capabilities]


def prompt_for(backbone: Backbone, seed: int) -> Prompt:
    """A prompt of a backbone's kind."""
    if "points" in backbone.capabilities:
        return Prompt(points=tiny.sphere(), seed=seed)
    return Prompt(folders.PROMPT, seed=seed, size=128)


def tokens(backbone: Backbone, name: str, seed: int) -> list[int]:
    """The first tokens of a run, in the order in which they were committed."""
    method, preset = find(name)
    run = generate(backbone, method, prompt_for(backbone, seed), preset)
    for _ in run:
        if len(run.tokens) >= TOKENS:
            break
    run.close()
    return run.tokens


def run_threads(work: list[Callable[[], Any]]) -> list[Any]:
    """Results of functions that start at the same time, one thread each; an exception in place of its result, None if one is stuck."""
    start, results = threading.Barrier(len(work)), [None] * len(work)

    def do(k: int) -> None:
        start.wait()
        try:
            results[k] = work[k]()
        except Exception as e:
            results[k] = e

    threads = [threading.Thread(target=do, args=(k,), daemon=True) for k in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return results


def pairs(backbone: Backbone) -> Iterator[tuple[str, str]]:
    """Every pair of methods at least once with a neighbour, and each with itself."""
    names = names_for(backbone)
    near = [(a, b) for a, b in combinations_with_replacement(names, 2) if (names.index(b) - names.index(a)) in (0, 1, len(names) // 2)]
    yield from near


@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_pairs_of_runs_give_the_tokens_of_the_runs_alone(name: str, backbones: dict[str, Backbone]) -> None:
    backbone, outcomes = backbones[name], []
    alone = {(method, seed): tokens(backbone, method, seed) for method in names_for(backbone) for seed in (1, 2)}
    for first, second in pairs(backbone):
        results = run_threads([lambda m=first: tokens(backbone, m, 1), lambda m=second: tokens(backbone, m, 2)])
        same = results == [alone[first, 1], alone[second, 2]]
        text = "" if same else f"{results} instead of {[alone[first, 1], alone[second, 2]]}"
        title = f"{name}: {first} beside {second}"
        outcomes.append(Outcome(title, "value" if same else "bug", text))
    assert len(outcomes) >= 20
    hold(outcomes)


def test_loads_in_threads_give_the_same_weights(tmp_path: Path) -> None:
    paths = {"pictogram": folders.pictogram(tmp_path / "pictures"), "lowpoly": folders.lowpoly(tmp_path / "meshes")}
    outcomes = []
    for pair in (("pictogram", "pictogram"), ("pictogram", "lowpoly"), ("lowpoly", "lowpoly:lora"), ("lowpoly:lora", "lowpoly:lora")):
        where = [str(paths[name.removesuffix(":lora")]) for name in pair]
        alone = [load(name, path).weights_hash for name, path in zip(pair, where, strict=True)]
        results = run_threads([lambda name=name, path=path: load(name, path) for name, path in zip(pair, where, strict=True)])
        same = [getattr(b, "weights_hash", b) for b in results] == alone
        outcomes.append(Outcome(" beside ".join(pair), "value" if same else "bug", "" if same else str(results)))
    hold(outcomes)

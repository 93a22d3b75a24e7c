"""Whole runs of tiny models by numpy, and with every kernel, interpreted: the same tokens and traces as with the references."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch

from engine.cache import keep
from engine.core import Backbone, DeviceIds, Draft, Prompt, Sampling
from engine.decoding import trees, verdict
from engine.decoding.growth import Tree
from engine.dispatch.choice import NATIVE, REFERENCE, TRITON, VARIABLE
from engine.kernels import row_lora, tree_attention
from engine.methods import METHODS
from engine.noise import Noise
from engine.run import generate
from engine.verify import choice
from tests.engine.backbones import tiny
from tests.engine.device.models import MODELS
from tests.engine.kernels.near import DEVICE, near, needs_triton
from tests.engine.networks.test_static_step import DYNAMIC, STATIC, use_steps

pytestmark = [needs_triton, pytest.mark.skipif(DEVICE.type == "cuda", reason="the tiny models of this test are on the processor")]
POINTS = Prompt(points=tiny.sphere(), seed=1)  # a mesh, whose drafts obey its grammar
OPEN = Prompt("red apple", seed=3)
FILTERED = Prompt("red apple", seed=3, sampling=Sampling(0.9, 20, 0.9, 2.0))
WINDOW = {"window": 5}


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Launches of each kernel."""
    monkeypatch.delenv(VARIABLE, raising=False)
    counts: dict[str, int] = {}

    def counting(name: str, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return function(*arguments, **named)

        return call

    places = ((choice, "verify"), (keep, "keep_rows"), (tree_attention, "tree_attention"), (row_lora, "row_lora"))
    for module, kernel in places:
        name = f"{kernel}_triton"
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    yield counts
    gc.collect()


def steps(backbone: Backbone, method: str, knobs: dict[str, Any], prompt: Prompt, count: int) -> list[Any]:
    """The first steps of a run."""
    run = generate(backbone, METHODS[method], prompt, knobs)
    taken = list(islice(run, count))
    run.stop()
    next(run, None)
    return taken


RUNS: list[tuple[str, dict[str, Any], Prompt, int]] = [  # and the steps with kernels, which are slow to interpret
    ("ar", {}, OPEN, 5), ("ar", {}, FILTERED, 2), ("sjd", WINDOW, OPEN, 4), ("sjdpp", WINDOW, FILTERED, 2),
    ("sjdpp", WINDOW | {"verify": "match seed"}, OPEN, 4), ("sjdpp", WINDOW | {"refresh": "coupled maximal"}, OPEN, 4),
    ("sjdpp", WINDOW | {"refresh": "reuse mixture"}, OPEN, 3),
    ("sjdpp", WINDOW | {"relax": "multiplicative", "multiplied_mass": 2.0}, OPEN, 3), ("gsd", WINDOW | {"code_distance": 1.9}, OPEN, 3),
    ("jacobi", WINDOW, OPEN, 2), ("zipar", {"window": 3}, OPEN, 12), ("ar", {}, POINTS, 3), ("sjdpp", {"window": 3}, POINTS, 3),
    ("sjdpp", {"window": 6, "verify": "match seed"}, POINTS, 3),
]  # fmt: skip


@pytest.mark.parametrize("way", [NATIVE, TRITON])
@pytest.mark.parametrize(("method", "knobs", "prompt", "count"), RUNS)
def test_the_tokens_and_the_trace_are_those_of_the_references(
    method: str, knobs: dict[str, Any], prompt: Prompt, count: int, way: str, monkeypatch: pytest.MonkeyPatch, launches: dict[str, int]
) -> None:
    runs = []
    for kind in (REFERENCE, way):
        assert launches == {}
        monkeypatch.setenv(VARIABLE, kind)
        backbone = tiny.lowpoly() if prompt is POINTS else tiny.pictogram.__wrapped__()  # a separate one: other tests use its head
        runs.append(steps(backbone, method, knobs, prompt, count if way == TRITON else 12))
    theirs, ours = runs
    assert [(s.tokens, s.positions) for s in ours] == [(s.tokens, s.positions) for s in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.trace.known_fields | {"top"} == other.trace.known_fields | {"top"}  # which kernels do not return
        for name in ("entropy", "accept_probability", *(["top"] if way == NATIVE else [])):
            if (value := getattr(other.trace, name)) is not None:
                near(name, torch.as_tensor(getattr(mine.trace, name)), torch.as_tensor(value), 1e-4, 1e-5)
    if way == NATIVE:
        assert launches == {}
    elif prompt is POINTS:
        assert launches["verify_triton"] == 3
    else:
        assert launches.get("verify_triton") or method in ("jacobi", "zipar")  # these draw by PyTorch, with the device's noise
        assert launches.get("tree_attention_triton") or method == "ar"  # one row sees everything: nothing to mask


@pytest.mark.parametrize(("method", "prompt", "drafter"), [("sjdpp", OPEN, ""), ("cross_regression", OPEN, "predictive_stream")])
def test_the_kernels_run_in_fixed_shapes(
    method: str, prompt: Prompt, drafter: str, monkeypatch: pytest.MonkeyPatch, launches: dict[str, int]
) -> None:
    """The number of kept rows, the adapter's first row and the number of drafts are read from tensors."""
    model, knobs = MODELS["pictogram"](lambda module: module), {"window": 4, "horizon": 3}
    known, runs = {knob.name for knob in METHODS[method].knobs}, []
    for way, step in ((REFERENCE, DYNAMIC), (TRITON, STATIC)):
        monkeypatch.setenv(VARIABLE, way)
        use_steps(monkeypatch, step)
        chosen = {name: value for name, value in knobs.items() if name in known}
        run = generate(model.backbone, METHODS[method], replace(prompt, size=64), chosen, model.drafters.get(drafter))
        runs.append([step.tokens for step in islice(run, 4)])
        run.close()
    assert runs[0] == runs[1]
    assert launches["tree_attention_triton"] and (launches.get("verify_triton") if method == "sjdpp" else launches["row_lora_triton"])


def test_a_tree_is_seen_and_answered_and_its_path_kept(monkeypatch: pytest.MonkeyPatch, launches: dict[str, int]) -> None:
    """A pass over a tree, the model's draws in every row, and a second pass after keeping a path that is not a chain."""
    tree, verdicts = Tree([3, 7, 1, 9, 4, 2], [-1, -1, 0, 1, 1, 3], None, [False] * 6, 0, None), []
    for mode in (REFERENCE, TRITON):
        monkeypatch.setenv(VARIABLE, mode)
        sequence = tiny.pictogram().start(OPEN)
        with torch.inference_mode():
            rows = sequence.forward(tree.draft())
            noise = Noise(3, sequence.vocabulary)
            answers = [trees.answers(rows, tree, noise, 0, 0, seeded) for seeded in (True, False)]
            committed = sequence.commit([1, 4], 5)
            after = sequence.forward(Draft(torch.tensor([8, 9])))
            verdicts.append((answers, committed, rows.p, after.p))
    assert verdicts[0][:2] == verdicts[1][:2]
    near("p", verdicts[1][2], verdicts[0][2], 1e-4, 1e-6)
    near("p after the path", verdicts[1][3], verdicts[0][3], 1e-4, 1e-6)
    assert launches["keep_rows_triton"] and launches["tree_attention_triton"] and launches["verify_triton"]


def test_nothing_is_read_between_logits_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read per step: two numbers and the drafts, which the commit needs."""
    monkeypatch.setenv(VARIABLE, TRITON)
    sequence, read = tiny.pictogram().start(OPEN), []
    right = DeviceIds.to_list_with
    monkeypatch.setattr(DeviceIds, "to_list_with", lambda ids, pair: read.append((len(pair), len(ids.tokens))) or right(ids, pair))
    with torch.inference_mode():
        rows = sequence.forward(Draft(torch.tensor([3, 4])))
        q = torch.softmax(torch.randn(2, sequence.vocabulary), -1)
        monkeypatch.setattr(torch.Tensor, "item", _refuse_read)
        verdict.judge(rows, torch.tensor([3, 4]), q, Noise(0, sequence.vocabulary), 0, 0, seeded=False)
    assert read == [(2, 2)]


def _refuse_read(tensor: torch.Tensor) -> None:
    raise AssertionError("a value was read on the host")

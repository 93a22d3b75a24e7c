"""Joint passes of checkpoints of transformers: four prompts in one pass, each with the tokens of its run alone, also where passes would be
replayed otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.core import Draft, Prompt
from engine.many import generate_many
from engine.methods import METHODS
from engine.networks.hosted import HostedTrunk, JointPass
from engine.run import Run, generate
from tests.engine.device.far import Far, as_on_a_gpu, move_module
from tests.engine.device.models import MODELS, Model, near
from tests.engine.networks.test_static_step import DYNAMIC, STATIC, use_steps

SMALL = {"window": 4, "depth": 2, "width": 2, "nodes": 4}
COUNT = 12  # tokens that are compared
CASES = [
    ("janus", "ar"), ("janus", "sjdpp"), ("janus", "eagle"), ("emu3", "ar"), ("emu3", "sjdpp"), ("emu35", "sjdpp"), ("lumina", "sjdpp"),
    ("anole", "sjdpp"),
]  # fmt: skip


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The rows of each run in every joint pass, branches included."""
    rows: list[list[int]] = []
    right = JointPass.__init__

    def record(self: JointPass, parts: list[Any]) -> None:
        right(self, parts)
        rows.append([branches * count for branches, count in self.shapes])

    monkeypatch.setattr(JointPass, "__init__", record)
    return rows


def prompts(model: Model) -> list[Prompt]:
    """Four prompts of different lengths, as far as the model takes text."""
    texts = ("red apple", "a", "two blue cups on a table", "tree")
    numbered = model.prompt.text.isdigit()
    return [replace(model.prompt, text=str(i) if numbered else text, seed=i) for i, text in enumerate(texts)]


def knobs_of(method: str) -> dict[str, Any]:
    """Small windows and trees."""
    return {knob.name: SMALL[knob.name] for knob in METHODS[method].knobs if knob.name in SMALL}


def alone(model: Model, method: str) -> list[list[int]]:
    """The tokens of each prompt in a run of its own."""
    entry = METHODS[method]
    runs = [generate(model.backbone, entry, each, knobs_of(method), model.drafter_of(entry)).finish() for each in prompts(model)]
    return [run.tokens[:COUNT] for run in runs]


def together(model: Model, method: str) -> list[list[int]]:
    """The tokens of each prompt in four runs at once."""
    entry, ended = METHODS[method], {}

    def watch(index: int, run: Run) -> None:
        if len(run.tokens) >= COUNT:
            run.stop()

    for each in generate_many(model.backbone, entry, prompts(model), knobs_of(method), 4, model.drafter_of(entry), watch=watch):
        assert each.error is None, each.error
        ended[each.index] = each.run.tokens[:COUNT]
    return [ended[i] for i in range(4)]


@pytest.mark.parametrize(("name", "method"), CASES)
def test_four_prompts_in_one_pass(name: str, method: str, joined: list[list[int]]) -> None:
    expected = alone(near(name), method)
    assert not joined
    assert together(near(name), method) == expected
    assert [len(rows) for rows in joined[:3]] == [4, 4, 4]


@pytest.mark.parametrize(("name", "method"), [("janus", "sjdpp"), ("emu3", "ar")])
def test_on_a_device_they_are_not_replayed(name: str, method: str, joined: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of the processor; nothing is on the wrong device."""
    use_steps(monkeypatch, DYNAMIC)
    expected = alone(near(name), method)
    use_steps(monkeypatch, STATIC)
    with as_on_a_gpu(monkeypatch) as device:
        assert isinstance(device, Far)
        assert together(MODELS[name](move_module), method) == expected
    assert [len(rows) for rows in joined[:3]] == [4, 4, 4]


@pytest.mark.parametrize("name", ["glm_image", "llamagen"])
def test_a_model_with_positions_on_several_axes_does_not_join(name: str, joined: list[list[int]]) -> None:
    model = near(name)
    assert together(model, "ar") == alone(model, "ar") and not joined


def swapped(right: Any) -> Any:
    """Gives each run the rows of the next one."""

    def divide(self: JointPass, x: Tensor) -> list[Tensor]:
        parts = right(self, x)
        return [*parts[1:], parts[0]] if len({part.shape for part in parts}) == 1 else parts

    return divide


def test_rows_of_another_run_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = alone(near("janus"), "ar")
    monkeypatch.setattr(JointPass, "divide", swapped(JointPass.divide))
    assert together(near("janus"), "ar") != expected


@torch.inference_mode()
def test_a_joint_pass_is_that_of_each_run() -> None:
    """Hidden states, logits and caches, for passes of different lengths."""
    model, pairs = near("emu3"), []
    for way in ("alone", "joint"):
        sequences = [model.backbone.start(each) for each in prompts(model)]
        requests: list[Any] = []
        for i, sequence in enumerate(sequences):
            sequence.run_together = lambda request, into=requests: into.append(request) or request.run_alone()
            sequence.forward(Draft(torch.arange(i)))
        results = [each.run_alone() for each in requests] if way == "alone" else requests[0].trunk.run_together(requests)
        blocks = [sequence.kv_cache.below.block for sequence in sequences]
        pairs.append(([each for result in results for each in result], blocks))
    assert isinstance(requests[0].trunk, HostedTrunk)
    for ours, theirs in zip(pairs[1][0] + pairs[1][1], pairs[0][0] + pairs[0][1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)

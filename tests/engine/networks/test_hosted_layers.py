"""Layers of hosted decoders with the fused kernels, interpreted: their rows are those of transformers' own layers, for every family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

from engine.core import Draft
from engine.dispatch.choice import REFERENCE, TRITON, VARIABLE, KernelChoice
from engine.kernels import gate, residual_norm, rotary_write, tree_attention
from engine.methods import find
from engine.networks import hosted_layers, static_step
from engine.networks.static_step import NAMED
from engine.run import generate
from tests.engine.device.far import Far, move_module
from tests.engine.device.models import MODELS, near
from tests.engine.kernels.near import DEVICE, needs_triton
from tests.engine.networks.test_static_step import CHAIN, DYNAMIC, STATIC, TREE, start_sequence, use_steps

HOSTED = [name for name in MODELS if name not in ("pictogram", "lowpoly", "bpt")]
pytestmark = [needs_triton, pytest.mark.skipif(DEVICE.type == "cuda", reason="the tiny models of this test are on the processor")]


@pytest.fixture
def layers_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of every pass through the fused layers."""
    counts: list[int] = []

    def record(decoder: torch.nn.Module, x: torch.Tensor, *more: object) -> torch.Tensor:
        counts.append(x.shape[1])
        return right(decoder, x, *more)

    right = hosted_layers.run_layers
    monkeypatch.setattr("engine.networks.hosted.run_layers", record)
    return counts


def compare(name: str, drafts: tuple[Draft, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Asserts that passes with the kernels in fixed shapes have the rows of transformers' layers, also after a path was kept."""
    pair = []
    for way, step in ((TRITON, STATIC), (REFERENCE, DYNAMIC)):
        monkeypatch.setenv(VARIABLE, way)
        sequence, rows = start_sequence(near(name), monkeypatch, step), []
        for draft in drafts:
            passed = sequence.forward(draft)
            rows += [passed.hidden.clone(), passed.logits.clone()]
            sequence.commit([0, 1] if draft.parents is None else [0, 2], 6)
        pair.append(rows)
    for ours, theirs in zip(*pair, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("name", HOSTED)
def test_a_pass_has_the_rows_of_transformers_layers(name: str, monkeypatch: pytest.MonkeyPatch, layers_run: list[int]) -> None:
    """Row ends, padded guidance rows, heads with norms, positions on three axes, norms before and after."""
    compare(name, (TREE, CHAIN), monkeypatch)
    assert layers_run, "none of the passes ran our layers"


@torch.inference_mode()
def test_bpt_attends_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of our own, whose attention is the same."""
    parts, right = [], tree_attention._merge_parts
    monkeypatch.setattr(tree_attention, "_merge_parts", lambda sums, *rest: parts.append(sums.shape[1]) or right(sums, *rest))
    compare("bpt", (CHAIN,), monkeypatch)
    assert min(parts) > 1


MUTANTS: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {  # the model, the kernel, and its call by a wrong layer
    "every row has the position of the row before it": (
        "janus", rotary_write, "rotary_write_triton", lambda right, q, k, v, cos, *rest: right(q, k, v, cos.roll(1, 1), *rest),
    ),
    "the sum is not carried on": (
        "janus", residual_norm, "residual_norm_triton", lambda right, x, *rest: (x.clone(), right(x, *rest)[1]),
    ),
    "gate and up are exchanged": ("janus", gate, "gate_triton", lambda right, opened, up: right(up, opened)),
    "the padding of a guidance row is seen": (
        "emu3", tree_attention, "tree_attention_triton",
        lambda right, q, k, v, seen, *rest: right(q, k, v, replace(seen, padding=None), *rest),
    ),
}  # fmt: skip


@torch.inference_mode()
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_layer_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, module, kernel, wrong = MUTANTS[mutant]
    monkeypatch.setattr(module, kernel, partial(wrong, getattr(module, kernel)))
    with pytest.raises(AssertionError, match="not close"):
        compare(name, (CHAIN,), monkeypatch)


@pytest.mark.parametrize(("name", "method", "window", "steps"), [("emu3", "sjdpp", 4, 4), ("janus", "zipar", 2, 9)])
def test_a_run_has_the_tokens_of_transformers_layers(
    name: str, method: str, window: int, steps: int, monkeypatch: pytest.MonkeyPatch, layers_run: list[int]
) -> None:
    """In fixed shapes, and in a wavefront, whose committed tokens are not a prefix."""
    model, runs = near(name), []
    for way, step in ((TRITON, STATIC), (REFERENCE, DYNAMIC)):
        monkeypatch.setenv(VARIABLE, way)
        use_steps(monkeypatch, step)
        run = generate(model.backbone, find(method)[0], model.prompt, {"window": window})
        runs.append([(step.tokens, step.positions) for step in islice(run, steps)])
        run.close()
    assert runs[0] == runs[1] and layers_run


@pytest.mark.parametrize("name", ["emu3", "glm_image"])
def test_layers_on_another_device_read_and_send_nothing(name: str, monkeypatch: pytest.MonkeyPatch, layers_run: list[int]) -> None:
    """On the simulated device, where each kernel's reference takes its place."""
    use_steps(monkeypatch, STATIC)
    monkeypatch.setattr(static_step, "choose", lambda device, dtype: KernelChoice(TRITON, ""))
    tokens = []
    for place in (move_module, lambda module: module):
        with Far() as device, torch.inference_mode():
            model = MODELS[name](place)
            sequence = model.backbone.start(model.prompt)
            sequence.forward(Draft(torch.tensor([], dtype=torch.int64)))
            sequence.commit([], 1)
            inputs, block = torch.zeros(4, NAMED + 1, dtype=torch.int64), sequence.kv_cache.below.block
            inputs[:, 0], inputs[:, 6], inputs[:, 7] = 5, torch.arange(5, 9), torch.tensor([1, 3, 7, 15])
            inputs[:, 3] = inputs[:, 5] = torch.arange(4)
            inputs = inputs.to(block.device)
            with device.count_traffic() as traffic:
                _, logits, _ = static_step.fixed_pass(sequence.trunk, block, inputs, None, 32)
            assert not traffic.reads and not traffic.sends
            tokens.append(logits.argmax(-1).cpu())
    assert layers_run and torch.equal(*tokens)

"""A pass in fixed shapes: rows, fillers, buckets and drafters. Whole runs are in test_static_verdict.py; the last test needs a GPU."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch

from engine.core import NO_DRAFT, Draft
from engine.dispatch.choice import REFERENCE
from engine.dispatch.choice import VARIABLE as KERNELS
from engine.methods import find
from engine.networks import sequence as sequences
from engine.networks import workspace
from engine.networks.native_blocks import quicken
from engine.networks.sequence import TransformerSequence
from engine.networks.static_step import PassShape, fixed_pass, is_static, pass_inputs
from engine.networks.workspace import Bucket, bucket
from engine.run import generate
from tests.engine.device.models import MODELS, Model, near

SMALL = {"window": 6, "depth": 3, "width": 3, "nodes": 6}
TREE = Draft(torch.tensor([5, 3, 5, 1, 2]), parents=torch.tensor([-1, -1, 0, 0, 2]))
CHAIN = Draft(torch.tensor([4, 1, 7]))
STATIC, DYNAMIC = "static", "dynamic"


def steps(model: Model, method: str, knobs: dict[str, Any], count: int) -> list[Any]:
    """The first steps of a run."""
    entry, preset = find(method)
    chosen: dict[str, Any] = {k.name: SMALL[k.name] for k in entry.knobs if k.name in SMALL}
    run = generate(model.backbone, entry, model.prompt, chosen | preset | knobs, model.drafter_of(entry))
    taken = list(islice(run, count))
    run.close()
    return taken


def use_steps(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Makes new sequences use passes in fixed shapes, or in dynamic ones."""
    monkeypatch.setattr(sequences, "is_static", lambda device: step == STATIC)


def start_sequence(model: Model, monkeypatch: pytest.MonkeyPatch, step: str = STATIC) -> TransformerSequence:
    """A sequence with two committed tokens."""
    use_steps(monkeypatch, step)
    sequence = model.backbone.start(model.prompt)
    for token in (1, 2):
        sequence.forward(NO_DRAFT)
        sequence.commit([], token)
    return sequence


@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_a_decoder_prepared_for_a_processor_takes_fixed_shapes_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its native functions read the number of kept rows on the host, so PyTorch runs such a pass."""
    model = MODELS[name](lambda module: module)
    quicken(model.backbone.model.decoder)
    runs = []
    for step in (DYNAMIC, STATIC):
        use_steps(monkeypatch, step)
        runs.append([step.tokens for step in steps(model, "sjdpp", {}, 6)])
    assert runs[0] == runs[1]


@torch.inference_mode()
@pytest.mark.parametrize("draft", [NO_DRAFT, CHAIN, TREE], ids=["none", "chain", "tree"])
@pytest.mark.parametrize("name", ["pictogram", "lowpoly", "janus", "emu3"])
def test_rows_are_those_of_the_dynamic_step(name: str, draft: Draft, monkeypatch: pytest.MonkeyPatch, buckets_used: list[Bucket]) -> None:
    """The cache after a pass is also the same, for every kept path."""
    pair = [start_sequence(near(name), monkeypatch, step) for step in (STATIC, DYNAMIC)]
    for turn in (draft, CHAIN):
        ours, theirs = (sequence.forward(turn) for sequence in pair)
        torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.hidden, theirs.hidden, atol=1e-4, rtol=1e-4)
        path = {0: [], 3: [0, 1], 5: [0, 2]}[len(turn.tokens)]
        assert len({tuple(sequence.commit(path, 6)) for sequence in pair}) == 1
    assert buckets_used


@torch.inference_mode()
def test_fillers_are_seen_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows in a bucket of four and of sixty-four: the fillers make no difference."""
    sequence = start_sequence(near("pictogram"), monkeypatch)
    block, kept_rows, draft = sequence.kv_cache.block, sequence.kv_cache.kept, torch.tensor([4, 1])
    places = sequence.kv_cache.begin_pass(torch.arange(kept_rows, kept_rows + 3), torch.ones(3, 3, dtype=torch.bool).tril())
    outputs = []
    for rows in (4, 64):
        block[:, :, :, :, kept_rows:] = 7.0
        hidden, *_ = fixed_pass(
            sequence.trunk, block, pass_inputs(PassShape(2, draft, places), kept_rows, rows), torch.zeros(rows).long(), block.shape[4]
        )
        outputs.append(hidden[:, :3])
    torch.testing.assert_close(*outputs, atol=1e-5, rtol=1e-5)


def test_buckets_grow_by_steps_and_end_with_the_cache() -> None:
    assert bucket(1, 0, 4096) == Bucket(1, 512)
    assert bucket(5, 504, 4096) == Bucket(8, 512)
    assert bucket(5, 505, 4096) == Bucket(8, 1024)
    assert bucket(64, 2000, 2100) == Bucket(64, 2100)
    assert bucket(97, 2000, 2100) is None, "104 rows do not fit"
    assert bucket(257, 0, 4096) is None


@torch.inference_mode()
def test_a_pass_that_fits_into_no_bucket_has_its_own_shape(monkeypatch: pytest.MonkeyPatch, buckets_used: list[Bucket]) -> None:
    sequence = start_sequence(near("pictogram"), monkeypatch)
    assert sequence.forward(Draft(torch.arange(3))).logits.shape[1] == 4
    before = len(buckets_used)
    monkeypatch.setattr(workspace, "ROWS", (1, 4, 8))
    rows = sequence.forward(Draft(torch.arange(12)))
    assert rows.logits.shape[1] == 13 and len(buckets_used) == before


def test_passes_on_a_gpu_have_fixed_shapes_unless_the_reference_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNELS, raising=False)
    assert is_static(torch.device("cuda")) and not is_static(torch.device("cpu"))
    monkeypatch.setenv(KERNELS, REFERENCE)
    assert not is_static(torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["ar", "sjdpp", "eagle"])
def test_graphs_give_the_tokens_of_the_dynamic_step(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["pictogram"](lambda module: module.cuda())
    use_steps(monkeypatch, DYNAMIC)
    plain = [step.tokens for step in steps(model, method, {}, 12)]
    use_steps(monkeypatch, STATIC)
    assert [step.tokens for step in steps(model, method, {}, 12)] == plain

"""Whole steps on the simulated device: every method, adapter and drafter, renderers and the judge.

A run with its weights and cache there commits the processor's tokens. No operation mixes devices, so no tensor is on the wrong one.
READS lists what makes the host wait in a step after the first. The goal is one read, of the first refusal, the token after it and the
drafts. An entry may shrink and is removed when nothing uses it; a new one needs a reason. Methods without an entry may read freely.

As on a GPU, verdicts go through the interface of the kernels (engine/verify/choice.py), where their references take their place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from engine.core import Step
from engine.drafters.resampler import TrainedResampler
from engine.layout import Raster
from engine.methods import METHODS, PRESETS, find
from engine.recognition.picture_judge import Judge
from engine.run import generate
from tests.engine.device.far import FAR, Far, as_on_a_gpu, move_module
from tests.engine.device.models import MODELS, Model, methods_for, near
from tests.engine.drafters.test_resampler import random_resampler

SMALL = {"window": 5, "depth": 2, "width": 2, "nodes": 4, "horizon": 3, "drafted": 3}
COUNT = 4  # steps of a run

SETTLED = {"core/rows.py: DeviceIds.to_list_with": 1}  # the goal
GROWN = {"decoding/device_growth.py: DeviceGrowth.grow": 1}
VERIFIED = {"decoding/device_verify.py: verify_there": 1}
CHAIN = {"rules.py: leading": 1, "decoding/verdict.py: correct": 1, "core/rows.py: DeviceIds.to_list": 1}  # not in one kernel yet
HEADS = {
    "decoding/masked_draws.py: MaskedDraws.follow": 1
}  # draws under every mask of the grammar: the host follows the path that it allows
LENT = {  # a measured pass is verified on the host: its siblings one after another, with their deviations
    "decoding/neighbours.py: is_sure": 3, "decoding/neighbours.py: total_variation": 4, "rules.py: multi_round": 6,
    "decoding/trees.py: verify": 1, "decoding/trees.py: verify_tree": 1,
}  # fmt: skip
METERED = {"decoding/deviation.py: Meter.decide": 1}  # both rules' verdicts on a measured pass
TREE = GROWN | VERIFIED
READS: dict[str, dict[str, int]] = {
    "ar": SETTLED,
    "jacobi": SETTLED,
    "sjd": SETTLED,
    "sjdpp": SETTLED,
    "sjdpp_published": SETTLED,
    "gsd": SETTLED | METERED | {"methods/gsd.py: GroupRule.total_variation": 1},
    "lookup": SETTLED,
    "surface": SETTLED | HEADS,
    "lookahead": VERIFIED | {"methods/lookahead.py: decode": 1},
    "zipar": {"methods/zipar.py: decode_published": 1},
    "zipar_verified": CHAIN,
    "xspecmesh": SETTLED | HEADS,
    "xspecmesh_exact": SETTLED | HEADS,
    "eagle": TREE,
    "medusa": VERIFIED | {"decoding/growth.py: grow": 2},  # the host reads every level of a tree of heads
    "adt_tree": TREE,
    "lantern": TREE | LENT,
    "lantern_static": TREE | LENT,
    "adt_tree_published": TREE,
    "adt_tree_lantern": TREE | LENT,
    "cross_regression": SETTLED,
    "mulo": {"methods/mulo.py: _draw": 2, "methods/mulo.py: _describe": 1},
    "mulo_jacobi": SETTLED,
    "spatial": SETTLED,
    "spatial_published": {
        "methods/spatial.py: _final_step": 1,
        "methods/spatial.py: decode_published": 1,
        "core/rows.py: DeviceIds.to_list": 1,
    },
}
GRAMMAR = {"core/rows.py: DeviceIds.to_list": 1}  # the host runs it, so it reads drafts before the pass

ADAPTED = ("ar", "sjdpp")  # what adapters run in addition; pictogram and lowpoly run everything
ALSO = {"janus": ("eagle",), "emu3": ("zipar_verified",), "lumina": ("lookup",)}


@cache
def far(name: str) -> Model:
    """The model on the simulated device, which is entered."""
    return MODELS[name](move_module)


def cases() -> list[tuple[str, str]]:
    """A model and a method."""
    whole = [(name, method) for name in ("pictogram", "lowpoly") for method in methods_for(near(name))]
    return whole + [(name, method) for name in MODELS if (name, "ar") not in whole for method in (*ADAPTED, *ALSO.get(name, ()))]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """The device, entered; verdicts and noise go through the kernels' interface."""
    with as_on_a_gpu(monkeypatch) as far:
        yield far


def steps(model: Model, name: str, device: Far | None = None) -> tuple[list[Step], Counter[str]]:
    """The first steps of a run, and the most reads per step after the first, by place."""
    method, knobs = find(name)
    known = {knob.name for knob in method.knobs}
    chosen: dict[str, Any] = dict(knobs) | {knob: value for knob, value in SMALL.items() if knob in known}
    run = generate(model.backbone, method, model.prompt, chosen, model.drafter_of(method))
    taken: list[Step] = []
    most: Counter[str] = Counter()
    while len(taken) < COUNT:
        with (device or Far()).count_traffic() as traffic:
            taken += islice(run, 1)
        if len(taken) > 1:
            most |= traffic.reads
    run.close()
    return taken, most


def outcomes(taken: list[Step]) -> list[tuple[list[int], list[int]]]:
    """Tokens and positions of each step."""
    return [(step.tokens, step.positions) for step in taken]


@pytest.mark.parametrize(("name", "method"), cases())
def test_a_run_is_that_of_the_processor_and_waits_where_it_may(device: Far, name: str, method: str) -> None:
    ours, most = steps(far(name), method, device)
    assert outcomes(ours) == outcomes(steps(near(name), method)[0])
    allowed = Counter(READS.get(method, most)) + Counter(GRAMMAR if near(name).prompt.points is not None else {})
    assert most <= allowed, f"new reads: {most - allowed}"
    if name == "pictogram" and SETTLED.items() <= allowed.items():  # what the others ask for depends on luck
        assert most.keys() == allowed.keys(), f"no longer read, so strike it: {allowed.keys() - most.keys()}"


def test_every_entry_is_of_a_method() -> None:
    assert READS.keys() <= METHODS.keys() | PRESETS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_rendered_there_is_the_same(device: Far, name: str) -> None:
    """An unfinished picture, with every other token missing, and the finished one."""
    one, other = far(name), near(name)
    count = one.backbone.start(one.prompt).limit if one.prompt.points is None else 0
    tokens = [(5 * i) % one.backbone.vocabulary for i in range(count)]
    for places, final in ((range(0, count, 2), False), (range(count), True)):
        some = [tokens[i] for i in places]
        pair = [model.backbone.render(some, list(places), final, model.prompt.size) for model in (one, other)]
        ours, theirs = ((x.vertices, x.faces) if count == 0 else (x, x) for x in pair)
        for mine, plain in zip(ours, theirs, strict=True):
            assert mine.shape == plain.shape and np.allclose(mine.astype(float), plain.astype(float), atol=1)


def test_trained_resamplers_work_there(device: Far) -> None:
    plain = random_resampler()
    there = TrainedResampler(far("pictogram").backbone.tokenizer, {2: move_module(random_resampler().networks[2])})
    tokens = torch.arange(64) * 7 % 32
    with torch.inference_mode():
        for count in (8, 2):  # rows
            probs = there.up(tokens[: 8 * count].to(FAR), Raster(8, 8), Raster(16, 16), 0, count)
            torch.testing.assert_close(probs.cpu(), plain.up(tokens[: 8 * count], Raster(8, 8), Raster(16, 16), 0, count))
        wide = tokens.repeat(4)
        assert (
            there.down(wide.to(FAR), Raster(16, 16), Raster(8, 8), 0, 8).tolist()
            == plain.down(wide, Raster(16, 16), Raster(8, 8), 0, 8).tolist()
        )


def test_the_judge_reads_there(device: Far) -> None:
    torch.manual_seed(3)
    plain = Judge(["cat", "dog"], width=4).requires_grad_(False)
    torch.nn.init.ones_(plain.centres.bias)
    plain.objects.weight.mul_(20)  # sure of what it sees
    picture = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    expected = plain.read([picture])
    assert expected[0].objects, "nothing was found, so nothing was compared"
    with device.count_traffic() as traffic:
        readings = move_module(plain).read([picture])
    assert [(f.name, f.row, f.column) for f in readings[0].objects] == [(f.name, f.row, f.column) for f in expected[0].objects]
    assert traffic.reads.total() == 4, "one for each part of the answer"

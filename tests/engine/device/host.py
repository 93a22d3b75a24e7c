"""The host's own part of a step: operations that it launches outside the graphs, and its time where the graphs' results are there already.

`python -m tests.engine.device.host` prints both for models with random weights. Operations are counted on the simulated device: a kernel
is one, a replay is one, a view is none. The time is the processor's: a run is repeated with the results that its graphs gave, so a replay
only copies them, and the processor computes what is outside the graphs in place of launching it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from statistics import median
from time import thread_time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from engine import noise
from engine.decoding import trees, verdict
from engine.decoding.deviation import Meter
from engine.methods import cross_regression, find, xspecmesh
from engine.networks import sequence, workspace
from engine.run import Run, generate
from engine.verify import choice
from research.bench.nodes import WITHOUT_KERNEL
from tests.engine.device.far import Far, FarTensor, as_on_a_gpu, move_module
from tests.engine.device.models import MODELS, Model

WARM, STEPS = 6, 10  # steps of a run: before those that count, and these
CASES: list[tuple[str, str, dict[str, Any], int]] = [  # the last number: the most operations of a step; a level of a tree has two
    ("janus", "sjdpp", {"window": 16}, 10), ("pictogram", "cross_regression", {}, 29), ("lowpoly", "xspecmesh_exact", {}, 6),
    ("janus", "eagle", {}, 40), ("pictogram", "eagle", {}, 40), ("pictogram", "lantern", {}, 40), ("lowpoly", "eagle", {}, 34),
    ("pictogram", "adt_tree_published", {}, 43), ("pictogram", "adt_tree", {}, 47),
]  # fmt: skip


def start(model: Model, method: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run in fixed shapes, each captured at its first use. No pass is measured, because the host verifies those."""
    monkeypatch.setattr(sequence, "is_static", lambda device: True)
    monkeypatch.setattr(workspace, "USES", 1)
    monkeypatch.setattr(Meter, "begin", lambda *arguments, **options: False)
    entry, preset = find(method)
    return generate(model.backbone, entry, model.prompt, preset | knobs, model.drafter_of(entry))


def count_operations(name: str, method: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, steps: int) -> list[Counter[str]]:
    """The operations of each step of a run that the host launches, by name."""
    counts: Counter[str] = Counter()
    inside = [0]
    compute, bind = Far.compute, workspace.Replays._bind

    def as_one(function: Callable[..., Any], label: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counts[label] += not inside[0]
            inside[0] += 1
            try:
                return function(*arguments)
            finally:
                inside[0] -= 1

        return call

    def count(device: Far, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        known, label = storages((args, kwargs)), getattr(func, "overloadpacket", func).__name__
        out = compute(device, func, args, kwargs)
        is_written = storages(out) - known or (known and getattr(getattr(func, "_schema", None), "is_mutable", False))
        counts[label] += bool(is_written and not inside[0] and label not in WITHOUT_KERNEL)
        return out

    def bound(replays: workspace.Replays, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> Any:
        buffers, call = bind(replays, function, inputs)
        return buffers, as_one(call, "replay")

    with monkeypatch.context() as patched, as_on_a_gpu(patched):
        patched.setattr(Far, "compute", count)
        patched.setattr(workspace.Replays, "_bind", bound)
        for kernel in ("gumbel", "uniform"):
            patched.setattr(noise, kernel, as_one(getattr(noise, kernel), kernel))
        run, counted = start(MODELS[name](move_module), method, knobs, patched), []
        for _ in islice(run, steps):
            counted.append(Counter(counts))
            counts.clear()
        run.close()
    return counted


def storages(tree: Any) -> set[int]:
    """The memory on the device of the tensors in arguments or results."""
    return {x.near.untyped_storage()._cdata for x in tree_leaves(tree) if isinstance(x, FarTensor)}


def host_seconds(name: str, method: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each step of a run whose replays give the results of an earlier, equal run."""
    results: list[tuple[Tensor, ...]] = []
    model = MODELS[name](lambda module: module)

    def record(call: Callable[[], tuple[Tensor, ...]]) -> Callable[[], tuple[Tensor, ...]]:
        return lambda: results.append(call()) or results[-1]

    def repeat(call: Callable[[], tuple[Tensor, ...]]) -> Callable[[], tuple[Tensor, ...]]:
        return lambda: tuple(each.clone() for each in next(canned))

    seconds: list[float] = []
    with monkeypatch.context() as patched:
        for module in (verdict, trees, cross_regression, xspecmesh):
            patched.setattr(module, "is_fused", lambda rows: rows.settings is not None)
        for module in (sequence, choice):
            patched.setattr(module, "is_host", lambda device, dtype: False)
        for capture in (record, repeat):
            canned = iter(results)
            patched.setattr(workspace, "capture_on", lambda device, capture=capture: capture)
            model.backbone.workspaces.release()
            run = start(model, method, knobs, patched)
            run.clock = thread_time  # not the time in which other programs run
            list(islice(run, WARM))
            seconds = [step.seconds for step in islice(run, STEPS)]
            run.close()
    return seconds


def main() -> None:
    """Prints a table."""
    torch.set_num_threads(1)
    print("| model | method | operations | most | ms |\n|---|---|---|---|---|")
    for name, method, knobs, _ in CASES:
        with pytest.MonkeyPatch.context() as patch:
            counts = [each.total() for each in count_operations(name, method, knobs, patch, WARM + STEPS)[WARM:]]
        with pytest.MonkeyPatch.context() as patch:
            times = host_seconds(name, method, knobs, patch)
        print(f"| {name} | `{method}` | {median(counts):g} | {max(counts)} | {median(times) * 1000:.2f} |")


if __name__ == "__main__":
    main()

"""Whole runs whose passes are replayed from a tape (research/exactness/tape.py): tokens of the dynamic step, for the run that captures and
for the next one, which has another prompt and another seed and captures nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from engine import sampling
from engine.core import Prompt, Sampling
from engine.dispatch.choice import REFERENCE
from engine.dispatch.choice import VARIABLE as KERNELS
from engine.methods import find
from engine.networks import static_step, workspace
from engine.noise import kernel as noise
from engine.run import generate
from engine.verify import reference
from research.exactness.tape import CaptureRefused, Tape
from tests.engine.device.far import as_on_a_gpu
from tests.engine.device.models import MODELS, Model, methods_for, near_with_drafters, stay
from tests.engine.networks.test_static_step import DYNAMIC, SMALL, STATIC, TREE, start_sequence, use_steps

NAMES = ("janus", "emu3", "llamagen", "bpt")
FIRST = {("janus", "sjdpp"): 1, ("emu3", "sjdpp"): 1, ("llamagen", "sjdpp"): 1, ("bpt", "xspecmesh_exact"): 1}  # captures
WAVEFRONTS = ("zipar",)  # its passes have no fixed shapes
Outcome = list[list[Any]]  # of each run, each step


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[Tape]:
    """All captures. What a processor computes without PyTorch's operations is off."""
    made: list[Tape] = []

    def capture(function: Callable[[], tuple[Tensor, ...]]) -> Tape:
        made.append(Tape(function))
        return made[-1]

    monkeypatch.setenv(KERNELS, REFERENCE)
    monkeypatch.setattr(workspace, "capture_on", lambda device: capture)
    for module in (reference, noise):
        monkeypatch.setattr(module, "gumbel_reference", noise.gumbel_elsewhere)
    monkeypatch.setattr(sampling, "FEW", 10**6)
    monkeypatch.setattr(sampling, "_draw_from_one", lambda p, u: sampling.draw(p.expand(1 + len(u), -1), torch.cat([u, u[:1]]))[: len(u)])
    return made


def prompts(model: Model) -> list[Prompt]:
    """Two prompts of a model, which differ in everything that may differ: seed, length, class, points."""
    first = model.prompt
    if first.points is not None:
        return [first, replace(first, points=first.points.flip(0) * 0.5, seed=8)]
    return [first, Prompt("5" if first.text == "3" else "two blue cups", seed=8, size=first.size)]


def runs(
    model: Model, method: str, step: str, count: int, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape],
    asked: list[Prompt] | None = None,
) -> tuple[Outcome, list[int]]:  # fmt: skip
    """Runs each prompt for some steps, by default those of `prompts`. Returns their outcomes, and the captures of each."""
    entry, preset = find(method)
    knobs = {k.name: SMALL[k.name] for k in entry.knobs if k.name in SMALL} | preset
    use_steps(monkeypatch, step)
    model.backbone.workspaces.release()
    outcomes, captures = [], []
    for prompt in prompts(model) if asked is None else asked:
        before = len(tapes)
        with as_on_a_gpu(monkeypatch):  # only for its choice of the kernels' interface
            run = generate(model.backbone, entry, prompt, knobs, model.drafter_of(entry))
            outcomes.append([(each.tokens, each.positions, each.drafted) for each in islice(run, count)])
            run.close()
        captures.append(len(tapes) - before)
    model.backbone.workspaces.release()
    return outcomes, captures


@pytest.mark.parametrize(("name", "method"), FIRST)
def test_the_next_run_replays_the_graphs_of_the_first(name: str, method: str, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape]) -> None:
    """Whole pictures, and the beginning of a mesh."""
    model = near_with_drafters(name)
    count = 16 if name in NAMES[:3] else 6
    plain, _ = runs(model, method, DYNAMIC, count, monkeypatch, tapes)
    found, captures = runs(model, method, STATIC, count, monkeypatch, tapes)
    assert found == plain and plain[0] != plain[1]
    assert captures == [FIRST[name, method], 0]


@pytest.mark.parametrize(("name", "method"), [(name, method) for name in NAMES for method in methods_for(near_with_drafters(name))])
def test_every_method_gives_the_tokens_of_the_dynamic_step(
    name: str, method: str, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape]
) -> None:
    monkeypatch.setattr(workspace, "USES", 1)
    model = near_with_drafters(name)
    plain, _ = runs(model, method, DYNAMIC, 7, monkeypatch, tapes)
    assert runs(model, method, STATIC, 7, monkeypatch, tapes)[0] == plain
    assert bool(tapes) == (method not in WAVEFRONTS)


SAMPLINGS = [Sampling(0.7, top_k=4, guidance=2.0), Sampling(1.6, top_k=7, guidance=3.0)]


@pytest.mark.parametrize("method", ["ar", "sjdpp", "eagle"])
@pytest.mark.parametrize("frozen", [None, "temperature", "top_k", "guidance"])
def test_another_sampling_replays_the_same_graphs(
    method: str, frozen: str | None, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape]
) -> None:
    """The second run needs no other graph. frozen : in a mutant, the number of the sampling that has the value of the first run"""
    monkeypatch.setattr(workspace, "USES", 1)
    model = near_with_drafters("janus")
    asked = [replace(model.prompt, sampling=each) for each in SAMPLINGS]
    plain, _ = runs(model, method, DYNAMIC, 9, monkeypatch, tapes, asked)
    if frozen is not None:
        old = (replace(each, **{frozen: getattr(SAMPLINGS[0], frozen)}).numbers for each in SAMPLINGS)
        numbers = {each: own for each, own in zip(SAMPLINGS, old, strict=True)}
        monkeypatch.setattr(Sampling, "numbers", property(lambda each: numbers[each]))
    kinds, begun = set[Any](), list[int]()
    call, begin = workspace.Replays.call, workspace.Replays.begin
    monkeypatch.setattr(workspace.Replays, "call", lambda self, key, *more: kinds.add(key) or call(self, key, *more))
    monkeypatch.setattr(workspace.Replays, "begin", lambda self: begun.append(len(kinds)) or begin(self))
    found, captures = runs(model, method, STATIC, 9, monkeypatch, tapes, asked)
    assert begun == [0, len(kinds)] and captures[1] <= (method == "eagle"), "a tree may be the first with so many newest tokens"
    assert found[0] == plain[0] and (found[1] == plain[1]) == (frozen is None)


# --- mutants ----------------------------------------------------------------------------------------------------------


def freeze(of: str, first: int) -> Callable[[pytest.MonkeyPatch], None]:
    """A mutant in which one of the host's numbers for each row has the value of the capture. of : the function that reads it"""

    def change(monkeypatch: pytest.MonkeyPatch) -> None:
        host: list[Tensor] = []
        at, source = (2, "pass_inputs") if of == "fixed_pass" else (3, "columns")
        right, tell = getattr(static_step, of), getattr(static_step, source)

        def function(*arguments: Any) -> Any:
            inputs = arguments[at].clone()
            inputs[:, first] = host[-1][:, first]
            return right(*arguments[:at], inputs, *arguments[at + 1 :])

        monkeypatch.setattr(static_step, source, lambda *arguments: host.append(tell(*arguments)) or host[-1])
        monkeypatch.setattr(static_step, of, function)

    return change


def move_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant in which a run uses another block than the graphs."""
    right = workspace.WorkspacePool.borrow

    def borrow(self: Any, kv_cache: Any) -> Any:
        lent = right(self, kv_cache)
        kv_cache.use(torch.zeros_like(lent.block))
        return lent

    monkeypatch.setattr(workspace.WorkspacePool, "borrow", borrow)


def leave_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant in which the tensors of a run stay where they are."""
    monkeypatch.setattr(workspace.Workspace, "hold", lambda self, name, tensor: tensor)


MUTANTS: dict[str, tuple[str, str, Callable[[pytest.MonkeyPatch], None]]] = {
    "kept rows": ("janus", "sjdpp", freeze("fixed_pass", 0)),
    "ids": ("janus", "ar", freeze("fixed_pass", 2)),
    "position in the model": ("janus", "sjdpp", freeze("fixed_pass", 6)),
    "uniform numbers": ("janus", "sjdpp", freeze("fixed_verdict", 2)),
    "position of the noise": ("janus", "ar", freeze("fixed_verdict", 3)),
    "seed": ("janus", "ar", freeze("fixed_verdict", 7)),
    "block": ("janus", "ar", move_block),
    "padding": ("emu3", "ar", leave_tensors),
    "condition": ("bpt", "ar", leave_tensors),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_a_capture_freezes_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape]) -> None:
    monkeypatch.setattr(workspace, "USES", 1)
    name, method, change = MUTANTS[mutant]
    plain, _ = runs(near_with_drafters(name), method, DYNAMIC, 7, monkeypatch, tapes)
    change(monkeypatch)
    found = None
    with suppress(FloatingPointError):  # the verdict met a row of NaN
        found, _ = runs(near_with_drafters(name), method, STATIC, 7, monkeypatch, tapes)
    assert found != plain


@torch.inference_mode()
@pytest.mark.parametrize("frozen", [False, True])
def test_a_chain_replays_the_graph_of_a_tree_with_its_own_mask(frozen: bool, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape]) -> None:
    monkeypatch.setattr(workspace, "USES", 1)
    if frozen:
        freeze("fixed_pass", static_step.NAMED)(monkeypatch)
    pair = [start_sequence(near_with_drafters("janus"), monkeypatch, step) for step in (STATIC, DYNAMIC)]
    for draft in (TREE, replace(TREE, parents=None)):
        ours, theirs = (sequence.forward(draft).logits for sequence in pair)
        assert torch.allclose(ours, theirs, atol=1e-4) == (not frozen or draft is TREE)
        for sequence in pair:
            sequence.commit([], 6)
    assert len(tapes) == 2, "one row, and six"


# --- the tape ---------------------------------------------------------------------------------------------------------

REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda x: x[0].item(),
    "list": lambda x: x.tolist(),
    "truth": lambda x: bool(x[0] > 0),
    "int": lambda x: int(x[0]),
    "numpy": lambda x: x.numpy(),
    "nonzero": lambda x: x.nonzero(),
    "a mask as an index": lambda x: x[x > 0],
    "values of the host": lambda x: x + torch.tensor([1.0, 2.0]),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_a_tape_refuses_what_a_capture_refuses(function: Callable[[Tensor], Any]) -> None:
    x = torch.ones(2)
    with pytest.raises(CaptureRefused):
        Tape(lambda: (torch.as_tensor(function(x)),))


def test_a_tape_reads_tensors_again_but_not_numbers_and_keeps_no_intermediate() -> None:
    x, number, kept = torch.ones(2), [3.0], []

    def function() -> tuple[Tensor, ...]:
        kept[:] = [x * 2]
        return (kept[0] + number[0],)

    tape = Tape(function)
    number[0] = 100.0
    x.fill_(5.0)
    (first,) = tape()
    x.fill_(6.0)
    (second,) = tape()
    assert first.tolist() == [13.0, 13.0] and second.tolist() == [15.0, 15.0]
    assert kept[0].isnan().all(), "other graphs use this memory"


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_warm_captures_nothing(name: str, monkeypatch: pytest.MonkeyPatch, tapes: list[Tape]) -> None:
    model = MODELS[name](stay)
    use_steps(monkeypatch, STATIC)
    with as_on_a_gpu(monkeypatch):
        model.backbone.warm_up(6)
        warmed = len(tapes)
        for method in ("ar", "sjdpp"):
            run = generate(model.backbone, find(method)[0], model.prompt, {"window": 6} if method == "sjdpp" else {})
            list(islice(run, 8))
            run.close()
    assert warmed == len(tapes) > 0

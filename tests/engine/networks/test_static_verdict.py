"""Verdicts and heads inside a pass in fixed shapes: the same tokens, no host inside, one graph."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine import sampling
from engine.core import NO_DRAFT, Draft
from engine.decoding import verdict
from engine.decoding.deviation import Meter
from engine.dispatch.choice import REFERENCE
from engine.dispatch.choice import VARIABLE as KERNELS
from engine.drafters.mesh_heads import MeshHeads
from engine.methods import find
from engine.networks import static_step
from engine.networks.sequence import TransformerSequence
from engine.networks.workspace import Bucket, Replays
from engine.noise import Noise
from engine.noise import kernel as noise
from engine.run import generate
from engine.verify import reference
from engine.verify.fixed import VerdictKind, fixed_verdict
from engine.verify.request import VerifyRequest
from tests.engine.backbones import tiny
from tests.engine.device.far import FAR, Far, as_on_a_gpu, move_module
from tests.engine.device.host import CASES as CASES_OF_HOST
from tests.engine.device.host import count_operations
from tests.engine.device.models import MODELS, Model, near
from tests.engine.networks.test_static_step import DYNAMIC, SMALL, STATIC, start_sequence, steps, use_steps

CHAIN = Draft(torch.tensor([4, 1, 7]))


@pytest.fixture
def verdict_kinds(monkeypatch: pytest.MonkeyPatch) -> list[VerdictKind]:
    """The kinds of all verdicts inside a pass."""
    kinds: list[VerdictKind] = []

    def record_kind(kind: VerdictKind, *arguments: Any) -> Any:
        kinds.append(kind)
        return fixed_verdict(kind, *arguments)

    monkeypatch.setattr(static_step, "fixed_verdict", record_kind)
    return kinds


# --- the same tokens --------------------------------------------------------------------------------------------------

SEED = {"verify": "match seed"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("pictogram", "ar", {}), ("pictogram", "sjd", {}), ("pictogram", "sjdpp", {}), ("pictogram", "sjdpp", SEED),
    ("pictogram", "sjdpp", {"refresh": "reuse mixture"}), ("pictogram", "sjdpp", {"refresh": "coupled maximal", "init": "random"}),
    ("pictogram", "sjdpp", {"relax": "additive"}), ("pictogram", "eagle", {}), ("pictogram", "eagle", SEED),
    ("lowpoly", "sjdpp", {}), ("lowpoly", "eagle", SEED), ("lowpoly", "xspecmesh", {}), ("lowpoly", "xspecmesh", {"judge": "warped"}),
    ("lowpoly", "xspecmesh", {"accept": "top k", "accept_top": 3}), ("lowpoly", "xspecmesh", {"accept": "typical"}),
    ("lowpoly", "xspecmesh", {"heads": "multilayer", "drafts": "tree"}), ("lowpoly", "xspecmesh_exact", {}),
    ("lowpoly", "xspecmesh_exact", SEED), ("emu3", "sjdpp", {}), ("lumina", "sjdpp", {}), ("bpt", "sjdpp", {}), ("glm_image", "sjdpp", {}),
    ("glm_image", "sjdpp", {"init": "up-sampled"} | SEED),
    ("llamagen", "sjdpp", {}), ("anole", "sjdpp", {}), ("janus", "eagle", SEED), ("pictogram", "lookup", {}), ("emu35", "jacobi", {}),
    ("lumina", "zipar_verified", {}), ("pictogram", "cross_regression", {}), ("lowpoly", "cross_regression", {}),
]  # fmt: skip
SOMETIMES = ("zipar_verified", "cross_regression", "lookup", "jacobi")  # not every pass of these methods has a verdict inside


@pytest.mark.parametrize(("name", "method", "knobs"), CASES)
def test_the_steps_are_those_of_the_dynamic_step(
    name: str, method: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch, verdict_kinds: list[VerdictKind],
    buckets_used: list[Bucket],
) -> None:  # fmt: skip
    """Tokens, drafts and panel data are equal; every pass but the first, at the end of the prompt, has its verdict inside."""
    use_steps(monkeypatch, DYNAMIC)
    plain = steps(near(name), method, knobs, 10)
    assert not buckets_used
    use_steps(monkeypatch, STATIC)
    with as_on_a_gpu(monkeypatch):  # only for its choice of the kernels' interface: the model is on the processor
        fixed_steps = steps(near(name), method, knobs, 10)
    assert [(s.tokens, s.drafted) for s in fixed_steps] == [(s.tokens, s.drafted) for s in plain]
    for ours, theirs in zip(fixed_steps, plain, strict=True):
        for field in ("accept_probability", "entropy"):
            if (value := getattr(theirs.trace, field)) is not None:
                pair = (torch.as_tensor(each).float() for each in (getattr(ours.trace, field), value))
                torch.testing.assert_close(*pair, atol=1e-4, rtol=1e-3)
    assert len(buckets_used) >= 5 and len(set(buckets_used)) <= 3
    if method not in SOMETIMES:
        assert len(verdict_kinds) == len(fixed_steps) - 1


@pytest.mark.parametrize("name", ["pictogram", "glm_image"])
def test_hidden_states_are_copied_before_the_next_pass_overwrites_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, states = near(name), []
    for kind in (DYNAMIC, STATIC):
        use_steps(monkeypatch, kind)
        with as_on_a_gpu(monkeypatch):
            states.append(generate(model.backbone, find("sjdpp")[0], model.prompt, SEED, hidden=True).hidden_states)
    torch.testing.assert_close(*states, atol=1e-4, rtol=1e-3)


def test_heads_are_computed_in_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, for one row; outside a pass only after the first one."""
    calls: list[tuple[tuple[int, ...], int | None]] = []
    right = MeshHeads.features

    def features(self: MeshHeads, hidden: Tensor, looked: Any, count: int | None = None) -> Tensor:
        calls.append((tuple(hidden.shape[:2]), count))
        return right(self, hidden, looked, count)

    monkeypatch.setattr(MeshHeads, "features", features)
    use_steps(monkeypatch, STATIC)
    with as_on_a_gpu(monkeypatch):
        steps(near("lowpoly"), "xspecmesh", {}, 5)
    assert calls == [((1, 1), None)] * 4  # the first pass's by numpy


def test_a_knob_that_moves_needs_no_new_graph(monkeypatch: pytest.MonkeyPatch, verdict_kinds: list[VerdictKind]) -> None:
    """The rule's number is an input; another rule is another graph."""
    use_steps(monkeypatch, STATIC)
    model = near("lowpoly")
    method, _ = find("xspecmesh")
    with as_on_a_gpu(monkeypatch):
        run = generate(model.backbone, method, model.prompt, {"depth": 3}, model.drafters["mesh_heads"])
        for knobs in ({}, {}, {"accept_probability": 0.05}, {"accept_probability": 0.95}, {"accept": "top k"}):
            run.set(**knobs)
            next(run)
        run.close()
    assert len(verdict_kinds) == 4 and len(set(verdict_kinds)) == 2


# --- one send, one read -----------------------------------------------------------------------------------------------

GRAMMAR = {"core/rows.py: DeviceIds.to_list": 1}  # drafts are read before the pass, because the host runs the grammar
READS = {"core/rows.py: DeviceIds.to_list_with": 1}


@pytest.mark.parametrize(
    ("name", "method", "reads"),
    [
        ("pictogram", "ar", {}), ("pictogram", "sjd", {}), ("pictogram", "sjdpp", {}), ("lowpoly", "ar", {}), ("lowpoly", "sjdpp", GRAMMAR),
        ("lowpoly", "xspecmesh", {}), ("lowpoly", "xspecmesh_exact", {}), ("emu3", "sjdpp", {}), ("janus", "sjdpp", {}),
        ("pictogram", "cross_regression", {}), ("lowpoly", "cross_regression", {}),
    ],
)  # fmt: skip
def test_all_that_is_sent_is_one_small_tensor(name: str, method: str, reads: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    use_steps(monkeypatch, STATIC)
    sent: list[Tensor] = []
    right = static_step.pass_inputs
    monkeypatch.setattr(static_step, "pass_inputs", lambda *arguments: sent.append(right(*arguments)) or sent[-1])
    with as_on_a_gpu(monkeypatch) as device:
        model = MODELS[name](move_module)
        entry, knobs = find(method)
        chosen = {k.name: SMALL[k.name] for k in entry.knobs if k.name in SMALL}
        run = generate(model.backbone, entry, model.prompt, chosen | knobs, model.drafter_of(entry))
        list(islice(run, 2))
        sent.clear()
        with device.count_traffic() as traffic:
            next(run)
        run.close()
    assert traffic.sends == {"networks/workspace.py: Replays.call": 1}
    assert traffic.reads == READS | reads
    assert len(sent) == 1 and sent[0].nbytes <= 8192


TREE_READS = {"decoding/device_growth.py: DeviceGrowth.grow": 1, "decoding/device_verify.py: verify_there": 1}
TREE_SENDS = {  # the newest tokens, the pass, the tree for its verification, and rows of the cache that move
    "networks/workspace.py: Replays.call": 3, "decoding/device_verify.py: directly": 1, "cache/__init__.py: KVCache.keep": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("janus", "eagle"), ("pictogram", "eagle"), ("pictogram", "lantern"), ("pictogram", "adt_tree_published"),
        ("pictogram", "adt_tree"), ("lowpoly", "eagle"),
    ],
)  # fmt: skip
def test_a_tree_needs_two_reads(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree and its verdict. No pass is measured (see `Meter`)."""
    use_steps(monkeypatch, STATIC)
    monkeypatch.setattr(Meter, "begin", lambda *arguments, **options: False)
    with as_on_a_gpu(monkeypatch) as device:
        model = MODELS[name](move_module)
        entry, knobs = find(method)
        run = generate(model.backbone, entry, model.prompt, {"nodes": 12} | knobs, model.drafter_of(entry))
        list(islice(run, 2))
        most = Counter[str](), Counter[str]()
        for _ in range(5):
            with device.count_traffic() as traffic:
                next(run)
            most = most[0] | traffic.reads, most[1] | traffic.sends
        run.close()
    assert most[0] == TREE_READS and most[1] <= Counter(TREE_SENDS)


@pytest.mark.parametrize(("name", "method", "knobs", "most"), CASES_OF_HOST)
def test_the_host_launches_few_operations(
    name: str, method: str, knobs: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = count_operations(name, method, knobs, monkeypatch, 6)[3:]
    assert len(counts) == 3 and max(each.total() for each in counts) <= most, counts


# --- what a capture needs ---------------------------------------------------------------------------------------------

WHOLE = [
    ("pictogram", "sjdpp"), ("lowpoly", "xspecmesh_exact"), ("lowpoly", "xspecmesh"), ("emu3", "sjdpp"), ("janus", "sjdpp"),
    ("glm_image", "sjdpp"),
]  # fmt: skip
EVERY = WHOLE + [(name, "sjdpp") for name in MODELS if name not in dict(WHOLE)]
ADAPTED = [("pictogram", "cross_regression"), ("lowpoly", "cross_regression")]  # without a verdict inside


class Made(TorchDispatchMode):
    """Records the new storages that operations create in this context."""

    def __init__(self) -> None:
        super().__init__()
        self.before: set[weakref.ref[torch.UntypedStorage]] = set()
        self.made: set[weakref.ref[torch.UntypedStorage]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Notes what an operation gets and returns."""
        self.before |= storages((args, kwargs)) - self.made
        out = func(*args, **kwargs or {})
        self.made |= storages(out) - self.before
        return out


def storages(tree: Any) -> set[weakref.ref[torch.UntypedStorage]]:
    """Those of all tensors but weights that a processor has packed."""
    return {weakref.ref(x.untyped_storage()) for x in tree_leaves(tree) if isinstance(x, Tensor) and x.layout is torch.strided}


def whole_pass(name: str, method: str, monkeypatch: pytest.MonkeyPatch, model: Model) -> tuple[Callable[..., Any], tuple[Tensor, ...]]:
    """The function of a method's third pass, and its arguments."""
    use_steps(monkeypatch, STATIC)
    calls: list[tuple[Callable[..., Any], tuple[Tensor, ...]]] = []
    right = Replays.call

    def call(self: Any, key: Any, shape: Bucket, function: Callable[..., Any], *arguments: Tensor) -> Any:
        calls.append((function, arguments))
        return right(self, key, shape, function, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Replays, "call", call)
        steps(model, method, {}, 3)
    return calls[-1]


@pytest.mark.parametrize(("name", "method"), EVERY + ADAPTED)
def test_it_reads_nothing_not_even_in_the_references(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulated device; a GPU without Triton captures the references."""
    with as_on_a_gpu(monkeypatch) as device:
        function, arguments = whole_pass(name, method, monkeypatch, MODELS[name](move_module))
        there = [each.to(FAR) for each in arguments]
        noted: Counter[str] = Counter()
        monkeypatch.setattr(Far, "_note", lambda self, transfers, count=1: noted.update(some=count))
        with torch.inference_mode(), device.count_traffic():
            outputs = function(*there)
        assert not noted and len(outputs) >= (2 if (name, method) in ADAPTED else 4) and all(each.device == FAR for each in outputs)


@pytest.mark.parametrize(("name", "method"), WHOLE + ADAPTED)
def test_nothing_is_left_behind_but_the_results(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KERNELS, REFERENCE)
    with as_on_a_gpu(monkeypatch):
        function, arguments = whole_pass(name, method, monkeypatch, near(name))
        with torch.inference_mode(), Made() as watched:
            outputs = function(*arguments)
    gc.collect()
    alive = {storage for each in watched.made if (storage := each()) is not None}
    assert len(watched.made) > 80
    assert alive <= {each.untyped_storage() for each in outputs}, "more than the results are alive"


@pytest.mark.parametrize(("name", "method"), WHOLE)
def test_it_is_one_graph(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on another device than the processor: noise by PyTorch's own operations, and no shortcut for top-p."""
    monkeypatch.setenv(KERNELS, REFERENCE)
    monkeypatch.setattr(reference, "gumbel_reference", noise.gumbel_elsewhere)
    monkeypatch.setattr(sampling, "FEW", 10**6)
    with as_on_a_gpu(monkeypatch):
        function, arguments = whole_pass(name, method, monkeypatch, MODELS[name](lambda module: module))
    with torch.inference_mode():
        plain = function(*arguments)
        torch.compiler.reset()
        outputs = torch.compile(function, fullgraph=True, backend="eager")(*arguments)
    assert len(outputs) == len(plain) >= 4
    for ours, theirs in zip(outputs, plain, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


# --- the pass that waits ----------------------------------------------------------------------------------------------


def question(sequence: TransformerSequence, count: int) -> VerifyRequest:
    """A request about rows of a pass."""
    noise = Noise(1, sequence.vocabulary)
    uniforms = torch.full((3, count), 0.5, dtype=torch.float64)
    return VerifyRequest(NO_DRAFT.tokens, None, uniforms, noise.base, torch.arange(count), True, False)


@torch.inference_mode()
def test_a_pass_that_has_begun_takes_no_question(monkeypatch: pytest.MonkeyPatch, verdict_kinds: list[VerdictKind]) -> None:
    """Its verdict is then computed separately."""
    sequence = start_sequence(near("pictogram"), monkeypatch)
    rows = sequence.forward(CHAIN)
    assert rows.count == 4 and rows.place == (sequence.device, torch.float32) and not verdict_kinds
    logits = rows.logits
    assert rows.launch.verdict(question(sequence, 4)) is None and not verdict_kinds
    monkeypatch.setattr(verdict, "is_fused", lambda rows: True)
    late = verdict.judge(rows, CHAIN.tokens, None, Noise(1, sequence.vocabulary), 2, 0, True)
    again = sequence.forward(CHAIN)
    early = verdict.judge(again, CHAIN.tokens, None, Noise(1, sequence.vocabulary), 2, 0, True)
    assert len(verdict_kinds) == 1 and (late.a, late.token) == (early.a, early.token)
    torch.testing.assert_close(again.logits, logits)


@torch.inference_mode()
def test_a_pass_that_nobody_reads_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins before the commit, and before the next pass."""
    pair = [start_sequence(near("pictogram"), monkeypatch, step) for step in (STATIC, DYNAMIC)]
    for sequence in pair:
        sequence.forward(CHAIN)
        sequence.forward(CHAIN)
        sequence.commit([0, 1], 6)
    torch.testing.assert_close(*(sequence.forward(NO_DRAFT).logits for sequence in pair), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_rows_that_are_kept_do_not_hold_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = start_sequence(near("pictogram"), monkeypatch)
    rows = sequence.forward(CHAIN)
    sequence.commit([0], 5)
    block = weakref.ref(sequence.kv_cache.block)
    sequence.close()
    near("pictogram").backbone.workspaces.release()
    gc.collect()
    assert block() is None and rows.logits.shape[1] == 4


@torch.inference_mode()
def test_a_grammar_without_a_table_has_its_verdict_outside(monkeypatch: pytest.MonkeyPatch, verdict_kinds: list[VerdictKind]) -> None:
    sequence = start_sequence(near("lowpoly"), monkeypatch)
    assert sequence.masks is not None and sequence.forward(NO_DRAFT).launch.verdict(question(sequence, 1)) is not None
    sequence = start_sequence(near("pictogram"), monkeypatch)
    sequence.grammar, sequence._state = tiny.Unlike(sequence.vocabulary), (1, 2)
    rows = sequence.forward(CHAIN)
    assert rows.launch.verdict(question(sequence, 4)) is None and len(verdict_kinds) == 1
    monkeypatch.setattr(verdict, "is_fused", lambda rows: True)
    answered = verdict.judge(rows, CHAIN.tokens, None, Noise(1, sequence.vocabulary), 2, 0, True).verdict.answers
    assert len(verdict_kinds) == 1 and answered[0] not in (1, 2)

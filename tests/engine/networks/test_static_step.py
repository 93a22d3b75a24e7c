"""A pass in fixed shapes: the same tokens, no host inside, nothing left behind, one graph. Only the last test runs on a GPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import cache, partial
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.core import NO_DRAFT, Draft
from engine.dispatch.choice import REFERENCE
from engine.dispatch.choice import VARIABLE as KERNELS
from engine.drafters.feature_draft import NAME
from engine.methods import find
from engine.networks import sequence as sequences
from engine.networks import static_step
from engine.networks.native_blocks import quicken
from engine.networks.sequence import TransformerSequence
from engine.networks.static_step import NAMED, Bucket, Pass, bucket, fixed_pass, is_static, said
from engine.run import generate
from tests.engine.device.far import FAR, Far, as_on_a_gpu, moved
from tests.engine.device.models import MODELS, Model

SMALL = {"window": 6, "depth": 2, "width": 3, "nodes": 6}
TREE = Draft(torch.tensor([5, 3, 5, 1, 2]), parents=torch.tensor([-1, -1, 0, 0, 2]))
CHAIN = Draft(torch.tensor([4, 1, 7]))
STATIC, DYNAMIC = "static", "dynamic"


@cache
def near(name: str) -> Model:
    """A model on the processor."""
    return MODELS[name](lambda module: module)


def tokens(model: Model, method: str, count: int) -> list[int]:
    """The tokens of the first steps of a run."""
    found, knobs = find(method)
    chosen: dict[str, Any] = {k.name: SMALL[k.name] for k in found.knobs if k.name in SMALL}
    run = generate(model.backbone, found, model.prompt, chosen | knobs, model.drafter_of(found))
    list(islice(run, count))
    run.close()
    return run.tokens


def shapes(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Sequences that begin from now on have passes in fixed shapes, or in shapes of their own."""
    monkeypatch.setattr(sequences, "is_static", lambda device: step == STATIC)


def begun(model: Model, monkeypatch: pytest.MonkeyPatch, step: str = STATIC) -> TransformerSequence:
    """A sequence with two committed tokens."""
    shapes(monkeypatch, step)
    sequence = model.backbone.start(model.prompt)
    for token in (1, 2):
        sequence.forward(NO_DRAFT)
        sequence.commit([], token)
    return sequence


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[Bucket]:
    """The buckets of all passes in fixed shapes."""
    found: list[Bucket] = []

    def counted(trunk: Any, block: Tensor, told: Tensor, drafted: Tensor | None, span: int, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
        found.append(Bucket(len(told), span))
        return fixed_pass(trunk, block, told, drafted, span, *more)

    monkeypatch.setattr(static_step, "fixed_pass", counted)
    return found


# --- the same tokens --------------------------------------------------------------------------------------------------

CASES = [
    ("pictogram", "ar"), ("pictogram", "sjd"), ("pictogram", "sjdpp"), ("pictogram", "eagle"), ("pictogram", "lookup"),
    ("lowpoly", "sjdpp"), ("lowpoly", "xspecmesh"), ("lowpoly", "xspecmesh_exact"), ("pictogram", "cross_regression"),
    ("lowpoly", "cross_regression"), ("bpt", "sjdpp"), ("janus", "eagle"), ("emu3", "sjdpp"), ("emu35", "jacobi"),
    ("anole", "sjdpp"), ("lumina", "zipar_verified"), ("glm_image", "sjdpp"), ("llamagen", "sjdpp"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "method"), CASES)
def test_the_tokens_are_those_of_the_dynamic_step(name: str, method: str, monkeypatch: pytest.MonkeyPatch, called: list[Bucket]) -> None:
    """All passes but the first are in fixed shapes: the one at the end of the prompt reads an embedding that is no token's."""
    shapes(monkeypatch, DYNAMIC)
    plain = tokens(near(name), method, 10)
    assert not called
    shapes(monkeypatch, STATIC)
    assert tokens(near(name), method, 10) == plain
    assert len(called) >= 5 and len(set(called)) <= 3


@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_a_decoder_prepared_for_a_processor_takes_fixed_shapes_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own functions read the number of kept rows on the host; they leave such a pass to PyTorch."""
    model = MODELS[name](lambda module: module)
    quicken(model.backbone.model.decoder)
    found = []
    for step in (DYNAMIC, STATIC):
        shapes(monkeypatch, step)
        found.append(tokens(model, "sjdpp", 6))
    assert found[0] == found[1]


@torch.inference_mode()
@pytest.mark.parametrize("draft", [NO_DRAFT, CHAIN, TREE], ids=["none", "chain", "tree"])
@pytest.mark.parametrize("name", ["pictogram", "lowpoly", "janus", "emu3"])
def test_rows_are_those_of_the_dynamic_step(name: str, draft: Draft, monkeypatch: pytest.MonkeyPatch, called: list[Bucket]) -> None:
    """And what a pass leaves in the cache is, too, whatever path is kept."""
    pair = [begun(near(name), monkeypatch, step) for step in (STATIC, DYNAMIC)]
    for turn in (draft, CHAIN):
        ours, theirs = (sequence.forward(turn) for sequence in pair)
        torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(ours.hidden, theirs.hidden, atol=1e-4, rtol=1e-4)
        path = {0: [], 3: [0, 1], 5: [0, 2]}[len(turn.tokens)]
        assert len({tuple(sequence.commit(path, 6)) for sequence in pair}) == 1
    assert called


@torch.inference_mode()
def test_fillers_are_seen_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows in a bucket of four and of sixty-four: what else is written makes no difference."""
    sequence = begun(near("pictogram"), monkeypatch)
    block, kept, draft = sequence.kv_cache.block, sequence.kv_cache.kept, torch.tensor([4, 1])
    laid = sequence.kv_cache.laid(torch.arange(kept, kept + 3), torch.ones(3, 3, dtype=torch.bool).tril())
    found = []
    for rows in (4, 64):
        block[:, :, :, :, kept:] = 7.0
        hidden, *_ = fixed_pass(sequence.trunk, block, said(Pass(2, draft, laid), kept, rows), torch.zeros(rows).long(), block.shape[4])
        found.append(hidden[:, :3])
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)


def test_buckets_grow_by_steps_and_end_with_the_cache() -> None:
    assert bucket(1, 0, 4096) == Bucket(1, 512)
    assert bucket(5, 504, 4096) == Bucket(8, 512)
    assert bucket(5, 505, 4096) == Bucket(8, 1024)
    assert bucket(64, 2000, 2100) == Bucket(64, 2100)
    assert bucket(65, 2000, 2100) is None, "128 rows do not fit"
    assert bucket(257, 0, 4096) is None


@torch.inference_mode()
def test_a_pass_that_fits_into_no_bucket_has_its_own_shape(monkeypatch: pytest.MonkeyPatch, called: list[Bucket]) -> None:
    sequence = begun(near("pictogram"), monkeypatch)
    assert sequence.forward(Draft(torch.arange(3))).logits.shape[1] == 4
    before = len(called)
    monkeypatch.setattr(static_step, "ROWS", (1, 4, 8))
    rows = sequence.forward(Draft(torch.arange(12)))
    assert rows.logits.shape[1] == 13 and len(called) == before


def test_passes_on_a_gpu_have_fixed_shapes_unless_the_reference_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KERNELS, raising=False)
    assert is_static(torch.device("cuda")) and not is_static(torch.device("cpu"))
    monkeypatch.setenv(KERNELS, REFERENCE)
    assert not is_static(torch.device("cuda"))


# --- what a capture needs ---------------------------------------------------------------------------------------------


WHOLE = ("pictogram", "lowpoly", "janus", "emu3", "glm_image")


@pytest.mark.parametrize("name", MODELS)
def test_it_reads_nothing_and_no_shape_depends_on_a_value(name: str) -> None:
    """On the device that is not there, where a shape that depends on a value counts as a read."""
    with Far() as device, torch.inference_mode():
        model = MODELS[name](moved)
        sequence = model.backbone.start(model.prompt)
        told, drafted = (torch.zeros(*shape, dtype=torch.int64, device=FAR) for shape in ((8, NAMED + 1), (8,)))
        with device.counted() as traffic:
            found = fixed_pass(sequence.trunk, sequence.kv_cache.below.block, told, drafted, sequence.kv_cache.below.capacity)
        assert not traffic.reads and not traffic.sends
        assert all(each.device == FAR for each in found) and [each.shape[-2] for each in found[:2]] == [8, 8]


@pytest.mark.parametrize("name", ["pictogram", "lowpoly", "janus"])
def test_a_drafter_reads_nothing_either(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes(monkeypatch, STATIC)
    with Far() as device, torch.inference_mode():
        model = MODELS[name](moved)
        sequence = model.backbone.start(model.prompt)
        growth = model.drafters["feature_draft"].start(sequence)
        told = torch.zeros(4, 4 + 8, dtype=torch.int64, device=FAR)
        features = torch.zeros(sequence.kv_cache.branches, 4, 32, device=FAR)
        with device.counted() as traffic:
            found = growth.fixed_pass(growth.kv_cache.capacity, told, features)
        assert not traffic.reads and not traffic.sends
        assert [each.shape[-2] for each in found] == [4, 4] and all(each.device == FAR for each in found)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["pictogram", "lowpoly", "janus"])
def test_a_drafter_grows_the_same_tree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cycles of a root and two levels, of which the second begins after tokens that were committed."""
    found = []
    for step in (STATIC, DYNAMIC):
        sequence = begun(near(name), monkeypatch, step)
        growth = near(name).drafters["feature_draft"].start(sequence)
        states = torch.randn(sequence.kv_cache.branches, 5, 32, generator=torch.Generator().manual_seed(1))
        rows = [growth.root(states[:, :2], [1, 2])[None], growth.expand([-1, -1], [3, 4]), growth.expand([1, 0, 1], [5, 6, 5])]
        rows += [growth.root(states[:, 2:], [3, 5, 1])[None], growth.expand([-1], [2])]
        found.append(torch.cat(rows))
        if step == STATIC:
            assert sum(key[0] == NAME for key in growth.replays._known) == 2, "a bucket of one row, and one of four"
    torch.testing.assert_close(*found, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["pictogram", "lowpoly", "emu3"])
def test_a_step_waits_once_and_sends_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device that is not there, with values: pass and verdict are told in one tensor, and the one read is that of the verdict."""
    shapes(monkeypatch, STATIC)
    with as_on_a_gpu(monkeypatch) as device:
        model = MODELS[name](moved)
        found, knobs = find("sjdpp")
        run = generate(model.backbone, found, model.prompt, knobs | {"window": 5}, None)
        list(islice(run, 2))
        with device.counted() as traffic:
            next(run)
        run.close()
    grammar = model.prompt.points is not None
    assert traffic.reads == {"core.py: Ids.along": 1} | ({"core.py: Ids.listed": 1} if grammar else {})
    assert traffic.sends == {"networks/static_step.py: Replays.call": 1}


class Made(TorchDispatchMode):
    """Watches the storages that operations make in this context, which are not those that were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.before: set[weakref.ref[torch.UntypedStorage]] = set()
        self.made: set[weakref.ref[torch.UntypedStorage]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Notes what an operation gets and returns."""
        self.before |= storages((args, kwargs)) - self.made
        found = func(*args, **kwargs or {})
        self.made |= storages(found) - self.before
        return found


def storages(tree: Any) -> set[weakref.ref[torch.UntypedStorage]]:
    """Those of all tensors but weights that a processor has packed."""
    return {weakref.ref(x.untyped_storage()) for x in tree_leaves(tree) if isinstance(x, Tensor) and x.layout is torch.strided}


@pytest.mark.parametrize("name", ["pictogram", "lowpoly", "emu3"])
def test_nothing_is_left_behind_but_the_results(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else goes back to the pool of memory, so that a replay needs no more."""
    with torch.inference_mode():
        sequence = begun(near(name), monkeypatch)
        told, drafted = torch.zeros(4, NAMED + 1, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
        kv_cache = sequence.kv_cache.below
        with Made() as watched:
            found = fixed_pass(sequence.trunk, kv_cache.block, told, drafted, kv_cache.capacity)
    gc.collect()
    alive = {storage for each in watched.made if (storage := each()) is not None}
    assert len(watched.made) > 50 and len(watched.before) > 10
    assert alive <= {each.untyped_storage() for each in found}, "more than hidden states and logits are alive"


@pytest.mark.parametrize("name", WHOLE)
def test_it_is_one_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's compiler takes it whole, with tensors that have no values: no branch and no shape depends on one."""
    monkeypatch.setenv(KERNELS, REFERENCE)  # a processor's own functions are for a processor
    with torch.inference_mode():
        sequence = begun(MODELS[name](lambda module: module), monkeypatch)
        kept, span = sequence.kv_cache.below.kept, sequence.kv_cache.below.capacity
        laid = sequence.kv_cache.laid(torch.arange(kept, kept + 4), torch.ones(4, 4, dtype=torch.bool).tril())
        told, drafted = said(Pass(2, torch.tensor([4, 1, 3]), laid), kept, 8), torch.zeros(8, dtype=torch.int64)
        call: Callable[..., tuple[Tensor, Tensor, Tensor]] = partial(fixed_pass, sequence.trunk, sequence.kv_cache.below.block)
        plain = call(told, drafted, span)
        torch.compiler.reset()
        found = torch.compile(call, fullgraph=True, backend="eager")(told, drafted, span)
    for ours, theirs in zip(found[:2], plain[:2], strict=True):
        torch.testing.assert_close(ours[:, :4], theirs[:, :4])


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["ar", "sjdpp", "eagle"])
def test_graphs_give_the_tokens_of_the_dynamic_step(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["pictogram"](lambda module: module.cuda())
    shapes(monkeypatch, DYNAMIC)
    plain = tokens(model, method, 12)
    shapes(monkeypatch, STATIC)
    assert tokens(model, method, 12) == plain

"""Workspaces that runs borrow: two at once never share one, the next run gets it, and a larger bucket serves the end of a picture."""

from __future__ import annotations

import pytest
import torch

from engine.cache import KVCache
from engine.core import Draft, Prompt
from engine.networks import workspace
from engine.networks.workspace import KINDS, PATIENCE, USES, Bucket, Replays, WorkspacePool
from tests.engine.device.models import near
from tests.engine.networks.test_static_step import STATIC, use_steps

CPU = torch.device("cpu")
SHAPE = Bucket(40, 512)


def cache(capacity: int = 300, heads: int = 2) -> KVCache:
    """A small cache."""
    return KVCache(1, 1, heads, capacity, 4, CPU, torch.float32)


def test_two_runs_at_once_have_two_blocks_and_the_next_pair_has_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    use_steps(monkeypatch, STATIC)
    backbone, blocks = near("janus").backbone, []
    for texts in (("apple", "two blue cups"), ("two blue cups", "a")):  # of other lengths
        pair = [backbone.start(Prompt(text)) for text in texts]
        blocks.append([sequence.kv_cache.block.data_ptr() for sequence in pair])
        for sequence in pair:
            sequence.close()
            sequence.close()  # is in the pool once
    assert blocks[0] == blocks[1] and len(set(blocks[0])) == 2


def test_a_block_is_lent_where_it_fits() -> None:
    pool = WorkspacePool()
    first = pool.borrow(cache())
    assert first.block.shape[4] == 512, "prompts that differ by a few hundred tokens share it"
    first.block.fill_(torch.nan)
    pool.give_back(first)
    assert pool.borrow(cache(513)) is not first and pool.borrow(cache(heads=3)) is not first
    smaller = cache(10)
    assert pool.borrow(smaller) is first and smaller.capacity == 512 and not smaller.block.any()


def test_a_model_keeps_the_last_two() -> None:
    pool = WorkspacePool()
    lent = [pool.borrow(cache()) for _ in range(3)]
    for each in lent:
        pool.give_back(each)
    assert [pool.borrow(cache()) for _ in range(2)] == lent[1:] and pool.borrow(cache()) not in lent
    pool.give_back(lent[2])
    pool.release()
    assert pool.borrow(cache()) is not lent[2]


def test_memory_that_no_run_uses_is_freed_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, empty, failures = WorkspacePool(), torch.empty, [torch.OutOfMemoryError()]
    pool.give_back(pool.borrow(cache()))

    def allocate(*shape: object, **options: object) -> torch.Tensor:
        if failures:
            raise failures.pop()
        return empty(*shape, **options)

    monkeypatch.setattr(workspace.torch, "empty", allocate)
    assert pool.borrow(cache(700)).block.shape[4] == 768 and not pool._idle


def calls(replays: Replays, count: int, rows: int, kept: int = 0, key: object = "key") -> list[Bucket]:
    """The buckets of some passes."""
    found = []
    for _ in range(count):
        found.append(replays.choose(key, rows, kept, 2048))
        replays.call(key, found[-1], lambda x: (x + 1,), torch.ones(found[-1].rows))
    return found


def test_the_end_of_a_picture_takes_the_bucket_of_its_windows() -> None:
    replays = Replays(CPU)
    assert calls(replays, USES, 33) == [SHAPE] * USES
    assert [each for rows in range(32, 0, -1) for each in calls(replays, 1, rows)] == [SHAPE] * 32
    assert calls(replays, PATIENCE, 1)[-1] == Bucket(1, 512), "a method of single rows, not an end"
    assert calls(replays, 1, 41) == [Bucket(48, 512)] and calls(replays, 1, 20, 500) == [Bucket(24, 1024)]


def test_a_shape_that_a_run_needs_twice_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    captures: list[object] = []
    monkeypatch.setattr(workspace, "capture_on", lambda device: lambda call: captures.append(call) or call)
    replays = Replays(CPU)
    for _ in range(3):
        replays.begin()
        calls(replays, USES - 1, 33)
    assert not captures
    calls(replays, 5, 33)
    assert len(captures) == 1


def test_graphs_of_old_kinds_go() -> None:
    """Each sampling is a kind; the one in use stays."""
    replays = Replays(CPU)
    for kind in range(2 * KINDS):
        calls(replays, USES, 33, key="often")
        calls(replays, USES, 33, key=kind)
        replays.begin()
    assert set(replays._graphs) == {key for key, _ in replays._bound} == {"often", *range(KINDS + 1, 2 * KINDS)}


@torch.inference_mode()
def test_a_pass_that_waits_in_a_closed_run_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    use_steps(monkeypatch, STATIC)
    backbone = near("janus").backbone
    sequence = backbone.start(Prompt("apple"))
    sequence.forward(Draft(torch.arange(0)))
    sequence.commit([], 1)
    rows = sequence.forward(Draft(torch.arange(3)))
    sequence.close()
    with pytest.raises(RuntimeError, match="closed"):
        _ = rows.logits

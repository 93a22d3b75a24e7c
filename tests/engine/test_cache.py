"""The key/value cache: what is written after the kept rows, what commit keeps, what is dropped."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cache import KVCache

LAYERS, BRANCHES, HEADS, CAPACITY, WIDTH = 2, 2, 3, 12, 4


@pytest.fixture
def kv_cache() -> KVCache:
    """An empty cache."""
    return KVCache(LAYERS, BRANCHES, HEADS, CAPACITY, WIDTH, torch.device("cpu"), torch.float32)


def rows_of(names: list[int], layer: int = 0) -> tuple[Tensor, Tensor]:
    """Keys and values [branches, heads, R, width] that carry the names of their rows."""
    keys = torch.tensor(names, dtype=torch.float32)[None, None, :, None].expand(BRANCHES, HEADS, -1, WIDTH)
    return keys + 0.1 * layer, -keys - 0.1 * layer


def write(kv_cache: KVCache, names: list[int]) -> None:
    """One pass through all layers."""
    for layer in range(LAYERS):
        kv_cache.write(layer, *rows_of(names, layer))


def kept_values(kv_cache: KVCache, layer: int = 0) -> list[float]:
    """The names of the kept rows."""
    keys, values = kv_cache.block[layer, :, :, :, : kv_cache.kept]
    assert torch.equal(keys, -values)
    assert (keys == keys[:1, :1, :, :1]).all()  # all branches, heads and channels moved together
    return [round(x - 0.1 * layer, 3) for x in keys[0, 0, :, 0].tolist()]


def test_writing_returns_all_that_is_visible(kv_cache: KVCache) -> None:
    write(kv_cache, [1, 2])
    kv_cache.keep([0, 1])
    keys, values = kv_cache.write(0, *rows_of([3, 4, 5]))
    assert keys.shape == values.shape == (BRANCHES, HEADS, 5, WIDTH)
    assert keys[0, 0, :, 0].tolist() == [1, 2, 3, 4, 5]
    assert values[1, 2, :, 3].tolist() == [-1, -2, -3, -4, -5]


def test_a_pass_that_is_not_kept_is_overwritten(kv_cache: KVCache) -> None:
    write(kv_cache, [1, 2, 3])
    keys, _ = kv_cache.write(0, *rows_of([7]))
    assert kv_cache.kept == 0 and keys[0, 0, :, 0].tolist() == [7]


@pytest.mark.parametrize("rows", [[], [0], [0, 1], [0, 2], [0, 2, 5], [0, 3, 4], [1, 3, 5], [2, 3, 4, 5], [5]])
def test_keeping_a_path_moves_it_together(kv_cache: KVCache, rows: list[int]) -> None:
    """Targets overlap sources here, so an in-place copy in the wrong order would show."""
    write(kv_cache, [100, 101])
    kv_cache.keep([0, 1])
    write(kv_cache, [0, 1, 2, 3, 4, 5])
    kv_cache.keep(rows)
    for layer in range(LAYERS):
        assert kept_values(kv_cache, layer) == [100, 101, *rows]


def test_a_chain_is_kept_without_a_move(kv_cache: KVCache) -> None:
    write(kv_cache, [1, 2, 3])
    before = kv_cache.block.clone()
    kv_cache.keep([0, 1])
    assert kv_cache.kept == 2 and torch.equal(kv_cache.block, before)


def test_rewinding_forgets_the_end(kv_cache: KVCache) -> None:
    write(kv_cache, [1, 2, 3, 4])
    kv_cache.keep([0, 1, 2, 3])
    kv_cache.rewind(2)
    assert kept_values(kv_cache) == [1, 2]
    write(kv_cache, [9])
    kv_cache.keep([0])
    assert kept_values(kv_cache) == [1, 2, 9]


def test_rewinding_forwards_is_a_mistake(kv_cache: KVCache) -> None:
    with pytest.raises(AssertionError):
        kv_cache.rewind(1)


def test_the_last_row_fits_and_one_more_does_not(kv_cache: KVCache) -> None:
    assert kv_cache.capacity == CAPACITY
    write(kv_cache, list(range(CAPACITY)))
    kv_cache.keep(list(range(CAPACITY)))
    with pytest.raises(AssertionError, match="13 rows do not fit into 12"):
        write(kv_cache, [1])  # broadcasting one row into no place would be silent


def test_nothing_is_allocated_after_construction(kv_cache: KVCache) -> None:
    where = kv_cache.block.data_ptr()
    write(kv_cache, [1, 2, 3])
    kv_cache.keep([0, 2])
    keys, _ = kv_cache.write(0, *rows_of([4]))
    assert kv_cache.block.data_ptr() == where == keys.data_ptr()

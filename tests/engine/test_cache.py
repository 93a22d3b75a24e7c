"""The key/value slab: what is written after the kept rows, what commit keeps, what is dropped."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.cache import Slab

LAYERS, BRANCHES, HEADS, CAPACITY, WIDTH = 2, 2, 3, 12, 4


@pytest.fixture
def slab() -> Slab:
    """An empty slab."""
    return Slab(LAYERS, BRANCHES, HEADS, CAPACITY, WIDTH, torch.device("cpu"), torch.float32)


def rows_of(names: list[int], layer: int = 0) -> tuple[Tensor, Tensor]:
    """Keys and values [branches, heads, R, width] that carry the names of their rows."""
    keys = torch.tensor(names, dtype=torch.float32)[None, None, :, None].expand(BRANCHES, HEADS, -1, WIDTH)
    return keys + 0.1 * layer, -keys - 0.1 * layer


def write(slab: Slab, names: list[int]) -> None:
    """One pass through all layers."""
    for layer in range(LAYERS):
        slab.write(layer, *rows_of(names, layer))


def kept(slab: Slab, layer: int = 0) -> list[float]:
    """The names of the kept rows."""
    keys, values = slab.block[layer, :, :, :, : slab.kept]
    assert torch.equal(keys, -values)
    assert (keys == keys[:1, :1, :, :1]).all()  # all branches, heads and channels moved together
    return [round(x - 0.1 * layer, 3) for x in keys[0, 0, :, 0].tolist()]


def test_writing_returns_all_that_is_visible(slab: Slab) -> None:
    write(slab, [1, 2])
    slab.keep([0, 1])
    keys, values = slab.write(0, *rows_of([3, 4, 5]))
    assert keys.shape == values.shape == (BRANCHES, HEADS, 5, WIDTH)
    assert keys[0, 0, :, 0].tolist() == [1, 2, 3, 4, 5]
    assert values[1, 2, :, 3].tolist() == [-1, -2, -3, -4, -5]


def test_a_pass_that_is_not_kept_is_overwritten(slab: Slab) -> None:
    write(slab, [1, 2, 3])
    keys, _ = slab.write(0, *rows_of([7]))
    assert slab.kept == 0 and keys[0, 0, :, 0].tolist() == [7]


@pytest.mark.parametrize("rows", [[], [0], [0, 1], [0, 2], [0, 2, 5], [0, 3, 4], [1, 3, 5], [2, 3, 4, 5], [5]])
def test_keeping_a_path_moves_it_together(slab: Slab, rows: list[int]) -> None:
    """Targets overlap sources here, so an in-place copy in the wrong order would show."""
    write(slab, [100, 101])
    slab.keep([0, 1])
    write(slab, [0, 1, 2, 3, 4, 5])
    slab.keep(rows)
    for layer in range(LAYERS):
        assert kept(slab, layer) == [100, 101, *rows]


def test_a_chain_is_kept_without_a_move(slab: Slab) -> None:
    write(slab, [1, 2, 3])
    before = slab.block.clone()
    slab.keep([0, 1])
    assert slab.kept == 2 and torch.equal(slab.block, before)


def test_rewinding_forgets_the_end(slab: Slab) -> None:
    write(slab, [1, 2, 3, 4])
    slab.keep([0, 1, 2, 3])
    slab.rewind(2)
    assert kept(slab) == [1, 2]
    write(slab, [9])
    slab.keep([0])
    assert kept(slab) == [1, 2, 9]


def test_rewinding_forwards_is_a_mistake(slab: Slab) -> None:
    with pytest.raises(AssertionError):
        slab.rewind(1)


def test_the_last_row_fits_and_one_more_does_not(slab: Slab) -> None:
    assert slab.capacity == CAPACITY
    write(slab, list(range(CAPACITY)))
    slab.keep(list(range(CAPACITY)))
    with pytest.raises(AssertionError, match="13 rows do not fit into 12"):
        write(slab, [1])  # broadcasting one row into no place would be silent


def test_nothing_is_allocated_after_construction(slab: Slab) -> None:
    where = slab.block.data_ptr()
    write(slab, [1, 2, 3])
    slab.keep([0, 2])
    keys, _ = slab.write(0, *rows_of([4]))
    assert slab.block.data_ptr() == where == keys.data_ptr()

"""Draft trees as parent arrays."""

from __future__ import annotations

import pytest
import torch

from engine.tree import children, depths, is_chain, path, visibility

TREES = {
    "empty": [],
    "one": [-1],
    "chain": [-1, 0, 1, 2],
    "siblings": [-1, -1, -1],
    "tree": [-1, -1, 0, 0, 1, 3],
    "late root": [-1, 0, -1, 2, 1],
}


def test_depths() -> None:
    assert depths(TREES["tree"]) == [1, 1, 2, 2, 2, 3]
    assert depths(TREES["late root"]) == [1, 2, 1, 2, 3]
    assert depths([]) == []


def test_paths() -> None:
    assert path(TREES["tree"], 5) == [0, 3, 5]
    assert path(TREES["tree"], 4) == [1, 4]
    assert path(TREES["tree"], -1) == []


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_a_path_is_as_long_as_its_depth(parents: list[int]) -> None:
    assert [len(path(parents, i)) for i in range(len(parents))] == depths(parents)


@pytest.mark.parametrize("parents", TREES.values(), ids=TREES)
def test_visibility_is_ancestors_and_oneself(parents: list[int]) -> None:
    n = len(parents)
    expected = torch.zeros(n + 1, n + 1, dtype=torch.bool)
    expected[:, 0] = True  # everyone sees the pending token
    for node in range(n):
        for seen in path(parents, node):
            expected[node + 1, seen + 1] = True
    visible = visibility(parents)
    assert visible.dtype == torch.bool and torch.equal(visible, expected)


def test_a_chain_sees_everything_before_it() -> None:
    assert torch.equal(visibility(TREES["chain"]), torch.ones(5, 5, dtype=torch.bool).tril())


def test_what_is_a_chain() -> None:
    assert [is_chain(parents) for parents in TREES.values()] == [True, True, True, False, False, False]


def test_children_of_every_row() -> None:
    assert children(TREES["tree"]) == [[0, 1], [2, 3], [4], [], [5], [], []]
    assert children([]) == [[]]

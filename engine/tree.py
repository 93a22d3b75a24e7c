"""Draft trees as parent arrays: parents[i] < i, -1 = after the prefix."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def depths(parents: list[int]) -> list[int]:
    """Depth of each node, 1 for children of the prefix."""
    levels: list[int] = []
    for parent in parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    return levels


def path(parents: list[int], node: int) -> list[int]:
    """The nodes from the prefix down to `node`, inclusive; [] for -1."""
    nodes: list[int] = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def visibility(parents: list[int]) -> Tensor:
    """The attention mask of a pass: bool [N+1, N+1]; row and column 0 are the pending token. A node attends to its ancestors and itself."""
    visible = np.eye(len(parents) + 1, dtype=bool)
    for node, parent in enumerate(parents):
        visible[node + 1] |= visible[parent + 1]
    return torch.from_numpy(visible)


def is_chain(parents: list[int]) -> bool:
    """True for -1, 0, 1, ..."""
    return all(parent == i - 1 for i, parent in enumerate(parents))


def children(parents: list[int]) -> list[list[int]]:
    """The children of the prefix, then of every node, each in order of index: N+1 lists, like the rows of a pass."""
    by_parent: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        by_parent[parent + 1].append(node)
    return by_parent

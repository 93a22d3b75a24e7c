"""Draft trees as parent arrays: parents[i] < i, -1 = after the prefix."""

from __future__ import annotations

import torch
from torch import Tensor


def depths(parents: list[int]) -> list[int]:
    """Depth of each node, 1 for children of the prefix."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent < 0 else found[parent] + 1)
    return found


def path(parents: list[int], node: int) -> list[int]:
    """The nodes from the prefix down to `node`, which is included; [] for -1."""
    nodes: list[int] = []
    while node >= 0:
        nodes.append(node)
        node = parents[node]
    return nodes[::-1]


def visibility(parents: list[int]) -> Tensor:
    """Who sees whom in a pass: bool [N+1, N+1], row and column 0 the pending token; ancestors and oneself."""
    n = len(parents)
    visible = torch.eye(n + 1, dtype=torch.bool)
    for node, parent in enumerate(parents):
        visible[node + 1] |= visible[parent + 1]
    return visible


def is_chain(parents: list[int]) -> bool:
    """True for -1, 0, 1, ..."""
    return all(parent == i - 1 for i, parent in enumerate(parents))

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


def closure(parents: list[int], chosen: list[int]) -> list[int]:
    """The chosen nodes and all their ancestors, in order of index."""
    return sorted({node for end in chosen for node in path(parents, end)})


def best(parents: list[int], scores: list[float], count: int) -> list[int]:
    """The `count` nodes of greatest score, ancestors included, in order of index; all nodes if there are fewer.

    A node is ranked by the least score on its path, and an earlier node wins a tie. So no node is kept without its parent (as can happen
    with EAGLE-2's top-k when a forced token costs nothing), and no node is displaced by its own descendants.
    """
    least: list[float] = []
    for node, parent in enumerate(parents):
        least.append(scores[node] if parent < 0 else min(scores[node], least[parent]))
    order = sorted(range(len(parents)), key=lambda node: (-least[node], node))
    return sorted(order[:count])


def restrict(parents: list[int], nodes: list[int]) -> list[int]:
    """The parents of some nodes, renumbered. `nodes` is closed under ancestors and in order of index."""
    place = {-1: -1} | {node: i for i, node in enumerate(nodes)}
    return [place[parents[node]] for node in nodes]

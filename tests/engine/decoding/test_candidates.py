"""Several candidates a slot: their distributions, and the tree over them."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from engine.decoding.candidates import race, shape_of, spine
from engine.noise import Noise
from engine.sampling import draw_gumbel
from engine.tree import path


def test_candidates_are_draws_without_replacement() -> None:
    law = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    runs, seen = 6000, Counter()
    for seed in range(runs):
        noise = Noise(seed, 3, dtype=torch.float64)
        first = draw_gumbel(law.log(), noise.gumbel(4, 1))
        seen[tuple(race(first, law, noise, 4, 2)[0])] += 1
    expected = {(a, b): law[0, a] * law[0, b] / (1 - law[0, a]) for a in range(3) for b in range(3) if a != b}
    assert seen.keys() == expected.keys()
    assert sum((seen[pair] / runs - chance) ** 2 / chance for pair, chance in expected.items()) * runs < 20  # 5 degrees of freedom


def test_impossible_tokens_are_no_candidates() -> None:
    law = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    found = race(torch.tensor([1, 0]), law, Noise(1, 3), 0, 3)
    assert found == [[1], [0, 1]]


@pytest.mark.parametrize(("counts", "levels", "nodes"), [([2, 2, 1, 1], 2, 8), ([3, 1], 1, 4), ([1, 1], 0, 2), ([1, 3, 1], 2, 5)])
def test_every_path_of_candidates_is_in_the_tree(counts: list[int], levels: int, nodes: int) -> None:
    shape = shape_of(counts, levels)
    assert len(shape.parents) == nodes and all(parent < node for node, parent in enumerate(shape.parents))
    found = {tuple(shape.ranks[each] for each in path(shape.parents, node)) for node in range(nodes)}
    assert len(found) == nodes and all(len(path(shape.parents, node)) == slot + 1 for node, slot in enumerate(shape.slots))


def test_the_spine_goes_down_the_path_and_then_along_the_chain() -> None:
    shape = shape_of([2, 2, 1], 2)  # nodes 0 1 2 are the chain
    other = next(node for node in range(3, len(shape.parents)) if shape.slots[node] == 0)
    below = next(node for node, parent in enumerate(shape.parents) if parent == other)
    assert spine(shape, [], 3) == [0, 1, 2]
    assert spine(shape, [other], 3) == [below, 2]
    assert spine(shape, [0, 1, 2], 3) == []

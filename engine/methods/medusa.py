"""Medusa on pictures: each of several heads predicts one of the next tokens from one state; their guesses make a tree.

Paper: Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads, Cai et al., arXiv 2401.10774; a baseline of
Cross-Regression (tables 3 and 14).
Idea: head d reads the model's last state and gives a distribution of the token d places ahead. No head knows another head's guess, so
a level of the tree costs no pass of a drafter: every node of a level has the same distribution. The tree of the best combinations is
verified at once, and the longest accepted path is committed.
Exactness: always, unless a relaxed rule is on, for the reasons of EAGLE-2 (engine/methods/eagle.py): the tree is the same but for its
distributions. Medusa's own rule for temperatures above 0, typical acceptance, is a rule of `xspecmesh`.
Deviations: the heads are the row heads of SSD (engine/drafters/spatial_heads.py): one network for all distances, which reads the newest
token together with the state that predicted it. The tree grows by the heads' probabilities at every pass; the paper's has a fixed shape,
chosen on a calibration set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from engine.core import VERIFY, Case, Knobs, Method, Sequence, Step
from engine.decoding import growth, neighbours, trees
from engine.decoding.growth import CHILDREN, NODES, WIDTH
from engine.decoding.trees import FixedSchedule, tree_decoding
from engine.drafters.spatial_heads import REACH, SpatialDrafter, SpatialGuess
from engine.noise import Noise

DEPTH = replace(growth.DEPTH, symbol="D", high=REACH, help="Number of heads: levels of the tree.")


class HeadDrafter:
    """The row heads as a drafter of trees."""

    def __init__(self, heads: SpatialDrafter):
        self.heads = heads

    def start(self, sequence: Sequence) -> HeadGrowth:
        """Starts the heads for one run."""
        return HeadGrowth(sequence, self.heads.start(sequence))


class HeadGrowth:
    """One run of the heads. A node's distribution depends on its level alone.

    probs : [REACH, V], the heads' guided logits of the tokens after the newest one; levels : of the root and all nodes
    """

    def __init__(self, sequence: Sequence, guess: SpatialGuess):
        self.sequence, self.guess = sequence, guess
        self.logits, self.levels = torch.empty(0), None

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """Gives the heads the states [branches, k, H] that predicted the newest tokens. Returns the first head's logits [V]."""
        n = self.sequence.length
        self.guess.observe_states(n - len(tokens), hidden)
        none = torch.empty(0, dtype=torch.int64, device=hidden.device)
        self.logits, self.levels = self.guess.guess(range(n, n + REACH), none, columns=False), None
        return self.logits[0]

    def expand(self, parents: list[int] | Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Grows nodes after earlier ones, -1: the root. Returns the logits [k, V] of the tokens after them, which depend on the level
        only."""
        behind = torch.as_tensor(parents) + 1
        self.levels = torch.zeros_like(behind[:1]) if self.levels is None else self.levels
        grown = self.levels[behind] + 1
        self.levels = torch.cat([self.levels, grown])
        return self.logits[grown]


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: SpatialDrafter) -> Iterator[Step]:
    """Yields one Step per pass."""
    return tree_decoding(sequence, knobs, noise, HeadDrafter(drafter), FixedSchedule())


_SMALL = {"depth": 2, "width": 2, "nodes": 5}
_SQUARE = {"rows": 2, "columns": 2}

METHOD = Method(
    name="medusa",
    title="Medusa",
    about="Small heads guess one token each, independently; the model checks the tree of their guesses.",
    decode=decode,
    knobs=(DEPTH, WIDTH, NODES, CHILDREN, *neighbours.KNOBS, VERIFY),
    paper="Medusa, Cai et al., arXiv 2401.10774",
    exact=neighbours.is_exact,
    why=trees.why,
    needs=frozenset({"raster", "hidden", "spatial_heads"}),
    drafters=("spatial_heads",),
    common=_SMALL | {"children": "sampled"},
    baseline=True,
    cases=(
        Case(
            "TREE-EXACT deterministic", "same distribution", {"depth": 2, "width": 3, "nodes": 12, "children": "deterministic"}, _SQUARE,
            mutants=("tree: parents missing",),
        ),
        Case(
            "TREE-EXACT sampled", "same distribution", _SMALL | {"children": "sampled"}, _SQUARE,
            mutants=("tree: siblings' distributions not conditional", "tree: residual is p", "keep the first rows"),
        ),
        Case("TREE-T0", "same tokens", _SMALL, {"temperature": 0.0}, mutants=("tree: row of the parent",)),
        Case("SEED-EXACT", "same tokens", _SMALL | {"verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)  # fmt: skip

"""A tree controller that derives shapes from a hash of the committed history: if it is exact, every schedule is.

Users cannot choose it. Its mutant does what a schedule must not do: it looks at the tree that is being verified.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.core import Case, Knobs, Method, Sequence, Step
from engine.decoding.growth import TreeSize
from engine.decoding.trees import Cycle, tree_decoding
from engine.drafters.feature_draft import FeatureDraft
from engine.methods import eagle
from engine.noise import Noise

_PRIME = 5_000_011  # its multiples scatter small histories


class HistoryHash:
    """Chooses depth, width, number of nodes and thresholds from a hash of all committed tokens and of the last verdict."""

    def __init__(self) -> None:
        self.accepted = 0

    def next(self, sequence: Sequence, knobs: Knobs, noise: Noise, iteration: int) -> TreeSize:
        """A shape of 1 to 3 levels, 1 to 3 wide, with or without thresholds."""
        number = self.accepted + 1
        for token in sequence.tokens:
            number = (number * 31 + token + 7) * _PRIME % (1 << 61)
        number >>= 7
        depth, width, nodes = 1 + number % 3, 1 + number // 3 % 3, 1 + number // 9 % 7
        return TreeSize(depth, width, nodes, 0.1 * (number // 63 % 2), 0.3 * (number // 126 % 4))

    def observe(self, cycle: Cycle) -> None:
        """Records the verdict: it is history, so later shapes may depend on it."""
        self.accepted = cycle.accepted


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: FeatureDraft) -> Iterator[Step]:
    """Yields one Step per pass."""
    return tree_decoding(sequence, knobs, noise, drafter, HistoryHash())


METHOD = Method(
    name="adversary",
    title="Adversarial controller (reference)",
    decode=decode,
    knobs=eagle.KNOBS,
    paper="",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: shapes depend on committed history only.",
    needs=eagle.METHOD.needs,
    drafters=eagle.METHOD.drafters,
    cases=(
        Case("ADT-ANY sampled", "same distribution", {"children": "sampled"}, {"columns": 2}, ("tree: controller sees the draft",)),
        Case("ADT-ANY auto", "same distribution", {"children": "auto"}, {"columns": 2}, ("tree: parents missing",)),
    ),
)

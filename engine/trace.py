"""What a step tells beside its tokens: the numbers that diagnostics draw and `trace.npz` keeps. What a method does not tell is None."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, fields

import numpy as np
from torch import Tensor

Values = Tensor | np.ndarray | Items[float]  # one a token, on any device


@dataclass(frozen=True)
class TreeTrace:
    """The tree that a pass verified. tokens, parents : one a node, -1 = behind the prefix; path : the accepted nodes; p, q : of every node,
    what the model and the drafter gave its token (q is 1 where it was chosen and not drawn)

    levels : of the tree as built; width : the children that a node was allowed, None where no tree was asked for
    """

    tokens: list[int]
    parents: list[int]
    path: list[int]
    p: list[float]
    q: list[float]
    levels: int = 0
    width: int | None = None


@dataclass(frozen=True)
class RoundTrace:
    """All drafts of a pass with their energies and the thresholds that these had to reach, and how many were accepted."""

    energy: Values
    threshold: Values
    accepted: int


@dataclass(frozen=True)
class DeviationTrace:
    """How far a relaxed rule lets tokens lie from the model's distribution, in total variation distance.

    mean : of the run so far; latest : of this pass; strength : what the rule was allowed in it. nan: not measured
    """

    mean: float
    latest: float | None = None
    strength: float | None = None


@dataclass(frozen=True)
class Trace:
    """What a Step tells. The first eight are one value a committed token, or fewer: then the last tokens have none.

    accepted : whether the token was a draft; verdict : STAYED, REFUSED or NEAR (engine/decoding/rules.py), of methods that repair
    accept_probability : the chance that the draft had; entropy : of the distribution that the token was judged by, in nats
    depth, parent : the token's level in the draft tree (0: behind it) and the node before it
    energy, threshold : of the draft at the token's position
    """

    accepted: Values | None = None
    verdict: Values | None = None
    accept_probability: Values | None = None
    entropy: Values | None = None
    depth: Values | None = None
    parent: Values | None = None
    energy: Values | None = None
    threshold: Values | None = None
    tree: TreeTrace | None = None
    round: RoundTrace | None = None
    deviation: DeviationTrace | None = None

    @property
    def told(self) -> set[str]:
        """The names of what is not None."""
        return {each.name for each in fields(self) if getattr(self, each.name) is not None}

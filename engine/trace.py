"""Records of a step in addition to its tokens: the numbers that diagnostics plot and `trace.npz` stores. A value not recorded is None."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, fields

import numpy as np
from torch import Tensor

Values = Tensor | np.ndarray | Items[float]  # one per token, on any device


@dataclass(frozen=True)
class TreeTrace:
    """The tree that a pass verified.

    tokens, parents : one per node; parent -1 = the prefix
    path            : the accepted nodes
    p, q            : per node, the probability of its token under the model and the drafter (q is 1 if chosen, not drawn)
    levels          : number of levels of the tree as built
    width           : the most children a node could have; None if no tree was requested
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
    """The energies of all drafts of a pass, their thresholds, and the number of accepted drafts."""

    energy: Values
    threshold: Values
    accepted: int


@dataclass(frozen=True)
class DecisionTrace:
    """The distributions that decided the k committed tokens of a pass.

    tokens : int32 [k, K], the candidates: the committed token, the draft, and the most probable ones of the two distributions
    p, q   : float32 [k, K], their probabilities under the model and under the distribution that the draft was drawn from; q is nan where
             nothing was drafted or this is not known, and 1 for a draft that was chosen, not drawn
    draft  : int32 [k], -1 = nothing was drafted; coin : float32 [k], the uniform number below p/q of an accepted draft; nan = none was used
    mass   : float32 [k], the sum of max(0, p - q): the probability that a draft from q is refused; nan as q
    """

    tokens: np.ndarray
    p: np.ndarray
    q: np.ndarray
    draft: np.ndarray
    coin: np.ndarray
    mass: np.ndarray


@dataclass(frozen=True)
class DeviationTrace:
    """Deviation of a relaxed rule's output from the model's distribution, in total variation distance.

    mean : over the run's measured tokens so far; latest : over this pass's tokens; strength : the relaxed rule's share in this pass's
    decisions, 0 to 1. nan: not measured
    """

    mean: float
    latest: float | None = None
    strength: float | None = None


@dataclass(slots=True)
class Trace:
    """Records of a Step. The first ten fields hold one value per committed token, or fewer: then the last tokens have none.
    Do not change a trace: it is not frozen only because that would make its creation several times slower, in every step.

    accepted : True if the token was a draft; verdict : STAYED, REFUSED or NEAR (engine/rules.py), for methods that repair
    accept_probability : of the draft; ratio : p/q of the draft, where drafts carry the distributions that they were drawn from
    entropy : of the distribution that the token was verified with, in nats
    top : the probability of that distribution's most probable token; None where a kernel decides without storing the distribution
    depth, parent : the token's level in the draft tree (0: after the accepted path) and its parent node
    energy, threshold : of the draft at the token's position
    """

    accepted: Values | None = None
    verdict: Values | None = None
    accept_probability: Values | None = None
    ratio: Values | None = None
    entropy: Values | None = None
    top: Values | None = None
    depth: Values | None = None
    parent: Values | None = None
    energy: Values | None = None
    threshold: Values | None = None
    tree: TreeTrace | None = None
    round: RoundTrace | None = None
    deviation: DeviationTrace | None = None
    decisions: DecisionTrace | None = None

    @property
    def known_fields(self) -> set[str]:
        """The names of the fields that are not None."""
        return {each.name for each in fields(self) if getattr(self, each.name) is not None}

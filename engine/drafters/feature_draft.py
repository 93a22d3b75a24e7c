"""What trees ask of a drafter that reads the model's features: the one-layer drafter of EAGLE, or random tables that take its place.

Paper: EAGLE, Li et al., arXiv 2401.15077: the drafter's row t reads the token x[t+1] beside the model's last hidden state f[t], predicts
the state f[t+1], and the model's own output layer makes of it the logits of x[t+2]. Mind the shift by one between token and feature.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from engine.core import Sequence


class FeatureGrowth(Protocol):
    """One run of a drafter. It owns a cache of the committed tokens and, on top, one of the nodes that were grown since.

    Both branches of a guidance pair are the drafter's own affair, as they are the backbone's: the same tokens go into both, and the
    logits come back guided. They come raw, that is without grammar, temperature and filters; `Sequence.law` makes a law of them.
    """

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """The newest committed tokens, in order; forgets the nodes of the cycle before.

        hidden : [branches, k, H], for each token the model's last hidden state in the row that predicted it: of a pass, row 0 and the rows
        of the accepted nodes. tokens : k, the accepted ones and the one behind them. A drafter must never keep rows that it computed
        from states of its own. The first call of a run brings the first token; what a drafter wants to know of the prompt it reads
        from the sequence at the start.
        Returns the guided logits [V] of the token behind the newest one.
        """
        ...

    def expand(self, parents: list[int], tokens: list[int]) -> Tensor:
        """Grows nodes, each behind an earlier one, in one pass: a node sees the committed tokens, its ancestors and itself.

        parents : for each node the number of its parent; nodes are numbered in the order in which they were grown since `root`, and -1 is
        the root. A node reads its token beside the drafter's own state of its parent.
        Returns the guided logits [k, V] of the tokens behind the nodes.
        """
        ...


class FeatureDraft(Protocol):
    """What a backbone's `drafter("feature_draft")` gives: weights, shared by all runs."""

    def start(self, sequence: Sequence) -> FeatureGrowth:
        """For one run; it ends with the run and needs no closing."""
        ...

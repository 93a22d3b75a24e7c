"""The number of drafts of a chain that a rule accepts in the mean, by enumeration, and the most that any exact rule can accept.

A rule that accepts a prefix x with probability a(x) commits it at least as often as it is drafted and accepted, Q(x) a(x). It is exact, so
this is at most P(x): no exact rule accepts a prefix of length k more often than the sum of min(P, Q) over all prefixes of that length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch

from engine.rules import block_chances
from research.exactness.rule_check import Target


@dataclass(frozen=True)
class AcceptedDrafts:
    """Mean numbers of accepted drafts: by speculative sampling token by token, by block verification, and the ceiling."""

    tokens: float
    block: float
    ceiling: float


def accepted_drafts(target: Target, drafter: Target, count: int) -> AcceptedDrafts:
    """Of chains of `count` drafts after the empty prefix, drawn from the drafter."""
    chains = torch.tensor(list(product(range(target.vocabulary), repeat=count)))
    p = torch.stack([target.after(chains[:, :k]) for k in range(count + 1)], 1)
    q = torch.stack([drafter.after(chains[:, :k]) for k in range(count)], 1)
    at = chains[..., None]
    probable, drafted = p[:, :-1].gather(2, at).squeeze(2).cumprod(1), q.gather(2, at).squeeze(2).cumprod(1)
    ratios = (p[:, :-1].gather(2, at) / q.gather(2, at)).squeeze(2).clamp(max=1).cumprod(1)
    reach = block_chances(p, q, chains)[1]
    whole = drafted[:, -1:]
    repeated = torch.tensor([float(target.vocabulary) ** (count - k) for k in range(1, count + 1)])  # chains with the same prefix
    ceiling = (torch.minimum(probable, drafted) / repeated).sum()
    return AcceptedDrafts(float((whole * ratios).sum()), float((whole * reach).sum()), float(ceiling))

"""A sequence that a backbone generated, with its hidden states: what drafters are trained on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class Recorded:
    """A sequence that the backbone generated.

    said   : its condition: word ids int64 [32], points float32 [1024, 6], token ids int64 [branches, P], or inputs [branches, P, H]
    tokens : int64 [L]
    hidden : float16 [branches, L, H], last hidden states; row i predicted token i
    """

    said: Tensor
    tokens: Tensor
    hidden: Tensor

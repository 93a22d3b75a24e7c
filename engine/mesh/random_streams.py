"""Random streams for drawing points. Each purpose has its own stream, independent of the others and of the numpy seeds that may have
been used to make the points."""

from __future__ import annotations

import numpy as np

KEEP, SURFACE, SAMPLE, COMPARE, WRAP = range(5)
_OURS = 0x466F7265746F6B656E  # "Foretoken"


def generator(purpose: int, seed: int = 0) -> np.random.Generator:
    """The stream of a purpose and a seed, which may be any integer."""
    return np.random.default_rng([_OURS, purpose, seed % 2**64])

"""Random numbers for drawing points. Every purpose has a stream of its own: what one draws must not follow what another drew, nor
what somebody drew with numpy's own seeds when the points were made."""

from __future__ import annotations

import numpy as np

KEEP, SURFACE, SAMPLE, COMPARE = range(4)
_OURS = 0x466F7265746F6B656E  # "Foretoken"


def generator(purpose: int, seed: int = 0) -> np.random.Generator:
    """The stream of a purpose and a seed, which may be any integer."""
    return np.random.default_rng([_OURS, purpose, seed % 2**64])

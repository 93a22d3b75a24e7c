"""Counter-based randomness: u(seed, stream, position, iteration, slot) is a pure function, so the order of calls does not matter.

The generator is SplitMix64 (Steele, Lea and Flood, 2014) over a mixed key: a counter is multiplied by the golden ratio, added
to the key and finalised. Results do not depend on the window, on how often a page polls, or on which other values are
requested. Each use has its own stream: the acceptance of a token must not share noise with its draw.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

DRAW, ACCEPT, RESIDUAL, INITIAL, DRAFTER, SCHEDULE = range(6)

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ONE, _TWO = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix(x: int) -> int:
    """The finaliser of SplitMix64 on a Python integer."""
    x = ((x ^ (x >> 30)) * _ONE) & _MASK
    x = ((x ^ (x >> 27)) * _TWO) & _MASK
    return x ^ (x >> 31)


def _mix_array(x: np.ndarray) -> np.ndarray:
    """The same on uint64 arrays, in place."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(_ONE)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_TWO)
    x ^= x >> np.uint64(31)
    return x


class Noise:
    """All randomness of one run. Uniforms are float64 in the open interval (0, 1); Gumbel rows are cached for the run."""

    def __init__(self, seed: int, vocabulary: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32):
        self.seed, self.vocabulary, self.device, self.dtype = seed, vocabulary, torch.device(device), dtype
        self._root = _mix((seed * _GOLDEN + 1) & _MASK)
        self._gumbel: dict[int, Tensor] = {}

    def _key(self, stream: int, iteration: int) -> int:
        return _mix((self._root + stream * _ONE + (iteration + 1) * _TWO) & _MASK)

    def uniform(self, stream: int, start: int, count: int, iteration: int, slot: int = 0) -> Tensor:
        """u for positions start .. start+count-1, float64 [count] on the run's device."""
        base = self._key(stream, iteration)
        if count <= 8:  # Python integers beat numpy's call overhead on short windows
            got = [_to_unit(_mix(_mix((base + (start + i + 1) * _GOLDEN) & _MASK) + slot & _MASK)) for i in range(count)]
            return torch.tensor(got, dtype=torch.float64, device=self.device)
        positions = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        bits = _mix_array(_mix_array(positions + np.uint64(base)) + np.uint64(slot))
        return torch.from_numpy(((bits >> np.uint64(12)) + 0.5) * 2.0**-52).to(self.device)

    def gumbel(self, start: int, count: int) -> Tensor:
        """Standard Gumbel noise of positions start .. start+count-1, [count, V]. The counter has no iteration: a position keeps its
        noise for the whole run. This couples draws and makes `match seed` possible."""
        missing = [i for i in range(start, start + count) if i not in self._gumbel]
        if missing:
            self._make(missing[0], max(missing[-1] + 1 - missing[0], 1 if count == 1 and self.vocabulary < 64 else 16))
        return torch.stack([self._gumbel[i] for i in range(start, start + count)])

    def _make(self, start: int, count: int) -> None:
        base = self._key(DRAW, -1)
        positions = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        keys = _mix_array(positions + np.uint64(base))
        slots = np.arange(1, self.vocabulary + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        bits = _mix_array(keys[:, None] + slots)
        unit = torch.from_numpy(((bits >> np.uint64(12)) + 0.5) * 2.0**-52)
        rows = -torch.log(-torch.log(unit))
        for i, row in enumerate(rows.to(self.device, self.dtype)):
            self._gumbel.setdefault(start + i, row)


def _to_unit(bits: int) -> float:
    """64 bits to a float64 in the open unit interval (the top 52 bits plus a half)."""
    return ((bits >> 12) + 0.5) * 2.0**-52

"""Counter-based randomness: u(seed, stream, position, iteration, slot) is a pure function, so the order of calls does not matter.

The generator is SplitMix64 (Steele, Lea and Flood, 2014) over a mixed key: a counter is multiplied by the golden ratio, added
to the key and finalised. Results do not depend on the window, on how often a page polls, or on which other values are
requested. Each use has its own stream: the acceptance of a token must not share noise with its draw.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from engine.dispatch.choice import choose
from engine.machine import widest_float
from engine.noise.kernel import GOLDEN, KEPT, MASK, ONE, TWO, gumbel, keys, mix, mix_array, uniform, unit

BELOW_ONE = 1 - 2**-24  # the largest float32 below 1
DRAW, ACCEPT, RESIDUAL, INITIAL, DRAFTER, SCHEDULE = range(6)


def is_made_there(device: torch.device, dtype: torch.dtype) -> bool:
    """True if a device computes its own random numbers, as a GPU does."""
    return choose(device, dtype).is_triton


def number(base: int, position: int, slot: int = 0) -> float:
    """The uniform number of a position, computed with Python integers."""
    return ((mix(mix((base + (position + 1) * GOLDEN) & MASK) + slot & MASK) >> 12) + 0.5) * 2.0**-52


class Noise:
    """All randomness of one run. Uniforms are float64 in (0, 1); the Gumbel rows that were used last are kept, up to `KEPT` bytes.

    root : the number that all keys derive from
    """

    def __init__(self, seed: int, vocabulary: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32):
        self.seed, self.vocabulary, self.device, self.dtype = seed, vocabulary, torch.device(device), dtype
        self._is_made_there = is_made_there(self.device, dtype)
        self.root = mix((seed * GOLDEN + 1) & MASK)
        self._gumbel: dict[int, Tensor] = {}  # by position, the newest last
        self._most = KEPT // (vocabulary * dtype.itemsize)

    def key(self, stream: int, iteration: int) -> int:
        """The base of a stream in an iteration, 64 bits."""
        return mix((self.root + stream * ONE + (iteration + 1) * TWO) & MASK)

    @cached_property
    def base(self) -> int:
        """The base of the positions' own noise, for kernels that compute it where they need it; see engine/noise/kernel.py."""
        return self.key(DRAW, -1)

    def uniform(self, stream: int, start: int, count: int, iteration: int, slot: int = 0) -> Tensor:
        """u for positions start .. start+count-1, [count] on the run's device, in its widest type."""
        if self._is_made_there:
            return uniform(self.key(stream, iteration), torch.arange(start, start + count, device=self.device), slot)
        u = self.host_uniform(stream, start, count, iteration, slot)
        narrow = widest_float(self.device) == torch.float32
        return (u.float().clamp_(max=BELOW_ONE) if narrow else u).to(self.device)

    def host_uniform(self, stream: int, start: int, count: int, iteration: int, slot: int = 0) -> Tensor:
        """u for positions start .. start+count-1, float64 [count] on the host, for code that sends several to the device at once."""
        base = self.key(stream, iteration)
        if count <= 8:  # Python integers beat numpy's call overhead on short windows
            return torch.tensor([number(base, start + i, slot) for i in range(count)], dtype=torch.float64)
        positions = np.arange(start, start + count)
        return torch.from_numpy(unit(mix_array(keys(base, positions) + np.uint64(slot))))

    def host_uniforms(self, streams: tuple[int, ...], positions: Tensor, iteration: int, slots: int | Tensor = 0) -> Tensor:
        """u of several streams at int64 positions [N] on the host: float64 [streams, N] there. slots : of each position, int64 [N]"""
        bases = np.array([[self.key(stream, iteration)] for stream in streams], dtype=np.uint64)
        return torch.from_numpy(unit(mix_array(keys(bases, positions.numpy()) + np.asarray(slots, dtype=np.uint64))))

    def number(self, stream: int, position: int, iteration: int, slot: int = 0) -> float:
        """The uniform number of one position."""
        return number(self.key(stream, iteration), position, slot)

    def gumbel_row(self, position: int) -> np.ndarray:
        """The Gumbel noise of one position [V], on the host."""
        if position not in self._gumbel:
            self.gumbel(position, 1)
        return self._gumbel[position].numpy()

    def gumbel(self, start: int, count: int) -> Tensor:
        """Standard Gumbel noise of positions start .. start+count-1, [count, V]. The counter has no iteration: a position keeps its
        noise for the whole run. This couples draws and makes `match seed` possible. On a GPU it is computed there at each request."""
        if self._is_made_there:
            return gumbel(self.base, torch.arange(start, start + count, device=self.device), self.vocabulary, self.dtype)
        missing = [i for i in range(start, start + count) if i not in self._gumbel]
        if missing:
            self._make(missing[0], max(missing[-1] + 1 - missing[0], 1 if count == 1 and self.vocabulary < 64 else 16))
        rows = {i: self._gumbel.pop(i) for i in range(start, start + count)}
        self._gumbel |= rows
        for i in list(self._gumbel)[: max(0, len(self._gumbel) - max(self._most, count))]:
            del self._gumbel[i]
        return torch.stack(list(rows.values()))

    def _make(self, start: int, count: int) -> None:
        for i, row in enumerate(gumbel(self.base, torch.arange(start, start + count), self.vocabulary, self.dtype)):
            self._gumbel.setdefault(start + i, row.to(self.device, copy=True))  # a view would keep all of them

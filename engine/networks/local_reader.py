"""Local conditioning: what the model reads of the cloud around the newest vertex, and of the parts that no face covers yet.

A few condition vectors for a whole cloud cannot hold where the surface runs near the vertex being written. So each row of a sequence gets a
vector of its own: of the points nearest to the newest vertex, of the nearest ones that no face covers yet, and of how many uncovered
points each block holds. All three are functions of the cloud and of the tokens before (`engine/mesh/coverage.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.mesh.coverage import Coverage, CoverageState

NEAR = 12  # points of each kind: nearest, and nearest uncovered
READ = 1024  # points of a cloud that are looked at: the first ones
NUMBERS = 12  # of a point: see `_described`
PER_AXIS, CELLS = 8, 16
BLOCKS = PER_AXIS**3
FINE, COARSE = 4.0, 32.0  # cells: the units of places


class Surroundings(NamedTuple):
    """What rows read.

    near  : float32 [S, 2 * NEAR, NUMBERS]: the nearest points, then the nearest uncovered ones
    empty : float32 [S, BLOCKS]: the logarithm of 1 + uncovered points of each block
    """

    near: Tensor
    empty: Tensor


class Surface:
    """A cloud as local conditioning reads it: the machine of its coverage, and the surroundings of states.

    points : float32 [N, 6] in the model's cube: places and unit normals (zeros where they are not known)
    """

    def __init__(self, points: np.ndarray):
        points = np.asarray(points[:READ], np.float32)
        self.coverage = Coverage(points[:, :3])
        self._cells, self._normals = torch.from_numpy(self.coverage.cells), torch.from_numpy(points[:, 3:].copy())
        block = (self._cells + 0.5).div(CELLS).floor().clamp(0, PER_AXIS - 1).long()
        self._blocks = (block[:, 0] * PER_AXIS + block[:, 1]) * PER_AXIS + block[:, 2]

    def around(self, states: Sequence[CoverageState]) -> Surroundings:
        """The surroundings of some states."""
        covered = torch.from_numpy(np.stack([s.covered for s in states]))
        known = torch.tensor([s.newest is not None for s in states])
        newest = torch.from_numpy(np.stack([s.newest if s.newest is not None else np.zeros(3, np.float32) for s in states]))
        squared = torch.cdist(newest, self._cells, compute_mode="donot_use_mm_for_euclid_dist")
        count = min(NEAR, len(self._cells))
        parts = []
        for distances in (squared, squared.masked_fill(covered, torch.inf)):
            best, chosen = distances.topk(count, largest=False)
            exists = best.isfinite() & known[:, None]
            parts.append(F.pad(self._described(newest, covered, chosen, best, exists), (0, 0, 0, NEAR - count)))
        empty = torch.zeros(len(states), BLOCKS).index_add_(1, self._blocks, (~covered).float())
        return Surroundings(torch.cat(parts, 1), torch.log1p(empty))

    def _described(self, newest: Tensor, covered: Tensor, chosen: Tensor, distance: Tensor, exists: Tensor) -> Tensor:
        """The numbers of chosen points int64 [S, K]: place in fine and in coarse units, distance, normal, 1 if covered, 1 if it exists."""
        place = self._cells[chosen] - newest[:, None]
        numbers = torch.cat(
            [
                (place / FINE).clamp(-2, 2),
                place / COARSE,
                torch.log1p(distance.nan_to_num(posinf=0.0))[..., None],
                self._normals[chosen],
                covered.gather(1, chosen).float()[..., None],
                torch.ones_like(distance)[..., None],
            ],
            -1,
        )
        return numbers * exists[..., None]


class LocalReader(nn.Module):
    """Surroundings -> vectors that are added to the inputs of rows."""

    def __init__(self, width: int, inner: int = 64):
        super().__init__()
        self.first, self.second = nn.Linear(NUMBERS, inner), nn.Linear(inner, inner)
        self.mixed = nn.Linear(4 * inner, width)
        self.empty = nn.Linear(BLOCKS, width, bias=False)

    def begin(self) -> None:
        """Adds nothing at first, so that weights that were trained without it go on with it."""
        for layer in (self.mixed, self.empty):
            nn.init.zeros_(layer.weight)

    def forward(self, surroundings: Surroundings) -> Tensor:
        """Surroundings of [..., S] states -> [..., S, width]."""
        x = F.gelu(self.second(F.gelu(self.first(surroundings.near))))
        nearest, uncovered = x.unflatten(-2, (2, NEAR)).unbind(-3)
        pooled = torch.cat([nearest.amax(-2), nearest.mean(-2), uncovered.amax(-2), uncovered.mean(-2)], -1)
        return self.mixed(pooled) + self.empty(surroundings.empty)


class LocalRows:
    """What the rows of sequences over one cloud get in addition, as a state machine of pure functions of the tokens.

    points : [N, 6] in the model's cube
    """

    def __init__(self, reader: LocalReader, points: Tensor):
        self._reader, self._surface = reader, Surface(points.float().cpu().numpy())
        self.start, self.next = self._surface.coverage.start, self._surface.coverage.next

    def along(self, tokens: Sequence[int], begin: CoverageState | None = None) -> list[CoverageState]:
        """The state before the first token, by default that of an empty sequence, and the states after each of them."""
        states = [self.start if begin is None else begin]
        for token in tokens:
            states.append(self.next(states[-1], token))
        return states

    def around(self, states: Sequence[CoverageState]) -> Surroundings:
        """The surroundings of states, on the host."""
        return self._surface.around(states)

    @torch.no_grad()
    def rows(self, states: Sequence[CoverageState]) -> Tensor:
        """The vectors of rows whose token led to these states, [S, width]."""
        weight = self._reader.mixed.weight
        return self._reader(Surroundings(*(x.to(weight) for x in self.around(states))))

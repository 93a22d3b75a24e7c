"""A small classifier of point clouds: histograms of an upright cloud, and a perceptron over them.

The histograms are of density in front, side and top views and by height and distance from the middle axis, and of the
directions of the normals at each height. They need a few thousand operations per point, so the network learns within minutes on one core.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.mesh.frame import SIDE

POINTS = 1024  # of a cloud
GRID = 16  # cells along a side of the three views
LEVELS, RINGS = 16, 6  # by height, and by distance from the middle axis
FEATURES = 3 * GRID * GRID + LEVELS * (RINGS + 6) + 4


def cells(values: Tensor, count: int) -> Tensor:
    """The cells 0..count-1 of values in 0..1."""
    return (values * count).long().clamp(0, count - 1)


def density(index: Tensor, bins: int, weights: Tensor | None = None) -> Tensor:
    """The share of the points, or of their weights, in each bin: index int64 [B, N] -> [B, bins]."""
    batch, count = index.shape
    flat = (index + torch.arange(batch)[:, None] * bins).reshape(-1)
    return torch.bincount(flat, None if weights is None else weights.reshape(-1), batch * bins).view(batch, bins).float() / count


def features(clouds: Tensor) -> Tensor:
    """The inputs [B, FEATURES] of clouds [B, N, 6] with +Y up, centred in a box of longest side 1.9; unknown normals are zeros."""
    places, normals = clouds[..., :3], clouds[..., 3:]
    unit = (places / SIDE + 0.5).clamp(0, 1)  # proportions are kept
    x, y, z = (cells(unit[..., axis], GRID) for axis in range(3))
    views = torch.cat([density(a * GRID + b, GRID * GRID) for a, b in ((x, y), (z, y), (x, z))], -1)
    low, high = places.amin(1, keepdim=True), places.amax(1, keepdim=True)
    size = (high - low).clamp(min=1e-6)
    within = (places - low) / size  # each side from 0 to 1
    level = cells(within[..., 1], LEVELS)
    radius = ((within[..., [0, 2]] - 0.5) * 2).norm(dim=-1) / 2**0.5
    rings = density(level * RINGS + cells(radius, RINGS), LEVELS * RINGS)
    by_level = [density(level, LEVELS, (part > 0.7).float()) for part in (normals[..., 1], -normals[..., 1])]
    by_level += [
        density(level, LEVELS, part) for part in (normals[..., 1].abs(), (within[..., 0] - 0.5).abs(), (within[..., 2] - 0.5).abs())
    ]
    by_level.append(density(level, LEVELS))
    known = (normals.square().sum(-1) > 0.25).float().mean(1, keepdim=True)
    return torch.cat([torch.cat([views, rings, *by_level], -1).sqrt() * 4, size[:, 0], known], -1)


class CloudNetwork(nn.Module):
    """Maps clouds [B, N, 6] with +Y up to logits [B, answers], whatever the order of the points."""

    def __init__(self, answers: int, width: int = 192):
        super().__init__()
        self.settings = {"answers": answers, "width": width}
        self.first, self.second = nn.Linear(FEATURES, width), nn.Linear(width, width // 2)
        self.answer = nn.Linear(width // 2, answers)

    def forward(self, clouds: Tensor) -> Tensor:
        """Logits [B, answers] of clouds."""
        return self.answers(features(clouds))

    def answers(self, x: Tensor) -> Tensor:
        """Logits [..., answers] of features [..., FEATURES]."""
        return self.answer(F.gelu(self.second(F.gelu(self.first(x)))))


def subsample(points: np.ndarray) -> Tensor:
    """A random sample of a cloud [N, 6], float32 [POINTS, 6], the same in every call; points repeat if there are fewer."""
    have = len(points)
    chosen = np.random.default_rng(0).permutation(have)[:POINTS] if have >= POINTS else np.arange(POINTS) % have
    return torch.from_numpy(np.asarray(points, np.float32)[chosen])

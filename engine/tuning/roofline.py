"""Computed milliseconds of passes on other machines, by a roofline of bandwidth, products and launches.

A pass over R rows launches its kernels, reads every weight once, and multiplies each row by them:

    t(R) = launches + max(bytes of weights / bandwidth, R * operations of a row / rate of products)

The figures of machines are the vendors', those of models their published shapes, or the shape of a loaded one; `fitted` takes the same
three terms from the measured curve of this machine. Keys and values, the verdict and the host are left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

from torch import nn

from engine.core import Backbone
from engine.methods import find
from engine.networks.mesh_decoder import MeshBlock
from engine.networks.transformer import TransformerBlock
from engine.tuning.curve import CostCurve
from engine.tuning.expected import Expected

SHARE = 0.87  # of the bandwidth that products with few rows reach
LAUNCH = 2e-6  # seconds of a node of a graph that computes little, an estimate
BRANCHES = 2  # rows of a pass for each token under classifier-free guidance
DRAFTER = "feature_draft"  # capability of models with a drafter of one layer
BYTES, OPERATIONS = 2, 2  # of a parameter in bfloat16; of a parameter and a row
HOSTED, OTHERS = 13, 22  # nodes of a pass per layer of a published decoder, and besides its layers (research/bench/nodes.py)
OWN: Mapping[type, int] = {TransformerBlock: 35, MeshBlock: 26}  # nodes per layer of our own models


@dataclass(frozen=True)
class Accelerator:
    """Published figures: bytes per second, dense bfloat16 operations per second, and estimated seconds of a kernel that computes little."""

    bandwidth: float
    products: float
    launch: float = LAUNCH


@dataclass(frozen=True)
class ModelSize:
    """Parameters of the linear layers that a pass reads, layers, nodes of a layer in its graph (docs/kernels.md), and rows per token."""

    parameters: float
    layers: int
    nodes_of_layer: int = HOSTED
    branches: int = BRANCHES

    @property
    def nodes(self) -> int:
        """Nodes of the graph of a pass."""
        return OTHERS + self.layers * self.nodes_of_layer


ACCELERATORS: Mapping[str, Accelerator] = {
    "H100": Accelerator(3.35e12, 989e12),
    "H200": Accelerator(4.8e12, 989e12),
    "RTX 4090": Accelerator(1.01e12, 165e12),
    "M4 Max": Accelerator(546e9, 34e12, 5e-6),  # 40 GPU cores; Apple publishes the bandwidth only, the others are estimates
}
SIZES: Mapping[str, ModelSize] = {  # Janus-Pro 1B and 7B, Emu3.5
    "1B": ModelSize(1.27e9, 24),
    "7B": ModelSize(6.14e9, 30),
    "34B": ModelSize(31.9e9, 64),
}


@dataclass(frozen=True)
class Roofline:
    """Milliseconds of launches, of reading the weights, and of the products of a row."""

    launches: float
    weights: float
    row: float

    def at(self, rows: float) -> float:
        """Milliseconds of a pass over this many rows."""
        return self.launches + max(self.weights, rows * self.row)

    def ratios(self, curve: CostCurve) -> list[float]:
        """The measured time of each point over the computed one."""
        return [time / self.at(rows) for rows, time in curve.points]

    def speedup(self, tokens: float, rows: float, drafts: float) -> float:
        """Speed-up over plain decoding. tokens, rows : of a pass, on average; drafts : passes of one row that it takes
        besides, in passes of the whole model"""
        return tokens * self.at(1) / (self.at(rows) + drafts * self.at(1))


def size_of(backbone: Backbone) -> ModelSize:
    """The size of a loaded model."""
    return size_of_trunk(backbone.draft_trunk, backbone.vocabulary, 1 if backbone.sampling.guidance == 1 else BRANCHES)


def size_of_trunk(trunk: nn.Module, vocabulary: int, branches: int) -> ModelSize:
    """The size of a decoder: the linear layers of its blocks and its output layer."""
    blocks = next(each for each in trunk.children() if isinstance(each, nn.ModuleList))
    layers = {name: each for name, each in blocks.named_modules() if hasattr(each, "in_features")}
    width = list(layers.values())[-1].out_features
    read = sum(each.in_features * each.out_features for name, each in layers.items() if not name.endswith(".key_value"))  # once per prompt
    return ModelSize(read + width * vocabulary, len(blocks), OWN.get(type(blocks[0]), HOSTED), branches)


def speedups(counts: Expected, sizes: Mapping[str, ModelSize]) -> dict[tuple[str, str], float]:
    """Computed speed-ups over plain decoding, by accelerator and size, of a method with these averages per pass; a pass of a drafter counts
    as one layer, other draft passes, which are over a smaller picture, as passes of the model"""
    is_drafter = DRAFTER in find(counts.name)[0].needs
    return {
        (where, name): computed(accelerator, size).speedup(
            counts.tokens, counts.rows, counts.draft_passes / (size.layers if is_drafter else 1)
        )
        for where, accelerator in ACCELERATORS.items()
        for name, size in sizes.items()
    }


def computed(accelerator: Accelerator, size: ModelSize) -> Roofline:
    """The roofline of a model in bfloat16."""
    read = size.parameters * BYTES / (SHARE * accelerator.bandwidth)
    product = size.branches * size.parameters * OPERATIONS / accelerator.products
    return Roofline(1e3 * size.nodes * accelerator.launch, 1e3 * read, 1e3 * product)


def fitted(curve: CostCurve) -> tuple[Roofline, float]:
    """The roofline nearest to a measured curve of two points or more, and the greatest ratio between the two.

    Each candidate has a level for the first points and a line through two, scaled so that it lies as far above the curve as below.
    """
    candidates = []
    for (few, short), (many, long) in combinations(curve.points, 2):
        row = max(0.0, (long - short) / (many - few))
        for _, end in curve.points:
            level = math.sqrt(curve.points[0][1] * end)
            launches = min(level, max(0.0, short - few * row))
            ratios = Roofline(launches, level - launches, row).ratios(curve)
            middle = math.sqrt(min(ratios) * max(ratios))
            candidates.append((max(ratios) / middle, Roofline(middle * launches, middle * (level - launches), middle * row)))
    deviation, nearest = min(candidates, key=itemgetter(0))
    return nearest, deviation

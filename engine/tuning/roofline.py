"""Computed milliseconds of passes on other machines, by a roofline of bandwidth, products and launches.

A pass over R rows launches its kernels, reads every weight once, and multiplies each row by them:

    t(R) = launches + max(bytes of weights / bandwidth, R * operations of a row / rate of products)

The figures of machines are the vendors', those of models their published shapes; `fitted` takes the same three terms from the measured
curve of this machine. Keys and values, the verdict and the host are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.core import Method
from engine.tuning.curve import CostCurve

SHARE = 0.87  # of the bandwidth that products with few rows reach
LAUNCH = 2e-6  # seconds of a node of a graph that computes little, an estimate
BRANCHES = 2  # rows of a pass for each token under classifier-free guidance
DRAFTER = "feature_draft"  # capability of models with a drafter of one layer
BYTES, OPERATIONS = 2, 2  # of a parameter in bfloat16; of a parameter and a row


@dataclass(frozen=True)
class Accelerator:
    """Published figures: bytes per second, dense bfloat16 operations per second, and estimated seconds of a kernel that computes little."""

    bandwidth: float
    products: float
    launch: float = LAUNCH


@dataclass(frozen=True)
class ModelSize:
    """Parameters of the linear layers that a pass reads, nodes of its graph (docs/kernels.md), and layers."""

    parameters: float
    nodes: int
    layers: int


ACCELERATORS: Mapping[str, Accelerator] = {
    "H100": Accelerator(3.35e12, 989e12),
    "H200": Accelerator(4.8e12, 989e12),
    "RTX 4090": Accelerator(1.01e12, 165e12),
    "M4 Max": Accelerator(546e9, 34e12, 5e-6),  # 40 GPU cores; Apple publishes the bandwidth only, the others are estimates
}
SIZES: Mapping[str, ModelSize] = {  # Janus-Pro 1B and 7B, Emu3.5
    "1B": ModelSize(1.27e9, 334, 24),
    "7B": ModelSize(6.14e9, 412, 30),
    "34B": ModelSize(31.9e9, 854, 64),
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

    def speedup(self, tokens: float, rows: float, drafts: float) -> float:
        """Speed-up over plain decoding. tokens, rows : of a pass, on average; drafts : passes of one row that it takes
        besides, in passes of the whole model"""
        return tokens * self.at(1) / (self.at(rows) + drafts * self.at(1))


def speedups(method: Method, totals: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Computed speed-ups of a run over plain decoding, by accelerator and size. totals : of the run; a pass of a drafter counts as
    one layer, other draft passes, which are over a smaller picture, as passes of the model"""
    passes = totals["forwards"]
    tokens, rows, drafts = totals["tokens"] / passes, 1 + totals["drafted"] / passes, totals["draft_forwards"] / passes
    return {
        (where, name): computed(accelerator, size).speedup(tokens, rows, drafts / size.layers if DRAFTER in method.needs else drafts)
        for where, accelerator in ACCELERATORS.items()
        for name, size in SIZES.items()
    }


def computed(accelerator: Accelerator, size: ModelSize) -> Roofline:
    """The roofline of a model in bfloat16 with guidance."""
    read = size.parameters * BYTES / (SHARE * accelerator.bandwidth)
    product = BRANCHES * size.parameters * OPERATIONS / accelerator.products
    return Roofline(1e3 * size.nodes * accelerator.launch, 1e3 * read, 1e3 * product)


def fitted(curve: CostCurve) -> Roofline:
    """The roofline through three points of a measured curve: its first is the time of one row; the widest and the one nearest to an eighth
    of it give the slope. The other points test the formula."""
    (_, plain), *others, (most, longest) = curve.points
    middle, time = min(others, key=lambda point: abs(point[0] - most / 8))
    row = max(0.0, (longest - time) / (most - middle))
    launches = min(plain - row, max(0.0, longest - most * row))
    return Roofline(launches, plain - launches, row)

"""The chooser of another machine and model, for which speed-ups are computed: one for results, Bench and Lab. Its script offers the places
that a value names; the panel's own script draws what is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engine.backbones import lowpoly
from engine.backbones.trained import TrainedBackbone
from engine.core import Backbone
from engine.mesh.bpt_tokens import BPT
from engine.tuning.expected import Expected
from engine.tuning.roofline import ACCELERATORS, BRANCHES, SIZES, ModelSize, size_of, size_of_trunk, speedups

MACHINES = {"H100": "an H100", "H200": "an H200", "RTX 4090": "an RTX 4090", "M4 Max": "an M4 Max"}
TEMPLATE = """
  <div class="ft-elsewhere" style="visibility: hidden">
    <label>Speed-up on <select class="ft-control"><option value="">this machine</option></select></label>
    <details><summary>How it is computed</summary><p>A computed pass over R rows takes its launches and the longer of two
    times: reading all weights once at 87 % of the published bandwidth, or R times the products of a row at the published rate, in bfloat16.
    A small model's pass is nearly all launches, so there rows cost next to nothing. Tokens, rows and passes of the drafter are
    counted here; another model may accept other shares. Keys and values, the verdict and the host are left out.</p></details></div>
"""


def sizes(backbone: Backbone) -> dict[str, ModelSize]:
    """Sizes by name: the model's own if it is loaded, then published ones."""
    own = {backbone.name: size_of(backbone)} if isinstance(backbone, TrainedBackbone) else {}  # else a saved run's
    return {**own, **published(1 if backbone.sampling.guidance == 1 else BRANCHES)}


def of_recorded_meshes() -> dict[str, ModelSize]:
    """Sizes by name: lowpoly's, which the recorded tables are of, then published ones."""
    return {lowpoly.Lowpoly.name: size_of_trunk(lowpoly.untrained(), BPT.vocabulary, branches=1), **published(1)}


def published(branches: int = BRANCHES) -> dict[str, ModelSize]:
    """Published sizes by name."""
    return {f"a {name} model": replace(size, branches=branches) for name, size in SIZES.items()}


def places(models: Mapping[str, ModelSize]) -> list[str]:
    """Names of the places, one for each machine and model."""
    return [f"{MACHINES[machine]} with {name}" for machine in ACCELERATORS for name in models]


def ratios(counts: Expected, models: Mapping[str, ModelSize]) -> list[float]:
    """Computed speed-ups at the places."""
    return [round(ratio, 3) for ratio in speedups(counts, models).values()]

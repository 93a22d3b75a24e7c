"""Decodes several seeds together and chooses the one whose mesh is nearest to its input.

Each seed gives a different mesh of the same cloud, and most inputs have seeds that fail. The distance to the input shows which ones,
without a ground truth. Decoded together, eight meshes cost little more than one (`decode_together`). The meshes of all
seeds together follow the model's distribution; the chosen one does not, because it is the best of several.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.backbones.lowpoly import Lowpoly, Mesh
from engine.backbones.lowpoly_together import decode_together
from engine.core import PLAIN, VERIFY, KnobArray, Knobs, Method, Prompt
from engine.errors import BadKnob, BadPrompt
from engine.mesh.distance import distance

MOST = 64  # seeds per input; each is a row of a pass
SEEDS = 2**63  # number of possible seeds


@dataclass(frozen=True)
class TriedSeed:
    """A seed and its mesh. distances : the result of `distance` to the points of the input"""

    seed: int
    mesh: Mesh
    distances: Mapping[str, Any]

    @property
    def chamfer(self) -> float | None:
        """The chamfer distance; None if the mesh has no face."""
        return self.distances["chamfer"]


def try_seeds(backbone: Lowpoly, prompt: Prompt, count: int) -> list[TriedSeed]:
    """Decodes `count` seeds from the prompt's seed on, plainly and together, and compares each mesh with its points.

    Raises BadPrompt for too few points, an impossible budget, or no such seeds.
    """
    if prompt.seed + count > SEEDS:
        raise BadPrompt(f"There are no {count} seeds from {prompt.seed} on. Choose a smaller --seed.")
    prompts = [replace(prompt, seed=prompt.seed + i) for i in range(count)]
    tokens = decode_together(backbone, prompts)
    meshes = [backbone.render(each, list(range(len(each))), True) for each in tokens]
    return [TriedSeed(p.seed, m, distance((m.vertices, m.faces), p.points.numpy())) for p, m in zip(prompts, meshes, strict=True)]


def nearest(tried: Sequence[TriedSeed]) -> TriedSeed:
    """The seed with the nearest mesh; the first if several are equal or none has a face."""
    return min(tried, key=lambda each: math.inf if each.chamfer is None else each.chamfer)


def seed_knobs(method: Method, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs with which a method makes the mesh that plain decoding makes of a seed: with `match seed`, where it has that mode.
    Raises BadKnob for a method or knobs that draw others."""
    values = dict(knobs)
    if VERIFY.name in {k.name for k in method.knobs}:
        values = {VERIFY.name: "match seed"} | values
        seen = KnobArray(method.knobs, values).read()
        if seen[VERIFY.name] == "match seed" and method.exact(Knobs(seen)):
            return values
    elif method.name == PLAIN:
        return values
    raise BadKnob(
        f"{method.name} draws another mesh of a seed than plain decoding, which chooses the seed. Leave --best-of out, "
        "or take an exact method with --verify match-seed."
    )

"""Trains the judge of meshes: `launch.py train mesh-judge --preset cpu|gpu`.

Each step draws new shapes of all families, upright, facing any way, and a cloud of each. Some are coarse (corners moved to a lattice, faces
missing), as a generated mesh may be, and half of the clouds are degraded. It never sees a generated mesh. The two boxes of parameters of
each family are held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor

from engine.mesh.frame import centre
from engine.mesh.rotation import rotation
from engine.recognition.network import POINTS, features
from research import mesh_judge
from research.mesh_judge import OTHER, MeshJudge
from research.train.cloud_lessons import CloudRecipe
from research.train.decision import Measure
from research.train.loop import RecipeOptions
from research.worlds.families import FAMILIES
from research.worlds.families.family import MeshShape
from research.worlds.lowpoly_shapes import degrade, family_of, in_boxes, sample_points, stretch

DECIDES = Measure("right", higher=True)
NAMES = tuple(FAMILIES)
SHARE = 4  # assemblies are drawn as often as this many other families
COARSE, LOOSE, DEGRADED = 0.3, 0.3, 0.5  # shares of the shapes
LATTICE = (24, 64)  # cells along the longest side of a coarse shape
HELD_OUT = 196  # shapes


def shapes(rng: Generator, count: int, held_out: bool = False) -> Iterator[MeshShape]:
    """Yields shapes outside the held-out boxes, of families drawn at random; or inside them, family by family."""
    names = [*NAMES, *[OTHER] * (0 if held_out else SHARE - 1)]
    for i in range(count):
        family = family_of(names[i % len(names) if held_out else rng.integers(len(names))])
        shape = family(rng)
        while in_boxes(shape) != held_out:
            shape = family(rng)
        yield shape


def coarsen(shape: MeshShape, rng: Generator) -> MeshShape:
    """Returns a shape with its corners moved to a lattice and up to a fifth of its polygons removed."""
    cell = float(np.ptp(shape.vertices, axis=0).max()) / rng.uniform(*LATTICE)
    is_kept = rng.random(len(shape.polygons)) >= rng.uniform(0, 0.2)
    is_kept[rng.integers(len(is_kept))] = True
    rough = np.round(shape.vertices / cell + rng.normal(0, 0.3, shape.vertices.shape)) * cell
    return replace(shape, vertices=rough, polygons=shape.polygons[is_kept], labels=shape.labels[is_kept])


def cloud_of(shape: MeshShape, rng: Generator) -> np.ndarray:
    """Returns a cloud float32 [POINTS, 6] of a shape, upright, from any side, centred in its box."""
    one = stretch(shape, rng)
    if rng.random() < COARSE:
        rough = coarsen(one, rng)
        corners = rough.vertices[rough.faces]
        flat = not np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).any()
        one = one if flat else rough
    degrees = rng.uniform(0, 360) if rng.random() < LOOSE else 90.0 * rng.integers(4)
    cloud = sample_points(one.vertices @ rotation(degrees).T, one.faces, POINTS, rng)
    return centre(degrade(cloud, rng) if rng.random() < DEGRADED else cloud).astype(np.float32)


def lesson(number: int, size: int) -> tuple[Tensor, Tensor]:
    """Returns the features [size, FEATURES] of clouds and their families, [size]."""
    rng = Generator(PCG64([23, number]))
    batch = list(shapes(rng, size))
    clouds = torch.from_numpy(np.stack([cloud_of(s, rng) for s in batch]))
    return features(clouds), torch.tensor([NAMES.index(s.family) for s in batch])


def held_out_numbers(judge: MeshJudge) -> dict[str, Any]:
    """Returns the share of held-out shapes whose family is named, sampled cleanly and degraded, and the families below 90 %."""
    numbers: dict[str, Any] = {}
    for label, spoil in (("right", False), ("right_degraded", True)):
        by_family: dict[str, list[bool]] = {}
        for i, shape in enumerate(shapes(Generator(PCG64(24)), HELD_OUT, held_out=True)):
            rng = Generator(PCG64([25, i]))
            cloud = sample_points(shape.vertices, shape.faces, 4096, rng)
            names = judge.name(judge.chances(degrade(cloud, rng) if spoil else cloud))
            by_family.setdefault(shape.family, []).append(names == shape.family)
        numbers[label] = round(float(np.mean([right for answers in by_family.values() for right in answers])), 4)
        if not spoil:
            numbers["below_90"] = {name: round(float(np.mean(a)), 3) for name, a in by_family.items() if np.mean(a) < 0.9}
    return numbers


def main(options: RecipeOptions) -> None:
    """Trains, resumes or exports."""
    CloudRecipe(
        "mesh-judge", mesh_judge.FOLDER, lambda: mesh_judge.load().network, len(NAMES), lesson,
        lambda network: held_out_numbers(MeshJudge(NAMES, network)), DECIDES,
        "research/worlds/lowpoly_shapes.py, all families; never a generated mesh. Held out: two boxes of parameters per family.",
        known={"names": list(NAMES)},
    ).train(options)  # fmt: skip

"""Trains the network that says which way is up: `launch.py train upright --preset cpu|gpu`.

Each step draws new shapes of the trained families, assemblies among them, and a cloud of each in one of six orientations: turned about the
vertical by any angle or by quarter turns, some tilted by a few degrees, half degraded as scans are, some without normals. A third stand
on a tile or next to another shape, or are tiles. The boxes and the two families that lowpoly never sees are held out. An answer is right
if the shape, stood on that axis, looks the same as upright.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor

from engine.recognition import up
from engine.recognition.network import FEATURES, POINTS, features
from engine.recognition.up import Upright, orientations
from research.train.cloud_lessons import CloudRecipe
from research.train.decision import Measure
from research.train.loop import RecipeOptions
from research.worlds.arrangements import arrange
from research.worlds.lowpoly_shapes import AXES, MeshShape, alike_up, held_out_shapes, orient, sample_points, training_shapes

DECIDES = Measure("right_boxes", higher=True)
HELD_OUT = {"boxes": 188, "families": 32}  # shapes
LOOSE, TILTED, DEGRADED, ARRANGED = 0.5, 0.3, 0.5, 0.35  # shares of the clouds


def lesson(number: int, size: int) -> tuple[Tensor, Tensor]:
    """Returns the features [size, 6, FEATURES] of clouds stood on each of their axes, and the axis that is up, [size]."""
    rng = Generator(PCG64([21, number]))
    single = list(training_shapes((1 << 43) + number * size, size))
    shapes = [arrange(s, single[i - 1], rng) if rng.random() < ARRANGED else s for i, s in enumerate(single)]
    clouds, axes = zip(*(orient(s, rng, POINTS, DEGRADED, LOOSE, TILTED) for s in shapes), strict=True)
    stands = orientations(torch.from_numpy(np.stack(clouds)), (number % 4,))
    return features(stands.flatten(0, 2)).view(size, len(AXES), FEATURES), torch.tensor(axes)


def is_right(judge: Upright, shape: MeshShape, seed: int) -> bool:
    """Returns True if a cleanly sampled shape stands upright on the predicted axis; the same in all six orientations."""
    cloud = sample_points(shape.vertices, shape.faces, 4096, np.random.default_rng(seed))
    return int(judge.chances(cloud).argmax()) in alike_up(shape)


def held_out_numbers(judge: Upright) -> dict[str, Any]:
    """Returns the share of right answers in held-out boxes and on held-out families, and the families below 95 %."""
    numbers: dict[str, Any] = {}
    for kind, count in HELD_OUT.items():
        by_family: dict[str, list[bool]] = {}
        for i, shape in enumerate(held_out_shapes(count, kind)):
            by_family.setdefault(shape.family, []).append(is_right(judge, shape, i))
        numbers[f"right_{kind}"] = round(float(np.mean([share for answers in by_family.values() for share in answers])), 4)
        weak = {name: round(float(np.mean(answers)), 3) for name, answers in by_family.items() if np.mean(answers) < 0.95}
        numbers[f"below_95_{kind}"] = weak
    return numbers


def main(options: RecipeOptions) -> None:
    """Trains, resumes or exports."""
    CloudRecipe(
        "upright", up.FOLDER, lambda: up.load().network, 1, lesson, lambda network: held_out_numbers(Upright(network)), DECIDES,
        "research/worlds/lowpoly_shapes.py; two boxes of parameters per family and two families are held out.",
        read=lambda answers: answers[..., 0],
    ).train(options)  # fmt: skip

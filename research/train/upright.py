"""Trains the network that says which way is up: `launch.py train upright --preset cpu|gpu`.

Each step draws new shapes of the trained families, assemblies among them, and a cloud of each in one of six orientations: turned about the
vertical by any angle or by quarter turns, some tilted by a few degrees, half degraded as scans are, some without normals. A third stand
on a tile or beside another shape, or are tiles. Held out are the
boxes and the two families that lowpoly never sees. An answer is right if the shape stood on that axis looks the same as upright.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor
from torch.nn import functional as F

from engine.networks.weights import read_card, ship
from engine.recognition import up
from engine.recognition.network import FEATURES, POINTS, CloudNetwork, features
from engine.recognition.up import Upright, turned
from research.train.cloud_lessons import Dataset
from research.train.decision import Measure, may_ship, prepare, target
from research.train.loop import Options, Training
from research.worlds.arrangements import arranged
from research.worlds.lowpoly_shapes import AXES, Shape, alike_up, held_out_shapes, oriented, sample_points, training_shapes

PRESETS = {
    "cpu": {"minutes": 12.0, "rate": 1e-3},
    "gpu": {"minutes": 8.0, "rate": 1e-3},
}
REPORTED = 900.0  # seconds between held-out numbers, which take half a minute
DECIDES = Measure("right_boxes", higher=True)
HELD_OUT = {"boxes": 188, "families": 32}  # shapes
LOOSE, TILTED, DEGRADED, ARRANGED = 0.5, 0.3, 0.5, 0.35  # shares of the clouds


def lesson(number: int, size: int) -> tuple[Tensor, Tensor]:
    """Returns the features [size, 6, FEATURES] of clouds stood on each of their axes, and the axis that is up, [size]."""
    rng = Generator(PCG64([21, number]))
    single = list(training_shapes((1 << 43) + number * size, size))
    shapes = [arranged(s, single[i - 1], rng) if rng.random() < ARRANGED else s for i, s in enumerate(single)]
    clouds, axes = zip(*(oriented(s, rng, POINTS, DEGRADED, LOOSE, TILTED) for s in shapes), strict=True)
    stands = turned(torch.from_numpy(np.stack(clouds)), (number % 4,))
    return features(stands.flatten(0, 2)).view(size, len(AXES), FEATURES), torch.tensor(axes)


def right(judge: Upright, shape: Shape, seed: int) -> bool:
    """Returns whether a shape, sampled cleanly, stands right on the axis that is answered; the same in all six orientations."""
    cloud = sample_points(shape.vertices, shape.faces, 4096, np.random.default_rng(seed))
    return int(judge.chances(cloud).argmax()) in alike_up(shape)


def held_out_numbers(judge: Upright) -> dict[str, Any]:
    """Returns the share of right answers in held-out boxes and on held-out families, and the families below 95 %."""
    found: dict[str, Any] = {}
    for kind, count in HELD_OUT.items():
        by_family: dict[str, list[bool]] = {}
        for i, shape in enumerate(held_out_shapes(count, kind)):
            by_family.setdefault(shape.family, []).append(right(judge, shape, i))
        found[f"right_{kind}"] = round(float(np.mean([share for answers in by_family.values() for share in answers])), 4)
        weak = {name: round(float(np.mean(answers)), 3) for name, answers in by_family.items() if np.mean(answers) < 0.95}
        found[f"below_95_{kind}"] = weak
    return found


def main(options: Options) -> None:
    """Trains, resumes or exports."""
    preset, device = PRESETS[options.preset], options.device
    target(options, up.FOLDER)
    model = CloudNetwork(1)
    training = Training("upright", model, preset["rate"], options.minutes_of(preset), device, average=0.998, weight_decay=0.02)
    shipped = read_card(up.FOLDER) if (up.FOLDER / "card.json").exists() else {}
    if not training.resume(options.fresh) and not options.fresh and "upright" in shipped:
        training.warm_start(up.load().network.state_dict(), shipped["upright"])
    lessons = Dataset(lesson)

    def loss(stands: Tensor, axes: Tensor) -> Tensor:
        return F.cross_entropy(model.answers(stands)[..., 0], axes)

    compiled = torch.compile(loss) if options.compiled else loss

    def loss_of(step: int) -> Tensor:
        return compiled(*(part.to(device) for part in lessons.batch(step)))

    def held_out() -> dict[str, Any]:
        copy = CloudNetwork(1)
        copy.load_state_dict({name: tensor.cpu() for name, tensor in model.state_dict().items()})
        return held_out_numbers(Upright(copy))

    if not options.export:
        training.run(loss_of, held_out, REPORTED)
    if not may_ship(training, options, DECIDES, shipped.get("upright")):
        return
    card = {
        "name": "upright",
        "licence": "Weights: Apache-2.0. Trained on shapes that this project draws from seeds; no third-party mesh was used.",
        "data": "research/worlds/lowpoly_shapes.py; two boxes of parameters per family and two families are held out.",
        "upright": {"settings": model.settings} | training.summary(options.preset, "upright"),
    }
    ship(prepare(options, up.FOLDER), {"upright.safetensors": training.averaged}, card)

"""Training of networks that read point clouds. Drawing clouds takes most of the time, so each is used several times.

A group of clouds is drawn and turned into features, then shuffled and used PASSES times before the next group is drawn. The groups are
large, and no group is drawn twice, so a network does not memorise them. A batch is a function of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.networks.card import has_card
from engine.networks.weights import read_card, ship
from engine.recognition.network import CloudNetwork
from research.train.decision import Measure, prepare, target, train_weights
from research.train.loop import RecipeOptions, Training

MINUTES = {"cpu": 12.0, "gpu": 8.0}
RATE = 1e-3
REPORTED = 900.0  # seconds between held-out numbers, which take half a minute
OWN = "Weights: Apache-2.0. Trained on shapes that this project draws from seeds; no third-party mesh was used."
GROUP, CHUNK, PASSES, BATCH = 2048, 64, 4, 128
STEPS = GROUP * PASSES // BATCH  # for each group


class CloudDataset:
    """`draw(number, count)` gives features [count, ...] and answers [count], a function of the number alone."""

    def __init__(self, draw: Callable[[int, int], tuple[Tensor, Tensor]]):
        self.draw = draw
        self._group = -1
        self._features, self._answers = torch.empty(0), torch.empty(0)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Returns features [BATCH, ...] and answers [BATCH] of a step."""
        group, place = divmod(step, STEPS)
        if group != self._group:
            chunks = [self.draw(group * (GROUP // CHUNK) + i, CHUNK) for i in range(GROUP // CHUNK)]
            self._features, self._answers = (torch.cat(parts) for parts in zip(*chunks, strict=True))
            self._group = group
        order = torch.cat([torch.randperm(GROUP, generator=torch.Generator().manual_seed(group * PASSES + i)) for i in range(PASSES)])
        mine = order[place * BATCH : (place + 1) * BATCH]
        return self._features[mine], self._answers[mine]


@dataclass(frozen=True)
class CloudRecipe:
    """Parts that a recipe must define.

    name : of the recipe; folder : of the shipped network, which `load` loads; its file and its card entry have the folder's name
    answers : number of the network's answers; read : picks the answers that the labels are about; draw : see `CloudDataset`
    held_out : numbers of a network; decides : which of them decides; data : the training data, in words
    known : card entries that must be equal for numbers to be comparable
    """

    name: str
    folder: Path
    load: Callable[[], CloudNetwork]
    answers: int
    draw: Callable[[int, int], tuple[Tensor, Tensor]]
    held_out: Callable[[CloudNetwork], dict[str, Any]]
    decides: Measure
    data: str
    read: Callable[[Tensor], Tensor] = lambda answers: answers
    known: dict[str, Any] = field(default_factory=dict)

    def train(self, options: RecipeOptions) -> None:
        """Trains, resumes or exports."""
        device, key = options.device, self.folder.name
        target(options, self.folder)
        model = CloudNetwork(self.answers)
        minutes = options.minutes_of({"minutes": MINUTES[options.preset]})
        training = Training(self.name, model, RATE, minutes, device, average=0.998, weight_decay=0.02)
        shipped = read_card(self.folder) if has_card(self.folder) else {}
        is_same = all(shipped.get(name) == value for name, value in self.known.items())
        if not training.resume(options.fresh) and not options.fresh and key in shipped and is_same:
            training.warm_start(self.load().state_dict(), shipped[key])
        lessons = CloudDataset(self.draw)

        def loss(features: Tensor, answers: Tensor) -> Tensor:
            return F.cross_entropy(self.read(model.answers(features)), answers)

        compiled = torch.compile(loss) if options.compiled else loss

        def loss_of(step: int) -> Tensor:
            return compiled(*(part.to(device) for part in lessons.batch(step)))

        def held_out() -> dict[str, Any]:
            copy = CloudNetwork(self.answers)
            copy.load_state_dict({name: tensor.cpu() for name, tensor in model.state_dict().items()})
            return self.held_out(copy)

        other = "" if is_same or not shipped else "the shipped one knows other families"
        if not train_weights(training, options, loss_of, held_out, self.decides, shipped.get(key), other, REPORTED):
            return
        card = {"name": key, **self.known, "licence": OWN, "data": self.data}
        card[key] = {"settings": model.settings} | training.summary(options.preset, self.name)
        ship(prepare(options, self.folder), {f"{key}.safetensors": training.averaged}, card)

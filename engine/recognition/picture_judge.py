"""The judge of emoji pictures: a network that detects objects and their positions, so that a picture can be compared with its caption.

It is trained on drawn scenes, some of them passed through the tokenizer, and never on generated pictures (`research/train/judge.py`), so
it is independent of every generator. Its card gives its accuracy on scenes of known content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from engine.networks.weights import MODELS, build_network, need, read_card, read_tensors
from engine.words.world import CANVAS, FIRST_HUES, ObjectGroup, Scene, backgrounds

FOLDER = MODELS / "judge"
CELL = 8  # pixels along a side
CELLS = CANVAS // CELL
GROUPS = 4  # groups of channels, each normalised together
COLOURS = ("", *FIRST_HUES)  # "" = the font's own


@dataclass(frozen=True)
class DetectedObject:
    """A detected object: its centre in lattice cells (row, column)."""

    name: str
    colour: str
    row: int
    column: int


@dataclass(frozen=True)
class PictureReading:
    """The detected objects and background of a picture."""

    objects: tuple[DetectedObject, ...]
    background: str


@dataclass(frozen=True)
class SceneVerdict:
    """Comparison of a reading with a scene; None where the scene does not specify it."""

    objects: bool  # every requested object was detected, and no other
    counts: bool  # and in the requested numbers
    relation: bool | None
    colours: bool | None
    background: bool

    @property
    def all(self) -> bool:
        """True if everything that the scene specifies matches."""
        return self.counts and self.background and self.relation is not False and self.colours is not False


@dataclass(frozen=True)
class ObjectCount:
    """Comparison of a picture with the numbers of the requested objects: how many of them were detected, and how many others."""

    requested: int
    detected: int
    others: int

    @property
    def matches(self) -> bool:
        """True if the picture shows the requested objects and nothing else."""
        return self.detected == self.requested and not self.others


class JudgeBlock(nn.Module):
    """Two normalised convolutions added to the input; the second starts at zero, so the block starts as the identity."""

    def __init__(self, width: int):
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(GROUPS, width) for _ in range(2))
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        nn.init.zeros_(self.layers[1].weight)
        nn.init.zeros_(self.layers[1].bias)

    def forward(self, x: Tensor) -> Tensor:
        added = x
        for norm, layer in zip(self.norms, self.layers, strict=True):
            added = layer(F.silu(norm(added)))
        return x + added


class Logits(NamedTuple):
    """Output of the network for B pictures, in logits."""

    centres: Tensor  # [B, 16, 16]: an object has its centre in this cell
    objects: Tensor  # [B, N, 16, 16]: which of the N objects it is
    colours: Tensor  # [B, colours, 16, 16]: its colour
    backgrounds: Tensor  # [B, backgrounds]


class Judge(nn.Module):
    """Network that detects the centres of objects, and their names and colours."""

    def __init__(self, names: Sequence[str], width: int = 24, depth: int = 4):
        super().__init__()
        self.names, self.settings = tuple(names), {"width": width, "depth": depth}
        w, wide = width, 5 * width
        self.trunk = nn.Sequential(
            nn.Conv2d(3, w, 4, stride=2, padding=1), JudgeBlock(w),
            nn.Conv2d(w, 2 * w, 4, stride=2, padding=1), JudgeBlock(2 * w), JudgeBlock(2 * w),
            nn.Conv2d(2 * w, wide, 4, stride=2, padding=1), *(JudgeBlock(wide) for _ in range(depth)), nn.GroupNorm(GROUPS, wide),
            nn.SiLU(),
        )  # fmt: skip
        self.centres = nn.Conv2d(wide, 1, 1)
        self.objects = nn.Conv2d(wide, len(self.names), 1)
        self.colours = nn.Conv2d(wide, len(COLOURS), 1)
        self.background = nn.Linear(wide, len(backgrounds()))
        nn.init.constant_(self.centres.bias, -5.0)  # nearly all cells have no centre

    def forward(self, pictures: Tensor) -> Logits:
        """Logits of pictures [B, 3, 128, 128] in -1..1."""
        x = self.trunk(pictures)
        return Logits(self.centres(x).squeeze(1), self.objects(x), self.colours(x), self.background(x.mean((2, 3))))

    def _input(self, pictures: Sequence[np.ndarray]) -> Tensor:
        """Pictures as the network's input [B, 3, 128, 128]."""
        x = torch.from_numpy(np.stack([at_canvas(p) for p in pictures])).permute(0, 3, 1, 2).float() / 127.5 - 1
        return x.to(self.background.weight.device)

    @torch.inference_mode()
    def read(self, pictures: Sequence[np.ndarray]) -> list[PictureReading]:
        """The readings of pictures uint8 [H, W, 3], all of one size; other sizes are first box-filtered to 128 pixels."""
        logits = Logits(*(each.float().cpu() for each in self(self._input(pictures))))
        peaks = logits.centres == F.max_pool2d(logits.centres, 3, stride=1, padding=1)
        kinds, hues = logits.objects.softmax(1).max(1), logits.colours.argmax(1)
        chances = logits.centres.sigmoid() * kinds.values
        detected: list[list[DetectedObject]] = [[] for _ in pictures]
        for b, row, column in (peaks & (chances > 0.5)).nonzero().tolist():
            at = b, row, column
            detected[b].append(DetectedObject(self.names[kinds.indices[at]], COLOURS[hues[at]], row, column))
        known = backgrounds()
        return [PictureReading(tuple(f), known[i]) for f, i in zip(detected, logits.backgrounds.argmax(-1).tolist(), strict=True)]


def at_canvas(picture: np.ndarray) -> np.ndarray:
    """The picture at 128 x 128 pixels."""
    image = Image.fromarray(picture)
    return np.array(image if image.size == (CANVAS, CANVAS) else image.resize((CANVAS, CANVAS), Image.BOX))


def centre(box: tuple[str, str, int, int, int]) -> tuple[int, int]:
    """The lattice cell (row, column) of the centre of a scene's box."""
    _, _, left, top, side = box
    return (2 * top + side) // (2 * CELL), (2 * left + side) // (2 * CELL)


def compare(reading: PictureReading, scene: Scene) -> SceneVerdict:
    """The verdict on a reading of a picture of this scene."""
    detected: dict[str, list[DetectedObject]] = {}
    for item in reading.objects:
        detected.setdefault(item.name, []).append(item)
    requested = {g.name: g for g in scene.groups}
    objects = set(detected) == set(requested)
    counts = objects and all(len(detected[name]) == g.count for name, g in requested.items())
    coloured = [g for g in scene.groups if g.colour]
    colours = all(f.colour == g.colour for g in coloured for f in detected.get(g.name, [])) and objects if coloured else None
    return SceneVerdict(objects, counts, _has_relation(detected, scene), colours, reading.background == scene.background)


def count_objects(reading: PictureReading, requested: Mapping[str, int]) -> ObjectCount:
    """Compares a reading with the requested number of each object, 0 = one or more."""
    seen = Counter(item.name for item in reading.objects)
    wanted = {name: count or max(1, seen[name]) for name, count in requested.items()}
    detected = sum(min(seen[name], count) for name, count in wanted.items())
    return ObjectCount(sum(wanted.values()), detected, seen.total() - detected)


def _has_relation(detected: dict[str, list[DetectedObject]], scene: Scene) -> bool | None:
    """True if two groups are placed as requested; None if no relation was requested."""
    if len(scene.groups) != 2 or scene.relation == "beside":
        return None
    (y1, x1), (y2, x2) = (_middle(detected.get(g.name, []), g) for g in scene.groups)
    above = y1 < y2  # only centres are known: an object on or behind another has the upper centre
    return {"above": above, "on": above, "behind": above, "below": y1 > y2, "left of": x1 < x2, "right of": x1 > x2}[scene.relation]


def _middle(items: list[DetectedObject], group: ObjectGroup) -> tuple[float, float]:
    """The mean position of a group's objects; nan if none was detected, so that every comparison fails."""
    if not items:
        return float("nan"), float("nan")
    return sum(f.row for f in items) / len(items), sum(f.column for f in items) / len(items)


def load(folder: Path = FOLDER) -> Judge:
    """The shipped judge; raises MissingWeights."""
    card = read_card(folder)
    path, names = folder / "judge.safetensors", need(card, "names", list, folder, of=str)
    return build_network(partial(Judge, names), need(card, "judge.settings", dict, folder), read_tensors(path), path).eval()

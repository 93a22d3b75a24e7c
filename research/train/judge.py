"""Trains the judge of pictures on emoji scenes: `launch.py train judge [--lessons first|world] --preset cpu|gpu`.

Each step draws new scenes of trained combinations. Half of them pass through pictogram's tokenizer and back, with some wrong tokens; all
are slightly bent and noisy, and a quarter is blurred, so that the judge learns content rather than sharp edges or exact shapes. It never
sees a generated picture. The labels of a cell: whether an object has its centre there (binary cross-entropy, without the
neighbouring cells), its object and colour (cross-entropy, with the neighbouring cells). The label of a picture: its background.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.backbones import pictogram
from engine.networks.vq import PictureTokenizer
from engine.networks.weights import read_card, ship
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import CELLS, COLOURS, Judge, Logits, SceneVerdict, centre, compare
from engine.words.world import Scene, backgrounds
from research.train.decision import Measure, prepare, target, train_weights
from research.train.lessons import LessonOptions, suffix
from research.train.loop import Training, half_precision, straight_down, trapezoid
from research.train.pictogram_tokenizer import to_tensor
from research.worlds.emoji_scenes import LESSONS, held_out_scenes, render, trained_scenes

PRESETS = {
    "cpu": {"batch": 32, "minutes": 25.0, "rate": 2e-3, "lessons": "first"},
    "gpu": {"batch": 128, "minutes": 4.0, "rate": 2e-3, "lessons": "world"},
}
DECIDES = Measure("coded_all", higher=True)
CENTRE_WEIGHT = 20.0  # of a cell with an object: there are about two among 256
HELD_OUT = 512
MISTAKES = 0.15  # the largest share of wrong tokens in a picture
BENT = 3.0  # pixels of 128


class Targets(NamedTuple):
    """The labels of B scenes; -1 without an object."""

    centres: Tensor  # float [B, 16, 16], 0 or 1
    weights: Tensor  # float [B, 16, 16], 0 next to a centre
    objects: Tensor  # int64 [B, 16, 16], at a centre and next to it
    colours: Tensor  # int64 [B, 16, 16], the same
    backgrounds: Tensor  # int64 [B]

    def to(self, device: str) -> Targets:
        """Returns the labels on a device."""
        return Targets(*(t.to(device) for t in self))


def targets(scenes: list[Scene], names: Sequence[str]) -> Targets:
    """Returns the labels of scenes of N objects. Centres are never in neighbouring cells; a cell between two has the label of either."""
    centres = torch.zeros(len(scenes), CELLS, CELLS)
    weights = torch.ones_like(centres)
    objects, colours = (torch.full(centres.shape, -1) for _ in range(2))
    numbers, places = {n: i for i, n in enumerate(names)}, {n: i for i, n in enumerate(backgrounds())}
    for b, scene in enumerate(scenes):
        cells = [(*centre(box), numbers[box[0]], COLOURS.index(box[1])) for box in scene.boxes]
        for row, column, name, colour in cells:
            around = b, slice(max(0, row - 1), row + 2), slice(max(0, column - 1), column + 2)
            weights[around], objects[around], colours[around] = 0.0, name, colour
        for row, column, name, colour in cells:
            at = b, row, column
            centres[at], weights[at], objects[at], colours[at] = 1.0, CENTRE_WEIGHT, name, colour
    return Targets(centres, weights, objects, colours, torch.tensor([places[s.background] for s in scenes]))


def loss_of_logits(logits: Logits, labels: Targets) -> Tensor:
    """Returns the loss of a batch's logits against its labels."""
    count = len(labels.centres)
    there = F.binary_cross_entropy_with_logits(logits.centres.float(), labels.centres, labels.weights, reduction="sum") / count
    kind = F.cross_entropy(logits.objects.float(), labels.objects, ignore_index=-1)
    hue = F.cross_entropy(logits.colours.float(), labels.colours, ignore_index=-1)
    return 0.1 * there + kind + hue + F.cross_entropy(logits.backgrounds.float(), labels.backgrounds)


def augment_pictures(pictures: Tensor, tokenizer: PictureTokenizer, step: int) -> Tensor:
    """Returns variants of pictures [B, 3, 128, 128], because a generated picture never equals a drawn one: half are reconstructed by the
    tokenizer from partly wrong tokens, all are slightly bent and noisy, a quarter is blurred."""
    half, rng = len(pictures) // 2, torch.Generator().manual_seed(step)
    with torch.no_grad():
        reconstructed = tokenizer.decode(with_mistakes(tokenizer.encode(pictures[:half]), rng)).clamp(-1, 1)
    x = bend(torch.cat([reconstructed.float(), pictures[half:]]), rng)
    noise = torch.randn(x.shape, generator=rng).to(x.device)
    x[::4] = F.avg_pool2d(x[::4], 3, stride=1, padding=1)
    return x + noise * random.Random(step).uniform(0, 0.1)


def with_mistakes(tokens: Tensor, rng: torch.Generator) -> Tensor:
    """Returns tokens [B, h, w] with a share, up to MISTAKES per picture, replaced by tokens of another picture or a neighbouring place."""
    share = MISTAKES * torch.rand(len(tokens), 1, 1, generator=rng)
    wrong = (torch.rand(tokens.shape, generator=rng) < share).to(tokens.device)
    foreign = (torch.rand(tokens.shape, generator=rng) < 0.3).to(tokens.device)
    shifted = tokens.roll(random.Random(rng.initial_seed()).choice((-1, 1)), random.Random(rng.initial_seed() + 1).choice((1, 2)))
    return torch.where(wrong, torch.where(foreign, tokens.roll(1, 0), shifted), tokens)


def bend(pictures: Tensor, rng: torch.Generator) -> Tensor:
    """Returns pictures [B, 3, H, W] whose pixels are displaced smoothly, by up to about BENT pixels."""
    count, height = len(pictures), pictures.shape[-1]
    bends = 2 * BENT / height * (2 * torch.rand(count, 2, 6, 6, generator=rng) - 1)
    field = F.interpolate(bends, (height, height), mode="bicubic", align_corners=True).permute(0, 2, 3, 1).to(pictures.device)
    straight = F.affine_grid(torch.eye(2, 3, device=pictures.device).expand(count, 2, 3), pictures.shape, align_corners=False)
    return F.grid_sample(pictures, straight + field, padding_mode="border", align_corners=False)


def accuracy(verdicts: list[SceneVerdict]) -> dict[str, float]:
    """Returns the share of correct answers by aspect, among the scenes that have it."""
    shares = {}
    for name in ("objects", "counts", "relation", "colours", "background", "all"):
        answers = [v for v in (getattr(verdict, name) for verdict in verdicts) if v is not None]
        shares[name] = round(sum(answers) / max(1, len(answers)), 4)
    return shares


def move_weights(shipped: Judge, model: Judge) -> dict[str, Tensor]:
    """Returns shipped weights for a judge of other objects: an object's weights move with it, and new objects start from zero. With
    random weights they would respond to every cell, and the gradients would undo the training of the layers below."""
    state = shipped.state_dict()
    places = [(shipped.names.index(name), i) for i, name in enumerate(model.names) if name in shipped.names]
    for name, own in model.state_dict().items():
        if own.shape != state[name].shape:
            weights = own.clone() if own.ndim == 1 else torch.zeros_like(own)
            for old, new in places:
                weights[new] = state[name][old]
            state[name] = weights
    return state


def main(options: LessonOptions) -> None:
    """Trains, resumes or exports."""
    preset = PRESETS[options.preset]
    device = options.device
    tokenizer = pictogram.load_tokenizer().to(device)
    taught = options.lessons or preset["lessons"]
    lessons = LESSONS[taught]
    target(options, judge.FOLDER)
    model = Judge(lessons.objects).to(memory_format=torch.channels_last)
    training = Training(
        f"judge{suffix(taught)}", model, preset["rate"], options.minutes_of(preset), device, weight_decay=0.01,
        schedule=straight_down if device == "cpu" else trapezoid,
    )  # fmt: skip
    if not training.resume(options.fresh) and not options.fresh and (judge.FOLDER / "judge.safetensors").exists():
        training.warm_start(move_weights(judge.load(), model), read_card(judge.FOLDER)["judge"])
    scenes = held_out_scenes(HELD_OUT, lessons)
    pictures = [render(s, 128) for s in scenes]
    with torch.no_grad():
        coded = torch.cat([tokenizer.decode(tokenizer.encode(to_tensor(pictures[i : i + 32], device))) for i in range(0, HELD_OUT, 32)])
    reconstructed = list(((coded.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).cpu().numpy())

    def loss_of(step: int) -> Tensor:
        batch = trained_scenes((1 << 42) + step * 4096, preset["batch"], lessons=lessons)
        with half_precision(device):
            logits = model(augment_pictures(to_tensor([render(s, 128) for s in batch], device), tokenizer, step))
        return loss_of_logits(logits, targets(batch, lessons.objects).to(device))

    def held_out() -> dict[str, float]:
        numbers = {}
        for name, group in (("drawn", pictures), ("coded", reconstructed)):
            readings = [r for i in range(0, HELD_OUT, 64) for r in model.read(group[i : i + 64])]
            shares = accuracy([compare(r, s) for r, s in zip(readings, scenes, strict=True)])
            numbers |= {f"{name}_{k}": v for k, v in shares.items()}
        return numbers

    shipped = read_card(judge.FOLDER) if (judge.FOLDER / "card.json").exists() else {}
    other = "judge" in shipped and tuple(shipped["names"]) != lessons.objects
    why = "the shipped one was trained on other objects" if other else ""
    if not train_weights(training, options, loss_of, held_out, DECIDES, shipped.get("judge"), why):
        return
    card = {
        "name": "judge",
        "names": list(lessons.objects),
        "licence": "Weights: Apache-2.0. Trained on pictures drawn with Noto Color Emoji (SIL Open Font License 1.1).",
        "data": "research/worlds/emoji_scenes.py, half of the scenes through pictogram's tokenizer; never a generated picture. Held out: "
        f"{HELD_OUT} scenes of combinations that are never trained, drawn and through the tokenizer.",
        "judge": {"settings": model.settings} | training.summary(options.preset, f"judge --lessons {taught}"),
    }
    ship(prepare(options, judge.FOLDER), {"judge.safetensors": training.averaged}, card)

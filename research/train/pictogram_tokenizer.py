"""Trains pictogram's picture tokenizer on emoji scenes: `launch.py train pictogram-tokenizer [--decoders] --preset cpu|gpu`.

The full decoder's loss is L1 + twice the squared error + half the L1 of edges (differences at two scales). The preview decoder's loss is L1
+ squared error and does not train the encoder. Pictures are whole at 64 and 128 pixels, and windows around objects at 128 and 256 pixels,
so that one tokenizer works for the three sizes. Its 2,560 codes are shared by all trained objects: more objects take more steps until the
decoder tells them apart by their neighbours. If the encoder changes, all models that were trained on its tokens must be trained again.
`--decoders` therefore keeps the shipped encoder and trains only the decoders.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from engine.networks.packing import unpack
from engine.networks.vq import FACTOR, PictureTokenizer
from engine.words.world import CANVAS, Scene
from research.train import lessons as lessons_options
from research.train.decision import Measure, prepare, target, train_weights
from research.train.loop import Training, argument, half_precision, straight_down, trapezoid
from research.worlds.emoji_scenes import LESSONS, SceneSettings, make_scene, render

PRESETS = {
    "cpu": {"batch": 16, "minutes": 40.0, "rate": 1.2e-3, "lessons": "first"},
    "gpu": {"batch": 64, "minutes": 8.0, "rate": 1.2e-3, "lessons": "world"},
}
DECIDES = Measure("psnr_128", higher=True)
HELD_OUT_SEEDS = range(10_000_000, 10_000_064)
# Most of a picture is background, which is learned long before the objects: most steps see windows around objects only.
STEPS = {  # share of steps; pixels along the side of the picture, and of the windows cut from it; windows per picture
    "whole": (0.2, 128, 128, 1),
    "objects": (0.35, 128, 64, 2),
    "large objects": (0.3, 256, 128, 1),
    "small": (0.15, 64, 64, 1),
}


@dataclass
class TokenizerOptions(lessons_options.LessonOptions):
    """The options of this recipe, with the lessons and whether to train the decoders only."""

    decoders: bool = field(default=False, metadata=argument("keep the shipped encoder, and so all tokens; train only the decoders"))


def to_tensor(pictures: list[np.ndarray], device: str) -> Tensor:
    """Returns uint8 pictures [H, W, 3] as one float batch [B, 3, H, W] in -1..1."""
    x = torch.from_numpy(np.stack(pictures)).to(device).permute(0, 3, 1, 2).float() / 127.5 - 1
    return x.contiguous(memory_format=torch.channels_last)


def batch(step: int, size: int, device: str, lessons: SceneSettings) -> Tensor:
    """Returns the pictures of a step; the step number draws their kind. Steps have about the same number of pixels; scenes never repeat."""
    r = random.Random(step)
    kind = r.choices(list(STEPS), [share for share, _, _, _ in STEPS.values()])[0]
    _, side, window, pieces = STEPS[kind]
    count = size * 128**2 // (window**2 * pieces)
    pictures = []
    for i in range(count):
        scene = make_scene(step * 1024 + i, lessons)
        picture = render(scene, side)
        pictures += [picture] if window == side else [crop_object(scene, picture, window, r) for _ in range(pieces)]
    return to_tensor(pictures, device)


def crop_object(scene: Scene, picture: np.ndarray, window: int, r: random.Random) -> np.ndarray:
    """Returns a square of `window` pixels of a scene's picture [H, W, 3], aligned to tokens, that shows most of one object."""
    side = len(picture)
    _, _, left, top, width = r.choice(scene.boxes)
    corner = []
    for start in (top, left):
        middle = (start + width / 2) * side / CANVAS + r.uniform(-window / 6, window / 6)
        corner.append(int(min(max(0, middle - window / 2), side - window)) // FACTOR * FACTOR)
    return picture[corner[0] : corner[0] + window, corner[1] : corner[1] + window]


def edges(picture: Tensor, target: Tensor) -> Tensor:
    """Returns the L1 error of horizontal and vertical differences at full and half size."""
    loss = picture.new_zeros(())
    for _ in range(2):
        for axis in (2, 3):
            loss = loss + (picture.diff(dim=axis) - target.diff(dim=axis)).abs().mean()
        picture, target = F.avg_pool2d(picture, 2), F.avg_pool2d(target, 2)
    return loss


def signal_to_noise(picture: Tensor, target: Tensor) -> Tensor:
    """Returns the peak signal-to-noise ratio in dB, mean over the batch, for pictures in -1..1."""
    error = ((picture.clamp(-1, 1) - target) / 2).square().flatten(1).mean(1)
    return (-10 * error.clamp(min=1e-10).log10()).mean()


def tokens_hash(path: Path) -> str:
    """Returns a short hash of the unpacked encoder in a tokenizer's file, which determines the tokens of a picture."""
    digest = hashlib.sha256()
    for name, tensor in sorted(unpack(load_file(str(path))).items()):
        if name.startswith("encoder."):
            digest.update(f"{name} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def main(options: TokenizerOptions) -> None:
    """Trains, resumes or exports."""
    from engine.backbones import pictogram
    from engine.networks.weights import read_card, ship

    target(options, pictogram.FOLDER)
    preset = PRESETS[options.preset]
    device = options.device
    taught = options.lessons or preset["lessons"]
    lessons = LESSONS[taught]
    model = pictogram.load_tokenizer().train() if options.decoders else PictureTokenizer()
    model = model.to(memory_format=torch.channels_last)
    model.encoder.requires_grad_(not options.decoders)
    name = f"pictogram-tokenizer{'-decoders' if options.decoders else ''}{lessons_options.suffix(taught)}"
    training = Training(
        name, model, preset["rate"], options.minutes_of(preset), device, weight_decay=0.0,
        average=0.998, schedule=straight_down if device == "cpu" else trapezoid,
    )  # fmt: skip
    from_shipped = options.decoders or not options.fresh
    if not training.resume(options.fresh) and from_shipped and (pictogram.FOLDER / "tokenizer.safetensors").exists():
        training.warm_start(pictogram.load_tokenizer().state_dict(), read_card(pictogram.FOLDER)["tokenizer"])
    pictures = {p: to_tensor([render(make_scene(s, lessons), p) for s in HELD_OUT_SEEDS], device) for p in (64, 128, 256)}

    def loss_of(step: int) -> Tensor:
        x = batch(step, preset["batch"], device, lessons)
        with half_precision(device):
            digits = model.quantize(x)
            y, small = model.reconstruct(digits), model.reconstruct(digits.detach(), preview=True)
        y, small = y.float(), small.float()
        full = (y - x).abs().mean() + 0.5 * (y - x).square().mean() * 4 + 0.5 * edges(y, x)
        return full + (small - x).abs().mean() + (small - x).square().mean()

    def held_out() -> dict:
        numbers, used = {}, set()
        for p, x in pictures.items():
            encoded = [model.encode(x[i : i + 8]) for i in range(0, len(x), 8)]
            reconstructed = torch.cat([model.decode(t) for t in encoded])
            numbers[f"psnr_{p}"] = round(signal_to_noise(reconstructed, x).item(), 2)
            if p == 128:
                used = set(torch.cat(encoded).flatten().tolist())
                numbers["psnr_preview_128"] = round(
                    signal_to_noise(torch.cat([model.decode(t, preview=True) for t in encoded]), x).item(), 2
                )
        return numbers | {"codes_used": len(used)}

    known = read_card(pictogram.FOLDER).get("tokenizer") if (pictogram.FOLDER / "card.json").exists() else None
    other = known is not None and known.get("lessons", taught) != taught
    why = f"the shipped one learned the lessons '{known['lessons']}'" if other else ""
    if not train_weights(training, options, loss_of, held_out, DECIDES, known, why):
        return
    row = {"settings": model.settings, "lessons": taught} | training.summary(options.preset, "pictogram-tokenizer")

    def entries(folder: Path) -> dict[str, Any]:
        return {"name": "pictogram", "tokenizer": row | {"tokens": tokens_hash(folder / "tokenizer.safetensors")}}

    ship(prepare(options, pictogram.FOLDER), {"tokenizer.safetensors": training.averaged}, entries)

"""Trains the up-samplers between pictogram's scales: `launch.py train resampler --preset cpu|gpu`.

Paper: MuLo-SD, section 3.2. A scene drawn at two sizes gives a pair of token grids; the network learns the distribution of the finer one
given the coarser one.
Deviations: The loss is the cross-entropy of the codes instead of pixel, perceptual and adversarial losses, because exact methods need a
distribution and pooled acceptance needs codes. Each factor has half a million parameters instead of 20 million. The network is row-causal,
so that an unfinished draft needs no special handling. The one parameter of the training-free variant is fitted on trained scenes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones import pictogram
from engine.drafters.resampler import PictureResampler, UpSampler, weights_file
from engine.networks.vq import FACTOR, PictureTokenizer
from engine.networks.weights import read_card, read_tensors, ship
from engine.words.world import Scene
from research.train.decision import Measure, prepare, target, train_weights
from research.train.loop import RecipeOptions, Training, half_precision
from research.train.pictogram_tokenizer import to_tensor
from research.worlds.emoji_scenes import SceneSettings, held_out_scenes, lessons_of, render, trained_scenes

PRESETS = {
    "cpu": {"batch": 16, "minutes": 25.0, "rate": 2e-3, "unseen": 32},
    "gpu": {"batch": 64, "minutes": 6.0, "rate": 2e-3, "unseen": 96},
}
PAIRS = {(8, 16): 0.4, (16, 32): 0.3, (8, 32): 0.3}  # sides of both grids: share of steps
SPREADS = torch.logspace(-2, 0.3, 47).tolist()  # candidates for s of the training-free variant


class Samplers(nn.Module):
    """The networks by factor, as one module."""

    def __init__(self, codebook: Tensor, **settings: int):
        super().__init__()
        factors = sorted({fine // coarse for coarse, fine in PAIRS})
        self.networks = nn.ModuleDict({str(factor): UpSampler(codebook, factor, **settings) for factor in factors})

    def logits(self, coarse: Tensor, fine: Tensor) -> Tensor:
        """Returns logits [B, V, H, W] for coarse tokens int64 [B, h, w]; `fine` [B, H, W] gives the size."""
        return self.networks[str(fine.shape[1] // coarse.shape[1])](coarse)


def grids(tokenizer: PictureTokenizer, scenes: list[Scene], sides: tuple[int, ...], device: str) -> list[Tensor]:
    """Returns tokens int64 [B, side, side] of the same scenes at several scales."""
    return [tokenizer.encode(to_tensor([render(s, side * FACTOR) for s in scenes], device)) for side in sides]


@torch.no_grad()
def spread_losses(resampler: PictureResampler, coarse: Tensor, fine: Tensor) -> dict[float, float]:
    """Returns nats per token of the training-free distribution by its spread s; coarse int64 [B, h, w], fine int64 [B, H, W]."""
    factor = fine.shape[1] // coarse.shape[1]
    total = torch.zeros(len(SPREADS))
    for small, large in zip(coarse, fine, strict=True):
        far = distances(resampler, small, factor)
        total += torch.stack([F.cross_entropy(-far / s, large.flatten()) for s in SPREADS]).cpu()
    return dict(zip(SPREADS, (total / len(coarse)).tolist(), strict=True))


def distances(resampler: PictureResampler, small: Tensor, factor: int) -> Tensor:
    """Returns squared distances [N, V] from the latents of the enlarged picture of tokens [h, w] to all codes."""
    return torch.cdist(resampler.latent(small, factor).flatten(0, 1), resampler.codebook).square()


@torch.no_grad()
def held_out_numbers(samplers: Samplers, resampler: PictureResampler, coarse: Tensor, fine: Tensor) -> dict[str, float]:
    """Returns nats per token, top-1 accuracy, and the mean probability of the most probable token (equal to the accuracy if calibrated), of
    the network and the training-free variant."""
    name = f"{coarse.shape[1]}_{fine.shape[1]}"
    factor = fine.shape[1] // coarse.shape[1]
    rows = []
    for small, large in zip(coarse, fine, strict=True):
        logits = samplers.logits(small[None], large[None]).float()[0].flatten(1).T
        far = -distances(resampler, small, factor) / resampler.spreads[factor]
        target = large.flatten()
        rows.append([x for probs in (logits, far) for x in (F.cross_entropy(probs, target), *_first_guess(probs, target))])
    values = torch.tensor(rows).mean(0).tolist()
    names = ("nats", "top_1", "confidence", "nats_picture", "top_1_picture", "confidence_picture")
    return {f"{n}_{name}": round(v, 4) for n, v in zip(names, values, strict=True)}


def _first_guess(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Returns how often the most probable token is right, and its mean probability."""
    chance, guess = logits.softmax(-1).max(-1)
    return (guess == target).float().mean(), chance.mean()


def spreads_of(tokenizer: PictureTokenizer, count: int, device: str, lessons: SceneSettings) -> dict[int, float]:
    """Returns the s with the fewest nats on trained scenes by factor, over all pairs of that factor."""
    resampler, total = PictureResampler(tokenizer), {}
    sides = tuple(sorted({side for pair in PAIRS for side in pair}))
    grids_by_side = dict(zip(sides, grids(tokenizer, trained_scenes(2**42, count, lessons=lessons), sides, device), strict=True))
    for coarse, fine in PAIRS:
        nats = spread_losses(resampler, grids_by_side[coarse], grids_by_side[fine])
        known = total.setdefault(fine // coarse, dict.fromkeys(nats, 0.0))
        total[fine // coarse] = {s: known[s] + n for s, n in nats.items()}
    return {factor: round(min(nats, key=nats.get), 4) for factor, nats in total.items()}


def main(options: RecipeOptions) -> None:
    """Trains, resumes or exports."""
    preset = PRESETS[options.preset]
    device = options.device
    tokenizer = pictogram.load_tokenizer().to(device).requires_grad_(False)
    samplers = Samplers(tokenizer.quantizer.codebook())
    training = Training("resampler", samplers, preset["rate"], options.minutes_of(preset), device, average=0.995)
    target(options, pictogram.FOLDER)
    whole = read_card(pictogram.FOLDER)
    card, lessons = whole.get("resampler"), lessons_of(whole)
    if not training.resume(options.fresh) and not options.fresh and card is not None:
        training.warm_start(with_prefix(read_tensors(weights_file(pictogram.FOLDER))), card)
    spreads = spreads_of(tokenizer, preset["unseen"], device, lessons)
    resampler = PictureResampler(tokenizer, spreads)
    sides = sorted({side for pair in PAIRS for side in pair})
    unseen = dict(zip(sides, grids(tokenizer, held_out_scenes(preset["unseen"], lessons), tuple(sides), device), strict=True))

    def loss_of(step: int) -> Tensor:
        pair = random.Random(step).choices(list(PAIRS), list(PAIRS.values()))[0]
        with torch.no_grad(), half_precision(device):
            coarse, fine = grids(tokenizer, trained_scenes(step * 4096, preset["batch"], lessons=lessons), pair, device)
        with half_precision(device):
            logits = samplers.logits(coarse, fine)
        return F.cross_entropy(logits.float(), fine)

    def held_out() -> dict:
        numbers: dict[str, float] = {}
        for coarse, fine in PAIRS:
            numbers |= held_out_numbers(samplers, resampler, unseen[coarse], unseen[fine])
        return numbers

    tokens = whole.get("tokenizer", {}).get("tokens")
    known = card if card is not None and card.get("tokens") == tokens else None  # one for other tokens is refused
    if train_weights(training, options, loss_of, held_out, Measure("nats_{}_{}".format(*next(iter(PAIRS)))), known):
        ship_samplers(prepare(options, pictogram.FOLDER), training, samplers, spreads, options, tokens)


def with_prefix(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns shipped tensors under the names of `Samplers`' state dict."""
    return {f"networks.{name}": tensor for name, tensor in tensors.items()}


def ship_samplers(
    folder: Path, training: Training, samplers: Samplers, spreads: Mapping[int, float], options: RecipeOptions, tokens: str | None
) -> None:
    """Writes the averaged networks and their entry in the card."""
    tensors = {name.removeprefix("networks."): tensor for name, tensor in training.averaged.items()}
    row: dict[str, Any] = {"tokens": tokens, "networks": {name: network.settings for name, network in samplers.networks.items()}}
    row |= {"spreads": {str(factor): s for factor, s in spreads.items()}} | training.summary(options.preset, "resampler")
    ship(folder, {weights_file(folder).name: tensors}, {"resampler": row})

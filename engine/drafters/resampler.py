"""Resampling between two scales of one picture: distributions of finer tokens given coarser tokens, and coarser tokens from finer ones.

Paper: MuLo-SD, section 3.2 (U_r and D_r): an up-sampler makes high-resolution drafts from low-resolution tokens, and a down-sampler
brings the committed tokens back to the drafter's scale. There are two kinds of up-sampler. The training-free one decodes the tokens,
resizes the picture and encodes it again. Where the encoder's latent z falls between the codes, q(v) ~ exp(-||z - e_v||^2 / s) is the
distribution, with one fitted number s per factor. The trained one is a small pixel-shuffle network that computes the distribution
directly, without a picture. Down-sampling is always training-free: there the picture is finished, and only its tokens are needed.

Rows below the requested ones are never read, because they do not exist yet while a picture is drafted.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.core import Resampler
from engine.errors import MissingWeights
from engine.layout import Raster, fine_rows
from engine.machine import has_fast_bfloat16
from engine.networks.vq import PictureTokenizer
from engine.networks.weights import build_network, need, read_tensors

CONTEXT = 2  # coarser rows above the requested ones that go through the tokenizer with them
FACTORS = ("2", "4", "8")  # between two scales, as a card's keys
SPREADS = {2: 0.12, 4: 0.2}  # s by factor, fitted on held-out scenes with the shipped tokenizer


class PictureResampler:
    """Decodes, resizes and encodes: needs a tokenizer but no training. spreads : s by factor."""

    def __init__(self, tokenizer: PictureTokenizer, spreads: Mapping[int, float] | None = None):
        self.tokenizer, self.spreads = tokenizer, {**SPREADS, **(spreads or {})}
        self.codebook = tokenizer.quantizer.codebook()

    @property
    def training_free(self) -> Resampler:
        """The resampler itself."""
        return self

    def up(self, tokens: Tensor, coarse: Raster, fine: Raster, first: int, stop: int) -> Tensor:
        """Distributions [N, V], by the distance of each code from the latent of the enlarged picture."""
        factor = fine.columns // coarse.columns
        latent = self.latent(self.band(tokens, coarse, first, stop), factor)
        skipped = min(first, CONTEXT) * factor
        requested = latent[skipped : skipped + (stop - first) * factor].flatten(0, 1)
        return torch.softmax(-torch.cdist(requested, self.codebook).square() / self.spreads[factor], -1)

    def down(self, tokens: Tensor, fine: Raster, coarse: Raster, first: int, stop: int) -> Tensor:
        """Tokens of the picture at the smaller scale."""
        begin, end = fine_rows(coarse, fine, max(0, first - CONTEXT), stop)
        factor = fine.columns // coarse.columns
        grid = tokens[begin * fine.columns : end * fine.columns].view(1, end - begin, fine.columns)
        # half the time, and hardly a token changes
        with torch.autocast("cpu", torch.bfloat16, enabled=grid.device.type == "cpu" and has_fast_bfloat16()):
            picture = self.tokenizer.decode(grid).float()
        small = F.interpolate(picture.clamp(-1, 1), scale_factor=1 / factor, mode="area")
        return self.tokenizer.encode(small)[0, min(first, CONTEXT) :].flatten()

    def band(self, tokens: Tensor, coarse: Raster, first: int, stop: int) -> Tensor:
        """int64 [rows, columns]: the requested rows, some rows above, and the last row again in place of the unknown row below."""
        rows = tokens[: stop * coarse.columns].view(stop, coarse.columns)[max(0, first - CONTEXT) :]
        return rows if stop == coarse.rows else torch.cat([rows, rows[-1:]])

    def latent(self, grid: Tensor, factor: int) -> Tensor:
        """Tokens [h, w] -> the encoder's latent of the enlarged picture, in the space of the codes, float32 [factor h, factor w, D]."""
        large = F.interpolate(self.tokenizer.decode(grid[None]), scale_factor=factor, mode="bicubic").clamp(-1, 1)
        quantizer = self.tokenizer.quantizer
        return quantizer.values(quantizer.bound(self.tokenizer.encoder(large).permute(0, 2, 3, 1)))[0]


class _RowCausal(nn.Conv2d):
    """A 3x3 convolution that reads its own row and the two rows above, never one below."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, 3, padding=(0, 1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.pad(x, (0, 0, 2, 0)))


class _Residual(nn.Module):
    """Two row-causal convolutions added to the input; the second starts at zero."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = _RowCausal(width, width), _RowCausal(width, width)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.silu(self.first(F.silu(x))))


class UpSampler(nn.Module):
    """Coarser tokens -> logits of the finer tokens, `factor` times as many per side, with row-causal convolutions and pixel shuffles.

    codebook : [V, D], the decoder's input for every token; similar codes start with similar inputs
    """

    def __init__(self, codebook: Tensor, factor: int, width: int = 64, blocks: int = 2):
        super().__init__()
        self.settings = {"factor": factor, "width": width, "blocks": blocks}
        self.register_buffer("codebook", codebook.clone(), persistent=False)
        stages: list[nn.Module] = [_RowCausal(codebook.shape[1], width), *(_Residual(width) for _ in range(blocks))]
        while factor > 1:
            stages += [nn.Conv2d(width, 4 * width, 1), nn.PixelShuffle(2), *(_Residual(width) for _ in range(blocks))]
            factor //= 2
        self.stages = nn.Sequential(*stages, nn.SiLU())
        self.head = nn.Conv2d(width, len(codebook), 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 [B, h, w] -> logits [B, V, factor h, factor w]"""
        return self.head(self.stages(self.codebook[tokens].permute(0, 3, 1, 2)))


class TrainedResampler(PictureResampler):
    """Distributions from trained networks for the factors that have one, from the resized picture for the others."""

    def __init__(self, tokenizer: PictureTokenizer, networks: Mapping[int, UpSampler], spreads: Mapping[int, float] | None = None):
        super().__init__(tokenizer, spreads)
        self.networks = {factor: network.eval() for factor, network in networks.items()}
        self._without = PictureResampler(tokenizer, spreads)

    @property
    def training_free(self) -> Resampler:
        """The resampler without trained networks, for all factors."""
        return self._without

    def up(self, tokens: Tensor, coarse: Raster, fine: Raster, first: int, stop: int) -> Tensor:
        """Distributions [N, V] from the trained network, which reads all rows so far."""
        factor = fine.columns // coarse.columns
        if factor not in self.networks:
            return super().up(tokens, coarse, fine, first, stop)
        logits = self.networks[factor](tokens[: stop * coarse.columns].view(1, stop, coarse.columns))
        return torch.softmax(logits[0, :, first * factor :].flatten(1).T, -1)


def weights_file(folder: Path) -> Path:
    """The file in a model folder with its trained networks."""
    return folder / "resampler.safetensors"


def read_resampler(folder: Path | None, card: Mapping[str, Any], tokenizer: PictureTokenizer) -> Resampler:
    """The resampler of a model folder, with trained networks if it has them; raises MissingWeights if they are damaged, or were trained for
    another tokenizer's tokens."""
    known = need(card, "resampler", dict, folder) if "resampler" in card else {}
    spreads = _by_factor(known, "spreads", float, folder)
    if folder is None or not known.get("networks"):
        return PictureResampler(tokenizer, spreads)
    path, codebook = weights_file(folder), tokenizer.quantizer.codebook()
    refuse_other_tokens(card, "resampler", folder)
    tensors = read_tensors(path)
    networks = {}
    for factor, settings in _by_factor(known, "networks", dict, folder).items():
        own = {k.removeprefix(f"{factor}."): v for k, v in tensors.items() if k.startswith(f"{factor}.")}
        networks[factor] = build_network(partial(UpSampler, codebook.cpu()), settings, own, path).to(codebook.device)
    return TrainedResampler(tokenizer, networks, spreads)


def _by_factor(known: Mapping[str, Any], name: str, kind: type, folder: Path | None) -> dict[int, Any]:
    """An entry of the resampler's part of the card, keyed by the factor between two scales; raises MissingWeights."""
    values = need(known, name, dict, folder, of=kind) if name in known else {}
    wrong = [factor for factor, value in values.items() if factor not in FACTORS or (kind is float and not value > 0)]
    if wrong:
        raise MissingWeights(
            f"The resampler's {name} in the card of {folder} name '{wrong[0]}'. Train it again: launch.py train resampler."
        )
    return {int(factor): value for factor, value in values.items()}


def refuse_other_tokens(card: Mapping[str, Any], row: str, folder: Path) -> None:
    """Raises MissingWeights if an entry of pictogram's card was trained on another tokenizer's tokens."""
    rows = (card.get(each) for each in (row, "tokenizer"))
    trained, here = (each.get("tokens") if isinstance(each, Mapping) else None for each in rows)
    if trained is not None and here is not None and trained != here:
        raise MissingWeights(
            f"The {row} in {folder} was trained on the tokens of another tokenizer ({str(trained)[:40]}, not {str(here)[:40]}). "
            f"Train it again: python launch.py train {'pictogram' if row == 'decoder' else row}."
        )

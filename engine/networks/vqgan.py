"""The picture decoder of VQGAN: codes -> picture. LlamaGen, Chameleon and their relatives differ in widths and in the form of a code.

Paper: Taming Transformers for High-Resolution Image Synthesis, Esser et al., arXiv 2012.09841. A code's vector is widened and
passes two residual blocks with attention between them, then one stage for each doubling of the size. Encoders are absent: generation does
not use them. Sizes are read from the weights (`settings_of`), under our names for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GROUPS, EPS = 32, 1e-6  # of the group norms


@dataclass(frozen=True)
class VQGANSettings:
    """The shape of a decoder.

    codes, width : the size of the codebook
    latent       : channels that a code's vector is widened to
    stages       : channels of each stage, from the smallest picture to the whole one
    blocks       : residual blocks of a stage
    attentive    : the first stage has attention
    normalised   : only the direction of a code's vector counts
    placed       : every norm is scaled and shifted by the codes at its place (MoVQ, arXiv 2209.09002)
    """

    codes: int
    width: int
    latent: int
    stages: tuple[int, ...]
    blocks: int = 3
    attentive: bool = True
    normalised: bool = True
    placed: bool = False


class PixelNorm(nn.GroupNorm):
    """A group norm that ignores the codes."""

    def __init__(self, channels: int):
        super().__init__(GROUPS, channels, EPS)

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        """x [B, C, h, w], vectors [B, D, rows, columns]"""
        return super().forward(x)


class PlacedNorm(nn.Module):
    """A group norm, scaled and shifted by linear functions of the code at each place."""

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.base = nn.GroupNorm(GROUPS, channels, EPS)
        self.scale, self.shift = nn.Conv2d(width, channels, 1), nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        """x [B, C, h, w], vectors [B, D, rows, columns]"""
        size = x.shape[-2:]  # convolving 1x1 before enlarging gives the same result as after it
        scale, shift = (F.interpolate(part(vectors), size=size, mode="nearest") for part in (self.scale, self.shift))
        return torch.addcmul(shift, self.base(x), scale)


Norms = Callable[[int], nn.Module]  # from a number of channels


class VQGANResidual(nn.Module):
    """Two convolutions after norms, added to the input; a 1x1 convolution fits the input if the number of channels changes."""

    def __init__(self, channels: int, out: int, norm: Norms):
        super().__init__()
        self.first_norm, self.second_norm = norm(channels), norm(out)
        self.first, self.second = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.fit = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        """x [B, C, h, w], vectors [B, D, rows, columns]"""
        y = self.first(F.silu(self.first_norm(x, vectors)))
        return self.fit(x) + self.second(F.silu(self.second_norm(y, vectors)))


class ImageAttention(nn.Module):
    """Every place attends to all places, with one head; added to the input."""

    def __init__(self, channels: int, norm: Norms):
        super().__init__()
        self.norm = norm(channels)
        self.query, self.key, self.value, self.out = (nn.Conv2d(channels, channels, 1) for _ in range(4))

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        """x [B, C, h, w], vectors [B, D, rows, columns]"""
        y = self.norm(x, vectors)
        q, k, v = (part(y).flatten(2).transpose(1, 2) for part in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return x + self.out(attended.transpose(1, 2).view_as(x))


class DecoderStage(nn.Module):
    """Residual blocks, each followed by attention if the stage has it, then twice the size if it is not the last."""

    def __init__(self, channels: int, out: int, blocks: int, attentive: bool, grows: bool, norm: Norms):
        super().__init__()
        self.residuals = nn.ModuleList(VQGANResidual(channels if i == 0 else out, out, norm) for i in range(blocks))
        self.attentions = nn.ModuleList(ImageAttention(out, norm) for _ in range(blocks if attentive else 0))
        self.grow = nn.Conv2d(out, out, 3, padding=1) if grows else None

    def forward(self, x: Tensor, vectors: Tensor) -> Tensor:
        """x [B, C, h, w] -> [B, C', h, w] or [B, C', 2h, 2w]"""
        for i, residual in enumerate(self.residuals):
            x = residual(x, vectors)
            if self.attentions:
                x = self.attentions[i](x, vectors)
        return x if self.grow is None else self.grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class PictureDecoder(nn.Module):
    """Codes int64 [rows, columns] -> picture [rows * factor, columns * factor, 3] in about -1..1."""

    def __init__(self, s: VQGANSettings):
        super().__init__()
        self.normalised, self.factor = s.normalised, 2 ** (len(s.stages) - 1)
        self.codes = nn.Embedding(s.codes, s.width)
        self.widen = nn.Conv2d(s.width, s.latent, 1)
        top = s.stages[0]
        self.enter = nn.Conv2d(s.latent, top, 3, padding=1)
        norm: Norms = partial(PlacedNorm, width=s.width) if s.placed else PixelNorm
        self.middle = nn.ModuleList([VQGANResidual(top, top, norm), ImageAttention(top, norm), VQGANResidual(top, top, norm)])
        inputs = (top, *s.stages[:-1])
        last = len(s.stages) - 1
        self.stages = nn.ModuleList(
            DecoderStage(a, b, s.blocks, s.attentive and i == 0, i < last, norm)
            for i, (a, b) in enumerate(zip(inputs, s.stages, strict=True))
        )
        self.norm, self.leave = norm(s.stages[-1]), nn.Conv2d(s.stages[-1], 3, 3, padding=1)

    def codebook(self) -> Tensor:
        """The vector of every code as the decoder sees it, float32 [V, D]."""
        book = self.codes.weight.detach().float()
        return F.normalize(book, dim=-1) if self.normalised else book

    def forward(self, codes: Tensor) -> Tensor:
        """See the class."""
        vectors = F.embedding(codes, self.codes.weight)
        if self.normalised:
            vectors = F.normalize(vectors, dim=-1)
        vectors = vectors.permute(2, 0, 1)[None]
        x = self.enter(self.widen(vectors))
        for part in (*self.middle, *self.stages):
            x = part(x, vectors)
        return self.leave(F.silu(self.norm(x, vectors)))[0].permute(1, 2, 0)


def settings_of(shapes: Mapping[str, tuple[int, ...]], normalised: bool) -> VQGANSettings:
    """The settings of a decoder from the shapes of its weights, by our names; raises KeyError or IndexError if they are not a decoder's."""
    stages = []
    while f"stages.{len(stages)}.residuals.0.second.weight" in shapes:
        stages.append(shapes[f"stages.{len(stages)}.residuals.0.second.weight"][0])
    if not stages:
        raise KeyError("stages.0.residuals.0")
    blocks = len([name for name in shapes if name.startswith("stages.0.residuals.") and name.endswith(".first.weight")])
    codes, width = shapes["codes.weight"]
    attentive = "stages.0.attentions.0.query.weight" in shapes
    placed = "norm.scale.weight" in shapes
    return VQGANSettings(codes, width, shapes["widen.weight"][0], tuple(stages), blocks, attentive, normalised, placed)


def build_decoder(settings: VQGANSettings, tensors: Mapping[str, Tensor]) -> PictureDecoder:
    """The decoder with its weights, for inference; weights are not allocated twice."""
    with torch.device("meta"):
        decoder = PictureDecoder(settings)
    decoder.load_state_dict(tensors, assign=True)
    return decoder.eval().requires_grad_(False)

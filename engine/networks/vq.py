"""The picture tokenizer: a convolutional autoencoder with factor 8 around a finite scalar quantizer.

Paper: Finite Scalar Quantization, Mentzer et al., arXiv 2309.15505: each latent channel is bounded and rounded to a few levels, and
the code is the mixed-radix number of the levels. There is no learned codebook that could collapse; the neighbours of a code are
the codes one level away. The network is fully convolutional, so the same weights serve 64, 128 and 256 pixels.

There are two decoders. `decode` is the full one, for the final picture; `preview` is a tiny one, about a hundredth of the work, for
the live view of a large picture. There is no normalisation, on purpose: residual branches start at zero, which trains well at this
depth, and every output stays local, so a change of one token changes only its neighbourhood.

The encoder reads only the 8 x 8 pixels of a token. An encoder that reads further spends codes on the surroundings: then every token
inside an object changes with the background, and a model has to learn each pair of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

FACTOR = 8


class VQResidual(nn.Module):
    """Two convolutions added to the input; the second starts at zero, so the block starts as the identity."""

    def __init__(self, width: int, kernel: int = 3):
        super().__init__()
        self.first = nn.Conv2d(width, width, kernel, padding=kernel // 2)
        self.second = nn.Conv2d(width, width, kernel, padding=kernel // 2)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.silu(self.first(F.silu(x))))


class FiniteScalarQuantizer(nn.Module):
    """Latents [..., D] <-> codes. `levels[d]` values per channel, evenly spaced in -1..1; V = product of levels."""

    def __init__(self, levels: tuple[int, ...]):
        super().__init__()
        self.levels = levels
        self.size = math.prod(levels)
        radix = [math.prod(levels[:d]) for d in range(len(levels))]
        self.register_buffer("count", torch.tensor(levels, dtype=torch.float32), persistent=False)
        self.register_buffer("radix", torch.tensor(radix), persistent=False)

    def bound(self, latent: Tensor) -> Tensor:
        """The place of a latent among the levels before rounding, float [..., D] in -0.5..level-0.5."""
        return (torch.tanh(latent.float()) + 1) / 2 * (self.count - 1e-3) - 0.5 + 0.5e-3

    def digits(self, latent: Tensor) -> Tensor:
        """Rounded level numbers, float [..., D] in 0..level-1, with the straight-through gradient of the bounded latent."""
        bounded = self.bound(latent)
        rounded = bounded.round().clamp(min=0).minimum(self.count - 1)
        return bounded + (rounded - bounded).detach()

    def values(self, digits: Tensor) -> Tensor:
        """Digits to the decoder's input, -1..1."""
        return digits / (self.count - 1) * 2 - 1

    def codes(self, digits: Tensor) -> Tensor:
        """Digits [..., D] to ids int64 [...], 0..V-1."""
        return (digits.round().long() * self.radix).sum(-1)

    def inputs(self, ids: Tensor) -> Tensor:
        """The decoder's input for ids int64 [...], float32 [..., D]."""
        return self.values((ids[..., None] // self.radix % self.count.long()).float())

    def codebook(self) -> Tensor:
        """The decoder's input for every id, float32 [V, D]."""
        return self.inputs(torch.arange(self.size, device=self.radix.device))


def _stage(width: int, blocks: int, kernel: int) -> list[nn.Module]:
    return [VQResidual(width, kernel) for _ in range(blocks)]


def reach(decoder: nn.Module) -> int:
    """The largest distance in tokens at which a token changes a pixel of a decoder's picture, from its convolutions."""
    tokens, scale = 0.0, 1
    for layer in decoder.modules():
        if isinstance(layer, nn.Conv2d):
            tokens += layer.kernel_size[0] // 2 * layer.dilation[0] / scale
        elif isinstance(layer, nn.PixelShuffle):
            scale *= layer.upscale_factor
    return math.ceil(tokens)


class PictureTokenizer(nn.Module):
    """Pictures [B, 3, 8h, 8w] in -1..1 <-> tokens int64 [B, h, w], each of which depends on its own 8 x 8 pixels only."""

    def __init__(self, levels: tuple[int, ...] = (8, 8, 8, 5), encoder: int = 64, decoder: int = 56, blocks: int = 2):
        super().__init__()
        self.settings = {"levels": list(levels), "encoder": encoder, "decoder": decoder, "blocks": blocks}
        self.quantizer = FiniteScalarQuantizer(tuple(levels))
        depth, w = len(levels), encoder
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(2), nn.Conv2d(12, w, 1), *_stage(w, blocks, 1),
            nn.Conv2d(w, 2 * w, 2, stride=2), *_stage(2 * w, blocks, 1),
            nn.Conv2d(2 * w, 4 * w, 2, stride=2), *_stage(4 * w, blocks, 1),
            nn.SiLU(), nn.Conv2d(4 * w, depth, 1),
        )  # fmt: skip
        w = decoder
        self.decoder = nn.Sequential(
            nn.Conv2d(depth, 4 * w, 3, padding=1), *_stage(4 * w, blocks, 3),
            nn.Conv2d(4 * w, 8 * w, 1), nn.PixelShuffle(2), *_stage(2 * w, blocks, 3),
            nn.Conv2d(2 * w, 4 * w, 1), nn.PixelShuffle(2), *_stage(w, blocks, 3),
            nn.SiLU(), nn.Conv2d(w, 12, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip
        self.preview_decoder = nn.Sequential(
            nn.Conv2d(depth, 96, 3, padding=1), nn.SiLU(), nn.Conv2d(96, 3 * FACTOR**2, 3, padding=1), nn.PixelShuffle(FACTOR)
        )

    def quantize(self, pictures: Tensor) -> Tensor:
        """Digits [B, h, w, D] of pictures, differentiable (straight through)."""
        return self.quantizer.digits(self.encoder(pictures).permute(0, 2, 3, 1))

    def reconstruct(self, digits: Tensor, preview: bool = False) -> Tensor:
        """Pictures [B, 3, 8h, 8w] from digits [B, h, w, D]."""
        latent = self.quantizer.values(digits).permute(0, 3, 1, 2)
        return (self.preview_decoder if preview else self.decoder)(latent)

    def encode(self, pictures: Tensor) -> Tensor:
        """Tokens int64 [B, h, w]."""
        return self.quantizer.codes(self.quantize(pictures))

    def decode(self, tokens: Tensor, preview: bool = False) -> Tensor:
        """Pictures [B, 3, 8h, 8w] in about -1..1 from tokens int64 [B, h, w]."""
        latent = self.quantizer.inputs(tokens).permute(0, 3, 1, 2)
        return (self.preview_decoder if preview else self.decoder)(latent)

    def decode_rows(self, tokens: Tensor, rows: range, preview: bool = False) -> Tensor:
        """Some rows of a picture, [B, 3, 8 * len(rows), 8w], from all of its tokens int64 [B, h, w]; decodes only the tokens within
        reach."""
        halo = reach(self.preview_decoder if preview else self.decoder)
        first = max(0, rows.start - halo)
        picture = self.decode(tokens[:, first : rows.stop + halo], preview)
        return picture[:, :, (rows.start - first) * FACTOR : (rows.stop - first) * FACTOR]

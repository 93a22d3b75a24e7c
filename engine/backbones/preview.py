"""Previews of unfinished pictures: a linear map from the vector of a code to the colours of its square.

A picture decoder takes seconds on a CPU, too long for a picture that changes several times a second. The map is fitted by least squares to
the decoder itself: it decodes pictures of random codes, and the map predicts the mean colours of the quarters of each square.
No data is needed, only the weights. If a code has few numbers, four neighbours have the same random code: neighbours in real pictures are
alike, and on the pictures of our own tokenizer the correlation with the decoder rises from .78 to .84 on the hardest of four.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.machine import widest_float

SIDE = 8  # codes along the side of a random picture
CELLS = 2  # a square has 2 x 2 colours
FEW = 32  # largest dimension of a code for which four neighbours share one random code
PER_NUMBER = 6  # random codes per dimension of a code's vector
RIDGE = 1e-3  # share of the mean square added to the diagonal, in case the codes lie on a line


@dataclass(frozen=True)
class Preview:
    """colours : float32 [V, CELLS, CELLS, 3], in about -1..1; factor : width of a square in pixels"""

    colours: Tensor
    factor: int

    def picture(self, codes: Tensor) -> Tensor:
        """Codes int64 [rows, columns] -> picture float32 [rows * factor, columns * factor, 3]."""
        rows, columns = codes.shape
        cells = self.colours[codes].transpose(1, 2).reshape(1, rows * CELLS, columns * CELLS, 3)
        size = (rows * self.factor, columns * self.factor)
        return F.interpolate(cells.permute(0, 3, 1, 2), size=size, mode="nearest")[0].permute(1, 2, 0)


@torch.inference_mode()
def fit_preview(decode: Callable[[Tensor], Tensor], codebook: Tensor, factor: int) -> Preview:
    """The linear map that approximates a decoder best.

    decode   : codes int64 [rows, columns] -> picture [rows * factor, columns * factor, 3]
    codebook : float32 [V, D], the vector of each code
    """
    vocabulary, width = codebook.shape
    generator = torch.Generator().manual_seed(0)
    pictures = -(-max(256, PER_NUMBER * width) // SIDE**2)
    alike = 2 if width <= FEW else 1
    codes = torch.randint(vocabulary, (pictures, SIDE // alike, SIDE // alike), generator=generator).to(codebook.device)
    codes = codes.repeat_interleave(alike, 1).repeat_interleave(alike, 2)
    seen = torch.cat([cells_of(decode(grid).float()) for grid in codes])  # [N, CELLS * CELLS * 3]
    spread = codebook.square().mean().sqrt().clamp(min=1e-12)
    inputs = F.pad(codebook / spread, (0, 1), value=1.0)
    if widest_float(inputs.device) == torch.float32:  # the normal equations need more
        inputs, codes, seen = inputs.cpu(), codes.cpu(), seen.cpu()
    own = inputs[codes.flatten()].double()
    normal = own.T @ own + RIDGE * len(own) * torch.eye(width + 1, dtype=torch.float64, device=own.device)
    weights = torch.linalg.solve(normal, own.T @ seen.double())
    return Preview((inputs.double() @ weights).float().view(vocabulary, CELLS, CELLS, 3).to(codebook.device), factor)


def cells_of(picture: Tensor) -> Tensor:
    """The mean colours of the quarters of each of the SIDE x SIDE squares of a picture, [SIDE * SIDE, CELLS * CELLS * 3]."""
    means = F.adaptive_avg_pool2d(picture.permute(2, 0, 1)[None], SIDE * CELLS)[0]
    cells = means.view(3, SIDE, CELLS, SIDE, CELLS).permute(1, 3, 2, 4, 0)
    return cells.reshape(SIDE * SIDE, -1)

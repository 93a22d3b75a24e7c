"""Previews: the linear map is the decoder where the decoder is linear, and near to it on pictures of a real tokenizer."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.backbones.preview import CELLS, fit_preview


def test_a_linear_decoder_is_found_exactly() -> None:
    """Each quarter of a square has its own map, and codes that were never drawn are also right."""
    torch.manual_seed(0)
    book, weights = torch.randn(700, 3), 0.2 * torch.randn(3, CELLS * CELLS * 3)
    colours = (book @ weights + 0.1).view(-1, CELLS, CELLS, 3)

    def decode(codes: Tensor) -> Tensor:
        cells = colours[codes].transpose(1, 2).reshape(codes.shape[0] * CELLS, codes.shape[1] * CELLS, 3)
        return cells.repeat_interleave(2, 0).repeat_interleave(2, 1)

    preview = fit_preview(decode, book, 4)
    codes = torch.randint(700, (5, 7))
    assert preview.picture(codes).shape == (20, 28, 3)
    torch.testing.assert_close(preview.picture(codes), decode(codes), atol=5e-3, rtol=0)

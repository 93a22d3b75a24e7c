"""The receptive field of the picture tokenizer's encoder."""

from __future__ import annotations

import torch

from engine.networks.vq import FACTOR, PictureTokenizer


def test_a_token_does_not_know_what_is_around_it() -> None:
    """The token in the middle of two pictures that differ everywhere but in its own pixels."""
    torch.manual_seed(0)
    tokenizer = PictureTokenizer((4, 4, 2), encoder=8, decoder=8, blocks=2)
    for parameter in tokenizer.encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # residual branches start at zero, where they look nowhere
    first, second = torch.rand(2, 1, 3, 5 * FACTOR, 5 * FACTOR) * 2 - 1
    own = slice(2 * FACTOR, 3 * FACTOR)
    second[..., own, own] = first[..., own, own]
    with torch.no_grad():
        latents = [tokenizer.encoder(picture)[0] for picture in (first, second)]
    assert torch.equal(latents[0][:, 2, 2], latents[1][:, 2, 2])
    assert not torch.equal(latents[0][:, 1, 2], latents[1][:, 1, 2])
    assert not torch.equal(latents[0][:, 2, 1], latents[1][:, 2, 1])

"""The receptive fields of the picture tokenizer."""

from __future__ import annotations

import pytest
import torch

from engine.networks.vq import FACTOR, PictureTokenizer, reach


def test_a_token_does_not_know_what_is_around_it() -> None:
    """Two pictures that differ everywhere except in the middle token's pixels have the same middle token."""
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


def tokenizer_that_looks_around() -> PictureTokenizer:
    """A tokenizer with weights in every convolution: fresh residual branches would see nothing."""
    torch.manual_seed(0)
    tokenizer = PictureTokenizer((4, 4, 2), encoder=8, decoder=8, blocks=2)
    for parameter in (*tokenizer.decoder.parameters(), *tokenizer.preview_decoder.parameters()):
        torch.nn.init.normal_(parameter, std=0.2)
    return tokenizer.eval()


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize("rows", [range(0, 1), range(11, 13), range(23, 24), range(0, 24)])
def test_some_rows_are_those_of_the_whole_picture(preview: bool, rows: range) -> None:
    tokenizer = tokenizer_that_looks_around()
    tokens = torch.randint(0, 32, (1, 24, 12))
    with torch.no_grad():
        whole, part = tokenizer.decode(tokens, preview), tokenizer.decode_rows(tokens, rows, preview)
    torch.testing.assert_close(part, whole[:, :, rows.start * FACTOR : rows.stop * FACTOR], atol=1e-3 * float(whole.std()), rtol=1e-4)


@pytest.mark.parametrize("preview", [False, True])
def test_a_token_changes_pixels_within_reach_and_no_others(preview: bool) -> None:
    tokenizer = tokenizer_that_looks_around()
    far = reach(tokenizer.preview_decoder if preview else tokenizer.decoder)
    first = torch.randint(0, 32, (1, 24, 1))
    second = first.clone()
    second[0, 12] = (second[0, 12] + 1) % 32
    with torch.no_grad():
        one, two = (tokenizer.decode(tokens, preview)[0].unflatten(1, (24, FACTOR)) for tokens in (first, second))
    changed = (one != two).any(0).any(1).any(1)  # by row of tokens
    assert changed.nonzero().flatten().tolist() == [row for row in range(24) if abs(row - 12) <= far]

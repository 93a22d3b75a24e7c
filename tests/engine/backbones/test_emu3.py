"""The Emu3 adapter against transformers' own loop, on a tiny random model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.core import NO_DRAFT, Draft, Prompt
from tests.engine.backbones import tiny_checkpoints as tiny


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """A whole model, with the halves that the adapter drops."""
    return tiny.emu3_model()


def test_whole_pictures_are_those_of_the_class(model: torch.nn.Module) -> None:
    codes = list(range(16))
    ids = torch.tensor(tiny.code_ids())[codes].view(4, 4)
    whole = torch.cat([torch.cat([ids, torch.full((4, 1), tiny.ROW)], 1).flatten(), torch.zeros(3, dtype=torch.int64)])
    expected = model.decode_image_tokens(image_tokens=whole[None], height=4, width=4)[0].permute(1, 2, 0)
    picture = tiny.emu3().render(codes, codes, True)
    assert np.abs(picture - (expected.clamp(-1, 1) + 1).numpy() * 127.5).max() <= 0.51
    assert picture.std() > 1


def test_a_row_end_costs_a_row_and_no_pass() -> None:
    """The token before it brings it along, in a chain and alone, and its place in the cache is kept with it."""
    with torch.inference_mode():
        sequence = tiny.emu3().start(Prompt(text="red"))
        for token in (1, 2, 3):
            sequence.forward(NO_DRAFT)
            sequence.commit([], token)
        sequence.forward(Draft(torch.tensor([4, 5, 6])))
        sequence.commit([0, 1, 2], 7)
    assert sequence.kv_cache.kept == sequence.prefix + 6
    assert sequence.kv_cache.below.kept == sequence.prefix + 7

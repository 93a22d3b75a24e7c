"""The Emu3 adapter against transformers' own loop, on a tiny random model."""

from __future__ import annotations

import torch

from engine.core import NO_DRAFT, Draft, Prompt
from tests.engine.backbones import tiny_checkpoints as tiny


def test_a_row_end_costs_a_row_and_no_pass() -> None:
    """It runs together with the token before it, in a chain and alone, and their cache rows are kept together."""
    with torch.inference_mode():
        sequence = tiny.emu3().start(Prompt(text="red"))
        for token in (1, 2, 3):
            sequence.forward(NO_DRAFT)
            sequence.commit([], token)
        sequence.forward(Draft(torch.tensor([4, 5, 6])))
        sequence.commit([0, 1, 2], 7)
    assert sequence.kv_cache.kept == sequence.prefix + 6
    assert sequence.kv_cache.below.kept == sequence.prefix + 7

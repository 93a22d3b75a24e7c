"""The pair gives the tokens of guided plain decoding, with transformers' own speculative modes too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from research.bench.guided_pair import GuidedPair
from tests.engine.transformers import models
from tests.engine.transformers.models import NEGATIVE, PROMPT, plain

SCALE = 3.0


def expected() -> list[list[int]]:
    """What transformers' own guidance gives, one token at a time."""
    return plain(models.llama(), guidance_scale=SCALE, negative_prompt_ids=torch.tensor([NEGATIVE]))


@pytest.mark.parametrize("way", ["plain", "prompt lookup", "assisted"])
def test_greedy_tokens_are_those_of_transformers(way: str) -> None:
    pair = GuidedPair(models.llama(), torch.tensor(PROMPT), torch.tensor(NEGATIVE), SCALE)
    how: dict[str, Any] = {}
    if way == "prompt lookup":
        how = {"prompt_lookup_num_tokens": 4}
    if way == "assisted":
        assistant = GuidedPair(models.llama(), torch.tensor(PROMPT), torch.tensor(NEGATIVE), 1.5)
        assistant.generation_config.assistant_confidence_threshold = 0.0
        how = {"assistant_model": assistant}
    passes: list[int] = []
    pair.register_forward_hook(lambda *_: passes.append(1))
    assert plain(pair, **how) == expected()
    assert len(passes) <= 24 if way != "assisted" else len(passes) < 24  # the assistant is often right

"""The peer computes the same function as our decoder: greedy tokens of transformers' generate equal ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.backbones.pictogram import Pictogram
from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import peer, tiny


@pytest.mark.parametrize("make", [tiny.pictogram, tiny.looking])
@pytest.mark.parametrize("text", ["red apple", "two cats on a table"])
def test_greedy_tokens_of_generate_equal_ours(text: str, make: Callable[[], Pictogram]) -> None:
    prompt, backbone = Prompt(text, sampling=Sampling(temperature=0.0, guidance=3.0)), make()
    ours = generate(backbone, METHODS["ar"], prompt).finish().tokens
    assert len(set(ours)) > 2  # not a constant
    assert peer.generate(peer.GuidedModel(backbone, prompt), 0) == ours


@pytest.mark.parametrize("way", ["prompt lookup", "assisted"])
def test_its_speculative_modes_are_right_under_guidance(way: str) -> None:
    """`generate` alone gets them wrong: see the page docs/transformers.md."""
    prompt, backbone = Prompt("two cats on a table", sampling=Sampling(temperature=0.0, guidance=3.0)), tiny.pictogram()
    ours = generate(backbone, METHODS["ar"], prompt).finish().tokens
    model, passes = peer.GuidedModel(backbone, prompt), []
    model.register_forward_hook(lambda *_: passes.append(1))
    how = {"prompt_lookup_num_tokens": peer.DRAFTED} if way == "prompt lookup" else {"assistant_model": peer.assistant_of(backbone, prompt)}
    assert peer.generate(model, 0, **how) == ours
    assert len(passes) < len(ours)  # drafts were accepted, so the cache was rolled back and went on

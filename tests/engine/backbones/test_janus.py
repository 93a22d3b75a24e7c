"""The Janus adapter against transformers' own loop, and the folders it must refuse, on a tiny random model."""

from __future__ import annotations

import pytest
import torch

from engine.backbones.janus import Janus
from engine.core import Prompt, Sampling
from engine.errors import MissingWeights
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny

GREEDY = Sampling(temperature=0.0, guidance=3.0)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """A whole model, understanding half included, as its own generate needs it."""
    return tiny.janus_model()


def test_the_unconditional_prompt_is_padding() -> None:
    ids = [tiny.BOS, 9, 10, tiny.BOI]
    assert tiny.janus().unconditional(ids) == [tiny.BOS, tiny.PAD, tiny.PAD, tiny.BOI]


def test_any_attention_gives_way_to_ours() -> None:
    """A boolean mask would be added as 0 and 1 by eager attention."""
    other = tiny.janus_model()
    other.set_attn_implementation("eager")
    prompt = Prompt(text="red apple", sampling=GREEDY)
    tokens = generate(Janus(other, tiny.janus_ids), METHODS["ar"], prompt).finish().tokens
    assert tokens == generate(tiny.janus(), METHODS["ar"], prompt).finish().tokens


def test_the_codebook_is_what_the_decoder_sees(model: torch.nn.Module) -> None:
    book = tiny.janus().codebook()
    seen = model.model.vqmodel.quantize.get_codebook_entry(torch.arange(16)[None])  # [1, D, 4, 4]
    torch.testing.assert_close(book[:16], seen[0].flatten(1).T)
    assert book.shape == (48, 8)


def test_missing_special_ids_are_refused() -> None:
    other = tiny.janus_model()
    other.generation_config.generation_kwargs = {}
    with pytest.raises(MissingWeights, match="boi_token_id"):
        Janus(other, tiny.janus_ids)

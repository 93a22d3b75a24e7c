"""An independent implementation computes the same function as our decoder: pictogram's weights in transformers' Qwen3 model.

It has the same norms, gated feed-forward, normalised queries and keys; our rotary table takes the place of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3Model

from engine.backbones.pictogram import TEXT_SLOTS, Pictogram, text_mask
from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.networks.transformer import causal_mask
from engine.run import generate
from engine.sampling import guide
from tests.engine.backbones import tiny


class _Table(nn.Module):
    """Rotary positions from a table."""

    def __init__(self, cos: Tensor, sin: Tensor):
        super().__init__()
        self.cos, self.sin = cos, sin

    def forward(self, x: Tensor, position_ids: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        return self.cos[position_ids], self.sin[position_ids]


def qwen3_of(backbone: Pictogram, side: int, widths: Sequence[int]) -> Qwen3Model:
    """Pictogram's decoder as transformers' class. widths : tokens along the side of each look that it reads"""
    ours = backbone.model.decoder
    config = Qwen3Config(
        vocab_size=8, hidden_size=ours.width, intermediate_size=ours.blocks[0].feed_out.in_features, head_dim=ours.width // ours.heads,
        num_hidden_layers=len(ours.blocks), num_attention_heads=ours.heads, num_key_value_heads=ours.heads,
        rms_norm_eps=1e-6, attention_bias=False, attn_implementation="sdpa",
    )  # fmt: skip
    theirs = Qwen3Model(config).eval()
    theirs.rotary_emb = _Table(*backbone.model.rotary(side, widths))
    theirs.norm.load_state_dict(ours.norm.state_dict())
    for a, b in zip(ours.blocks, theirs.layers, strict=True):
        q, k, v = a.query_key_value.weight.chunk(3)
        gate, up = a.gate_up.weight.chunk(2)
        pairs = {
            b.self_attn.q_proj: q, b.self_attn.k_proj: k, b.self_attn.v_proj: v, b.self_attn.o_proj: a.attention_out.weight,
            b.mlp.gate_proj: gate, b.mlp.up_proj: up, b.mlp.down_proj: a.feed_out.weight,
            b.self_attn.q_norm: a.query_norm.weight, b.self_attn.k_norm: a.key_norm.weight,
            b.input_layernorm: a.attention_norm.weight, b.post_attention_layernorm: a.feed_norm.weight,
        }  # fmt: skip
        for module, weight in pairs.items():
            module.weight.data.copy_(weight)
    return theirs


@torch.no_grad()
def guided_logits(backbone: Pictogram, prompt: Prompt, tokens: list[int]) -> Tensor:
    """Guided logits [N, V] of transformers' class in one pass over a prompt and the tokens after it."""
    side, model = backbone._side(prompt.size), backbone.model
    spoken = backbone._with_background(backbone._readable_words(prompt), prompt.seed)
    words = torch.tensor([backbone.ids_of(spoken), [0] * TEXT_SLOTS])
    looks = [each.expand(2, -1, -1) for each in backbone.looks_of(spoken, side)]
    widths = [isqrt(each.shape[2]) for each in looks]
    prefix = model.prefix(words, side, looks)
    known, before = prefix.shape[1], prefix.shape[1] - 1
    drawn = (model.token_table()[torch.tensor([tokens[:-1]])] + model.gist(words, side)).expand(2, -1, -1)
    x = torch.cat([prefix, drawn], 1)
    mask = causal_mask(x.shape[1], 0, x.device)
    mask[:known, :known] = text_mask(known, x.device, before)
    slots = torch.arange(x.shape[1])[None].expand(2, -1)
    x = model.decoder.with_places(x, *(table[slots] for table in model.rotary(side, widths)))
    trunk = qwen3_of(backbone, side, widths)
    hidden = trunk(inputs_embeds=x, attention_mask=mask[None, None].expand(2, 1, -1, -1), position_ids=slots).last_hidden_state
    return guide(nn.functional.linear(hidden[:, before:], model.head_table()), prompt.sampling.guidance)


@pytest.mark.parametrize("make", [tiny.pictogram, tiny.with_looks])
@pytest.mark.parametrize("text", ["red apple", "two cats on a table"])
def test_greedy_tokens_are_those_of_the_class(text: str, make: Callable[[], Pictogram]) -> None:
    prompt, backbone = Prompt(text, sampling=Sampling(temperature=0.0, guidance=3.0)), make()
    ours = generate(backbone, METHODS["ar"], prompt).finish().tokens
    assert len(set(ours)) > 2  # not a constant
    assert guided_logits(backbone, prompt, ours).argmax(-1).tolist() == ours

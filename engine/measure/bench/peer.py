"""Runs transformers' `generate` on pictogram's weights, to compare our plain decoding with a standard implementation.

pictogram has the architecture of transformers' Qwen3 model (norms, gated feed-forward, normalised queries and keys), so its weights load
into that class, with our rotary table in place of its own. A small wrapper runs the guidance pair as a batch of two and gives guided
logits to `generate`, which uses its default dynamic cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel, Qwen3Config, Qwen3Model
from transformers.modeling_outputs import CausalLMOutputWithPast

from engine.backbones.pictogram import TEXT_SLOTS, Pictogram, text_mask
from engine.core import Prompt
from engine.sampling import guide


class _Table(nn.Module):
    """Rotary positions from a table."""

    def __init__(self, cos: Tensor, sin: Tensor):
        super().__init__()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        return self.cos[position_ids], self.sin[position_ids]


def qwen3_of(backbone: Pictogram, side: int) -> Qwen3Model:
    """Returns pictogram's decoder as transformers' class; it computes the same function."""
    ours = backbone.model.decoder
    head = ours.width // ours.heads
    config = Qwen3Config(
        vocab_size=8, hidden_size=ours.width, intermediate_size=ours.blocks[0].feed_out.in_features, head_dim=head,
        num_hidden_layers=len(ours.blocks), num_attention_heads=ours.heads, num_key_value_heads=ours.heads,
        rms_norm_eps=1e-6, attention_bias=False, attn_implementation="sdpa",
    )  # fmt: skip
    theirs = Qwen3Model(config).eval()
    theirs.rotary_emb = _Table(*backbone.model.rotary(side))
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


class GuidedModel(PreTrainedModel, GenerationMixin):
    """The model that `generate` calls: image ids in, guided logits out. The first id stands for the whole prefix."""

    config_class = Qwen3Config

    def __init__(self, backbone: Pictogram, prompt: Prompt):
        side = backbone._side(prompt.size)
        trunk = qwen3_of(backbone, side)
        config = Qwen3Config(**trunk.config.to_dict() | {"vocab_size": backbone.model.vocabulary, "pad_token_id": 0})
        super().__init__(config)
        self.trunk = trunk
        self.sampling = prompt.sampling or backbone.sampling
        self.tokens = side * side
        words = torch.tensor([backbone._read(prompt), [0] * TEXT_SLOTS])
        with torch.inference_mode():
            self.table, self.gist = backbone.model.token_table(), backbone.model.gist(words, side)
            self.rows = backbone.model.head_table()
            self.prefix = backbone.model.prefix(words, side)
            self.with_places, self.tables = backbone.model.decoder.with_places, backbone.model.rotary(side)

    def _init_weights(self, module: nn.Module) -> None:
        """Does nothing: the weights are given."""

    def prepare_inputs_for_generation(self, input_ids: Tensor, past_key_values: Any = None, **_: Any) -> dict[str, Any]:
        """Returns the ids that are not in the cache; the prefix (33 slots) counts as one id."""
        cached = past_key_values.get_seq_length()
        fed = 0 if cached == 0 else cached - TEXT_SLOTS
        return {"input_ids": input_ids[:, fed:], "past_key_values": past_key_values, "use_cache": True}

    def forward(self, input_ids: Tensor, past_key_values: Any = None, **_: Any) -> CausalLMOutputWithPast:
        """Runs one pass of the guidance pair; returns guided logits [1, R, V]."""
        cached = past_key_values.get_seq_length()
        first = cached == 0
        x = self.prefix if first else self.table[input_ids] + self.gist
        mask = text_mask(x.shape[1], x.device)[None, None].expand(2, 1, -1, -1) if first else None
        slots = torch.arange(cached, cached + x.shape[1])[None].expand(2, -1)
        x = self.with_places(x, *(table[slots] for table in self.tables))
        out = self.trunk(inputs_embeds=x, attention_mask=mask, position_ids=slots, past_key_values=past_key_values, use_cache=True)
        logits = guide(nn.functional.linear(out.last_hidden_state[:, -1:], self.rows), self.sampling.guidance)
        return CausalLMOutputWithPast(logits=logits[None], past_key_values=past_key_values)


@torch.inference_mode()
def generate(model: GuidedModel, seed: int) -> list[int]:
    """Returns the tokens of one picture from transformers' `generate` with the prompt's sampling."""
    torch.manual_seed(seed)
    how = {"do_sample": False}
    if model.sampling.temperature:
        chosen = model.sampling
        how = {"do_sample": True, "temperature": chosen.temperature, "top_k": chosen.top_k, "top_p": chosen.top_p}
    ids = model.generate(torch.zeros(1, 1, dtype=torch.int64), max_new_tokens=model.tokens, **how)
    return ids[0, 1:].tolist()

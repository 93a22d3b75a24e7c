"""Runs transformers' `generate` on pictogram's weights: plain, with prompt lookup, and assisted.

pictogram has the architecture of transformers' Qwen3 model (norms, gated feed-forward, normalised queries and keys), so its weights load
into that class, with our rotary table in place of its own. A small wrapper runs the guidance pair as a batch of two and gives guided
logits to `generate`, which uses its default dynamic cache.

With guidance of its own (`guidance_scale`), transformers' prompt lookup and assisted generation give wrong tokens: the processor that
computes the unconditional row has a cache that is never rolled back. In the wrapper both rows share one cache, so they are right. The
assistant is the same model without its upper half of layers, because there is no smaller one with the same tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel, Qwen3Config, Qwen3Model
from transformers.modeling_outputs import CausalLMOutputWithPast

from engine.backbones.pictogram import TEXT_SLOTS, Pictogram, text_mask
from engine.core import Prompt
from engine.networks.transformer import causal
from engine.sampling import guide


class _Table(nn.Module):
    """Rotary positions from a table."""

    def __init__(self, cos: Tensor, sin: Tensor):
        super().__init__()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        return self.cos[position_ids], self.sin[position_ids]


DRAFTED = 4  # tokens that prompt lookup and the assistant draft; as many as our own prompt lookup


def qwen3_of(backbone: Pictogram, side: int, layers: int | None = None, widths: Sequence[int] = ()) -> Qwen3Model:
    """Returns pictogram's decoder as transformers' class; it computes the same function. layers : how many, from the first (all);
    widths : tokens along the side of each look that it reads"""
    ours = backbone.model.decoder
    blocks = list(ours.blocks)[:layers]
    head = ours.width // ours.heads
    config = Qwen3Config(
        vocab_size=8, hidden_size=ours.width, intermediate_size=blocks[0].feed_out.in_features, head_dim=head,
        num_hidden_layers=len(blocks), num_attention_heads=ours.heads, num_key_value_heads=ours.heads,
        rms_norm_eps=1e-6, attention_bias=False, attn_implementation="sdpa",
    )  # fmt: skip
    theirs = Qwen3Model(config).eval()
    theirs.rotary_emb = _Table(*backbone.model.rotary(side, widths))
    theirs.norm.load_state_dict(ours.norm.state_dict())
    for a, b in zip(blocks, theirs.layers, strict=True):
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

    def __init__(self, backbone: Pictogram, prompt: Prompt, layers: int | None = None):
        """layers : of the decoder, from the first (all)"""
        side = backbone._side(prompt.size)
        said = backbone._placed(backbone._said(prompt), prompt.seed)
        words, looks = (
            torch.tensor([backbone.ids_of(said), [0] * TEXT_SLOTS]),
            [tokens.expand(2, -1, -1) for tokens in backbone.looks_of(said, side)],
        )
        widths = [isqrt(tokens.shape[2]) for tokens in looks]
        trunk = qwen3_of(backbone, side, layers, widths)
        config = Qwen3Config(**trunk.config.to_dict() | {"vocab_size": backbone.model.vocabulary, "pad_token_id": 0})
        super().__init__(config)
        self.trunk = trunk
        self.sampling = prompt.sampling or backbone.sampling
        self.tokens = side * side
        with torch.inference_mode():
            self.table, self.gist = backbone.model.token_table(), backbone.model.gist(words, side)
            self.rows = backbone.model.head_table()
            self.prefix = backbone.model.prefix(words, side, looks)
            self.before = self.prefix.shape[1] - 1
            self.with_places, self.tables = backbone.model.decoder.with_places, backbone.model.rotary(side, widths)

    def _init_weights(self, module: nn.Module) -> None:
        """Does nothing: the weights are given."""

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: Any = None, logits_to_keep: int = 1, **_: Any
    ) -> dict[str, Any]:
        """Returns the ids that are not in the cache; the prefix counts as one id."""
        cached = past_key_values.get_seq_length()
        fed = 0 if cached == 0 else cached - self.before
        return {
            "input_ids": input_ids[:, fed:], "past_key_values": past_key_values, "use_cache": True, "logits_to_keep": logits_to_keep,
        }  # fmt: skip

    def forward(self, input_ids: Tensor, past_key_values: Any = None, logits_to_keep: int = 1, **_: Any) -> CausalLMOutputWithPast:
        """Runs one pass of the guidance pair; returns guided logits [1, logits_to_keep, V] of the last ids."""
        cached = past_key_values.get_seq_length()
        if cached:
            x, mask = (self.table[input_ids] + self.gist).expand(2, -1, -1), None
        else:  # drafts may follow the prefix at once
            drafts = (self.table[input_ids[:, 1:]] + self.gist).expand(2, -1, -1)
            x = torch.cat([self.prefix, drafts], 1)
            mask = causal(x.shape[1], 0, x.device)
            known = self.prefix.shape[1]
            mask[:known, :known] = text_mask(known, x.device, self.before)
            mask = mask[None, None].expand(2, 1, -1, -1)
        last = len(self.tables[0]) - 1  # `generate` may draft beyond the picture, and cuts it off afterwards
        slots = torch.arange(cached, cached + x.shape[1]).clamp(max=last)[None].expand(2, -1)
        x = self.with_places(x, *(table[slots] for table in self.tables))
        out = self.trunk(inputs_embeds=x, attention_mask=mask, position_ids=slots, past_key_values=past_key_values, use_cache=True)
        hidden = out.last_hidden_state[:, -logits_to_keep:]
        logits = guide(nn.functional.linear(hidden, self.rows), self.sampling.guidance)
        return CausalLMOutputWithPast(logits=logits[None], past_key_values=past_key_values)


def assistant_of(backbone: Pictogram, prompt: Prompt) -> GuidedModel:
    """Returns the lower half of the model, set to draft DRAFTED tokens however unsure it is (transformers stops below 0.4)."""
    model = GuidedModel(backbone, prompt, len(backbone.model.decoder.blocks) // 2)
    settings = model.generation_config
    settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = DRAFTED, "constant"
    settings.assistant_confidence_threshold = 0.0
    return model


@torch.inference_mode()
def generate(model: GuidedModel, seed: int, **how: Any) -> list[int]:
    """Returns the tokens of one picture from transformers' `generate` with the prompt's sampling.

    how : of its speculative modes, prompt_lookup_num_tokens or assistant_model
    """
    torch.manual_seed(seed)
    how |= {"do_sample": False}
    if model.sampling.temperature:
        chosen = model.sampling
        how |= {"do_sample": True, "temperature": chosen.temperature, "top_k": chosen.top_k, "top_p": chosen.top_p}
    ids = model.generate(torch.zeros(1, 1, dtype=torch.int64), max_new_tokens=model.tokens, **how)
    return ids[0, 1:].tolist()

"""A model and a negative prompt as one model of transformers, whose logits are guided: both rows are one batch with one cache.

transformers computes guidance in a logits processor that has a cache of its own, feeds it one token a call, and never rolls it back. So
prompt lookup and assisted generation with `guidance_scale` give wrong tokens. Around this wrapper they give those of plain decoding, and
each step costs one pass of two rows in place of two passes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, LlamaConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from engine.sampling import guide


class GuidedPair(PreTrainedModel, GenerationMixin):
    """Ids of one prompt in, guided logits out. The prompt must be the one that it was made for."""

    config_class = LlamaConfig  # of the vocabulary and the special ids alone

    def __init__(self, model: PreTrainedModel, prompt: Tensor, negative: Tensor, scale: float):
        """prompt, negative : int64 [n] and [m]; scale : of the guidance"""
        text = model.config.get_text_config(decoder=True)
        super().__init__(LlamaConfig(vocab_size=text.vocab_size, num_hidden_layers=text.num_hidden_layers))
        self.model, self.scale, self.length = model, scale, len(prompt)
        self.generation_config = GenerationConfig(**model.generation_config.to_diff_dict())
        self.slots = max(len(prompt), len(negative))  # of the prompt in the cache
        self.prefix = torch.zeros(2, self.slots, dtype=torch.int64, device=prompt.device)
        self.real = torch.zeros(2, self.slots, dtype=torch.int64, device=prompt.device)
        for row, ids in enumerate((prompt, negative)):
            self.prefix[row, self.slots - len(ids) :] = ids
            self.real[row, self.slots - len(ids) :] = 1

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Does nothing: the weights are given."""

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, past_key_values: Any = None, logits_to_keep: int = 1, **_: Any
    ) -> dict[str, Any]:
        """Returns the ids that are not in the cache."""
        cached = past_key_values.get_seq_length()
        fed = cached - self.slots + self.length if cached else 0
        return {
            "input_ids": input_ids[:, fed:], "past_key_values": past_key_values, "use_cache": True, "logits_to_keep": logits_to_keep,
        }  # fmt: skip

    def forward(self, input_ids: Tensor, past_key_values: Any = None, logits_to_keep: int = 1, **_: Any) -> CausalLMOutputWithPast:
        """Runs one pass of the pair; returns guided logits [1, logits_to_keep, V] of the last ids."""
        cached = past_key_values.get_seq_length()
        new = input_ids if cached else input_ids[:, self.length :]  # drafts may follow the prompt at once
        ids = torch.cat([self.prefix[:, : 0 if cached else self.slots], new.expand(2, -1)], 1)
        total = cached + ids.shape[1]
        mask = torch.cat([self.real, self.real.new_ones(2, total - self.slots)], 1)
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, cached:]
        out = self.model(input_ids=ids, attention_mask=mask, position_ids=places, past_key_values=past_key_values, use_cache=True)
        logits = guide(out.logits[:, -logits_to_keep:].float(), self.scale)
        return CausalLMOutputWithPast(logits=logits[None], past_key_values=past_key_values)

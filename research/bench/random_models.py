"""Decoders with random weights in the sizes of real models: they cost as much as trained ones."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from engine.core import ANY_SUIT, Prompt, Sampling
from engine.drafters.feature_draft import FeatureDrafter, NetworkFeatures
from engine.drafters.predictive_stream import PredictiveStream
from engine.layout import Raster
from engine.networks.hosted import Hosted, HostedTrunk, kv_cache_for
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import causal_mask
from research.train.adapters import new_adapter

COLUMNS = 32  # of the decoded picture
SAMPLING = Sampling(guidance=3.0, top_k=2048)
ADAPTED = ("q_proj", "v_proj")  # layers of the predictive rows' adapter


def shape_of(width: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int) -> dict[str, int]:
    """Settings of a LlamaConfig."""
    return {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": key_heads, "vocab_size": vocabulary,
    }  # fmt: skip


def random_model(shape: Mapping[str, int], device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A decoder of this shape with transformers' random weights, created on the device."""
    torch.manual_seed(0)
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = LlamaConfig(**shape, max_position_embeddings=16384, **ids)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


class RandomBackbone:
    """A backbone with a random decoder and random drafters."""

    name, dtype = "random", ""
    capabilities, suits = frozenset({"raster", "hidden", "feature_draft", "predictive_stream"}), ANY_SUIT

    def __init__(
        self, model: PreTrainedModel, static: bool, keys: int, sampling: Sampling = SAMPLING, columns: int = COLUMNS, padding: int = 0
    ):  # fmt: skip
        """static : True for passes of fixed shapes; keys : tokens of the prompt, of which the last `padding` are missing in the second
        branch of guidance. Replaces the model's attention by ours."""
        self.hosted, self.static = Hosted(model.model, model.model.embed_tokens, model.lm_head), static
        self.device, self.vocabulary, self.sampling = model.device, model.config.vocab_size, sampling
        self.keys, self.layout = keys, Raster(columns, columns)
        self.padding = (0,) if sampling.guidance == 1 else (0, padding)

    @torch.inference_mode()
    def start(self, prompt: Prompt) -> TransformerSequence:
        """A sequence after a fixed prompt."""
        limit, branches = self.layout.rows * self.layout.columns, len(self.padding)
        x = self.hosted.embed(torch.arange(self.keys, device=self.device) % self.vocabulary).expand(branches, -1, -1)
        return TransformerSequence(
            HostedTrunk(self.hosted, self.padding), x, causal_mask(self.keys - 1, 0, self.device),
            kv_cache_for(self.hosted, branches, self.keys + limit), vocabulary=self.vocabulary, limit=limit, layout=self.layout,
            sampling=prompt.sampling or self.sampling, static=self.static,
        )  # fmt: skip

    def drafter(self, name: str) -> NetworkFeatures | PredictiveStream:
        """A random feature drafter or predictive stream, the same at every call."""
        torch.manual_seed(1)
        decoder, config = self.hosted.decoder, self.hosted.decoder.config
        if name == "feature_draft":
            drafter = FeatureDrafter(config.hidden_size, config.num_attention_heads, config.intermediate_size)
            return NetworkFeatures(drafter.requires_grad_(False).to(self.device))
        lora = new_adapter(decoder, ADAPTED, 4, 8.0)
        for up in lora.up:
            torch.nn.init.normal_(up, std=0.1)
        return PredictiveStream(lora.requires_grad_(False).to(self.device, decoder.dtype), True)

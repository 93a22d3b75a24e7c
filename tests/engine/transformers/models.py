"""Tiny random models of transformers, and their generation by `generate` alone and with our callable."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    ChameleonConfig,
    ChameleonForConditionalGeneration,
    FalconConfig,
    FalconForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.transformers import foretoken
from tests.engine.backbones.tiny import spread

VOCABULARY = 40
PROMPT, NEGATIVE = [3, 7, 9, 11, 5], [3, 8]
SHAPE = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
PICTURE_IDS = {"<image>": 39, **{f"IMGIMG{chr(65 + i)}Z": 30 + i for i in range(8)}}
TOKENIZER = {
    "base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1, "embed_dim": 8, "num_embeddings": 8, "latent_channels": 8,
    "resolution": 16, "attn_resolutions": None,
}  # fmt: skip


def random_model(kind: type[PreTrainedModel], config: Any, attention: str = "sdpa") -> PreTrainedModel:
    """A model of a class, with weights that make distributions far from uniform."""
    torch.manual_seed(1)
    config._attn_implementation = attention
    model = kind(config).eval().requires_grad_(False)
    spread(model, 0.3)
    return model


@cache
def llama(attention: str = "sdpa", **settings: Any) -> LlamaForCausalLM:
    """Grouped queries, rotary positions."""
    return random_model(LlamaForCausalLM, LlamaConfig(**SHAPE | settings), attention)


@cache
def qwen3() -> Qwen3ForCausalLM:
    """Normalised queries and keys."""
    return random_model(Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=8))


@cache
def gpt2() -> GPT2LMHeadModel:
    """Learned absolute positions."""
    shape = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    return random_model(GPT2LMHeadModel, GPT2Config(vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=None, **shape))


@cache
def chameleon() -> ChameleonForConditionalGeneration:
    """A class whose forward hides the picture ids."""
    return random_model(ChameleonForConditionalGeneration, ChameleonConfig(**SHAPE, vocabulary_map=PICTURE_IDS, vq_config=TOKENIZER))


@cache
def qwen2() -> Qwen2ForCausalLM:
    """Biases of queries and keys, and a head that is the embedding."""
    return random_model(Qwen2ForCausalLM, Qwen2Config(**SHAPE, tie_word_embeddings=True))


@cache
def mistral(window: int | None = 16, attention: str = "sdpa") -> MistralForCausalLM:
    """Every layer attends to the last tokens."""
    return random_model(MistralForCausalLM, MistralConfig(**SHAPE, sliding_window=window), attention)


@cache
def gemma3(window: int = 16, attention: str = "sdpa") -> Gemma3ForCausalLM:
    """One layer attends to the last tokens, one to all, each with its own rotary positions."""
    kinds = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": window, "tie_word_embeddings": False}
    return random_model(Gemma3ForCausalLM, Gemma3TextConfig(**SHAPE, head_dim=8, query_pre_attn_scalar=8, **kinds), attention)


@cache
def llama4() -> Llama4ForCausalLM:
    """Attends in chunks of 16 tokens."""
    shape = SHAPE | {"head_dim": 8, "attention_chunk_size": 16, "num_local_experts": 2, "intermediate_size_mlp": 64}
    return random_model(Llama4ForCausalLM, Llama4TextConfig(**shape))


@cache
def falcon() -> FalconForCausalLM:
    """Positions as an attention bias, which it computes from the mask."""
    return random_model(FalconForCausalLM, FalconConfig(**SHAPE, alibi=True))


@cache
def bart() -> BartForConditionalGeneration:
    """Has an encoder."""
    parts = {f"{part}_{what}": 2 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None}
    config = BartConfig(vocab_size=VOCABULARY, d_model=32, encoder_ffn_dim=32, decoder_ffn_dim=32, **parts, **ids)
    return random_model(BartForConditionalGeneration, config)


MODELS = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3, "gpt2": gpt2, "chameleon": chameleon}


def plain(model: PreTrainedModel, ids: list[int] | Tensor = PROMPT, **settings: Any) -> list[list[int]]:
    """Output of `generate` alone."""
    ids = torch.tensor([ids]) if isinstance(ids, list) else ids
    return model.generate(ids, **{"max_new_tokens": 24, "do_sample": False} | settings).tolist()


def ours(model: PreTrainedModel, method: str = "sjdpp", ids: list[int] | Tensor = PROMPT, **settings: Any) -> list[list[int]]:
    """Output of `generate` with our callable."""
    return plain(model, ids, custom_generate=foretoken(method), **settings)

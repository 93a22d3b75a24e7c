"""A tiny random checkpoint of GLM-Image's autoregressive half."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Sequence, Split, WhitespaceSplit
from torch import nn
from transformers import GenerationConfig, GlmImageConfig, GlmImageForConditionalGeneration, PreTrainedTokenizerFast

from engine.backbones.glm_image import FACTOR, GlmImage
from tests.engine.backbones.tiny import spread

CODES, START, END, FIRST_WORD = 24, 24, 25, 30  # ids of codes come first, then begin and end of a picture
SMALL, COLUMNS = 2, 4
TEMPLATE = "{% for m in messages %}<|user|> {{ m.content[0].text }} {% endfor %}"
WORDS = ["<sop>", "<eop>", "<|user|>", "red", "apple", "<unk>", "2", "4", "16", "32", "64"]


@cache
def model() -> GlmImageForConditionalGeneration:
    """24 codes; grouped queries; three rotary axes of 1, 1 and 2 pairs on half of each head."""
    torch.manual_seed(13)
    config = GlmImageConfig(
        text_config=dict(
            vocab_size=64, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, vision_vocab_size=28, pad_token_id=29, eos_token_id=END,
            rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 2]},
        ),
        vision_config=dict(depth=1, hidden_size=16, num_heads=2, intermediate_size=16, image_size=8, patch_size=4),
        vq_config=dict(num_embeddings=CODES, embed_dim=8, latent_channels=8),
        image_start_token_id=START, image_end_token_id=END, image_token_id=28,
    )  # fmt: skip
    network = GlmImageForConditionalGeneration(config).eval().requires_grad_(False)
    spread(network.model.language_model, 0.25)
    nn.init.normal_(network.lm_head.weight, std=0.3)
    nn.init.normal_(network.model.vqmodel.quantize.embedding.weight)
    return network


def read(text: str, side: int) -> list[int]:
    """A prompt without a tokenizer: one id per letter, then begin of picture."""
    return [*(FIRST_WORD + ord(c) % 30 for c in text[:24]), START]


@cache
def glm_image(columns: int = COLUMNS, codes: int = CODES) -> GlmImage:
    """The tiny backbone: a small picture of 2x2 and a whole one of 4x4 tokens. Its model is a copy: hosting changes the attention.

    codes : it draws the first ones only"""
    own = GlmImageForConditionalGeneration(deepcopy(model().config)).eval().requires_grad_(False)
    own.load_state_dict(model().state_dict())
    own.config.vq_config.num_embeddings = codes
    return GlmImage(own, read, sides=(columns * FACTOR,), small=SMALL)


def save(folder: Path) -> Path:
    """A folder in transformers' form, with the tokenizer in `processor`."""
    network = model()
    network.save_pretrained(folder)
    GenerationConfig(do_sample=True, temperature=0.9, top_p=0.75, eos_token_id=END).save_pretrained(folder)
    ids = {word: FIRST_WORD + i for i, word in enumerate(WORDS)} | {"<|picture|>": START}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Sequence([Split("<sop>", "isolated"), Split("<eop>", "isolated"), WhitespaceSplit()])
    processor = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|picture|>", unk_token="<unk>", chat_template=TEMPLATE,
        extra_special_tokens={"grid_bos_token": "<sop>", "grid_eos_token": "<eop>"},
    )  # fmt: skip
    processor.save_pretrained(folder / "processor")
    return folder

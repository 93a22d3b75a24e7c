"""Tiny random checkpoints of the families that are not shipped: the real classes, milliseconds per run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from torch import nn
from transformers import (
    Emu3Config,
    Emu3ForConditionalGeneration,
    Emu3TextConfig,
    Emu3VQVAEConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.backbones.emu3 import ROW_END, Emu3
from engine.backbones.emu35 import Emu35, SpecialIds
from engine.layout import Raster
from engine.networks.vqgan import PictureDecoder, VQGANSettings
from tests.engine.backbones.tiny import spread

BOS, BOI, IMAGE, ROW, PAD = 0, 1, 2, 3, 4
LETTERS, CODES, FIRST_CODE = 20, 24, 40  # ids 5..24 are letters; codes are not the last ids, and not in order


def code_ids() -> list[int]:
    """The id of each code: a permutation, as checkpoints may have one."""
    return [FIRST_CODE + (7 * code) % CODES for code in range(CODES)]


def emu3_model() -> Emu3ForConditionalGeneration:
    """24 codes in a vocabulary of 72; grouped queries (4 heads, 2 key heads); a picture decoder of factor 2."""
    torch.manual_seed(5)
    names = {f"<|visual token {code:06d}|>": i for code, i in enumerate(code_ids())} | {ROW_END: ROW, "<image>": IMAGE}
    config = Emu3Config(
        text_config=Emu3TextConfig(
            vocab_size=72, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=96, bos_token_id=BOS, eos_token_id=71, pad_token_id=PAD,
        ),
        vq_config=Emu3VQVAEConfig(
            codebook_size=CODES, embed_dim=4, latent_channels=4, base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1,
            attn_resolutions=[1], hidden_size=32, num_attention_heads=1, temporal_downsample_factor=4,
        ),
        vocabulary_map=names,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    model = Emu3ForConditionalGeneration(config).eval().requires_grad_(False)
    spread(model.model.text_model, 0.25)
    nn.init.normal_(model.lm_head.weight, std=0.4)
    nn.init.normal_(model.model.vqmodel.quantize.embedding.weight)
    return model


def read(text: str, layout: Raster) -> list[int]:
    """A prompt without a tokenizer: begin, one id per letter, begin of image, the size, a mark."""
    letters = [5 + ord(c) % LETTERS for c in text]
    return [BOS, *letters[:24], BOI, 25 + layout.rows, 25 + layout.columns, IMAGE]


@cache
def emu3() -> Emu3:
    """The tiny Emu3: pictures of 4x4 codes."""
    return Emu3(emu3_model(), read, side=4)


IDS = SpecialIds(row_end=ROW, begin=BOS, answer=30, image=BOI, codes_follow=IMAGE, first_code=FIRST_CODE)


def emu35_model() -> Qwen3ForCausalLM:
    """24 codes in a vocabulary of 72; grouped queries, normalised."""
    torch.manual_seed(6)
    config = Qwen3Config(
        vocab_size=72, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        max_position_embeddings=160, bos_token_id=BOS, eos_token_id=71, pad_token_id=PAD, rope_theta=1e6, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval().requires_grad_(False)
    spread(model.model, 0.25)
    nn.init.normal_(model.lm_head.weight, std=0.4)
    return model


def ibq() -> PictureDecoder:
    """A picture decoder of factor 2 for 24 codes."""
    torch.manual_seed(7)
    settings = VQGANSettings(CODES, 8, latent=32, stages=(64, 32), blocks=2, normalised=False)
    return PictureDecoder(settings).eval().requires_grad_(False)


def letters(text: str) -> list[int]:
    """Ids of a text without a tokenizer: one per letter, at most 40."""
    return [5 + ord(c) % LETTERS for c in text.removeprefix("You are a helpful assistant")][:40]


@cache
def emu35() -> Emu35:
    """The tiny Emu3.5: pictures of 4x4 codes."""
    return Emu35(emu35_model(), ibq(), letters, side=4, ids=IDS)


MARKS = {"boi_token": "<|image start|>", "image_wrapper_token": "<|image token|>"}


def save_emu3_tokenizer(folder: Path, marks: dict[str, str] = MARKS) -> None:
    """A tokenizer of letters with the marks of Emu3's."""
    known = {"<bos>": 0, "<|image start|>": 1, "<|image token|>": 2, "<pad>": 4, "<unk>": 5}
    known |= {letter: 6 + i for i, letter in enumerate("abcdefghijklmnopqrst")} | {"4": 29, "*": 30}
    tokenizer = Tokenizer(WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split("", "isolated")
    special = {"bos_token": "<bos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, extra_special_tokens=marks, **special).save_pretrained(folder)

"""Tiny random checkpoints of Chameleon's descendants."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from transformers import ChameleonConfig, ChameleonForConditionalGeneration, PreTrainedTokenizerFast

from engine.backbones import vqgan_names
from engine.backbones.chameleon import BEGIN, KINDS, ROW_END, TURN, Chameleon, ChameleonVariant, codes_of, size_word
from tests.engine.backbones.tiny import spread
from tests.engine.backbones.tiny_originals import CODES, decoder_tensors, picture_decoder

SIDE, BOS = 8, 1
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["<pad>", "<s>", "</s>", "<unk>", TURN, BEGIN, ROW_END, size_word(SIDE), *LETTERS, "red", "apple"]
SIZE = len(WORDS) + CODES


def words() -> dict[str, int]:
    """Id by name; the codes are not in order, as checkpoints may have them."""
    names = {word: i for i, word in enumerate(WORDS)}
    for code in range(CODES):
        names["IMGIMG" + "".join(chr(ord("A") + int(digit)) for digit in f"{code:04d}") + "Z"] = len(WORDS) + (7 * code) % CODES
    return names


@cache
def model() -> ChameleonForConditionalGeneration:
    """Two layers of grouped queries; the encoder of pictures is as small as it may be."""
    torch.manual_seed(12)
    config = ChameleonConfig(
        vocab_size=SIZE, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, vocabulary_map=words() | {"<image>": 3}, bos_token_id=BOS, eos_token_id=2, pad_token_id=0,
        vq_config={"base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1, "num_embeddings": CODES, "embed_dim": 4,
                   "latent_channels": 4, "resolution": 8},
    )  # fmt: skip
    network = ChameleonForConditionalGeneration(config).eval().requires_grad_(False)
    spread(network.model, 0.25)
    for layer in network.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            nn.init.normal_(norm.weight, 1, 0.3)
            nn.init.normal_(norm.bias, std=0.3)
    nn.init.normal_(network.lm_head.weight, std=0.4)
    return network


def kind(name: str) -> ChameleonVariant:
    """A kind that makes pictures of 8 pixels, 4x4 codes."""
    return replace(KINDS[name], sides=(SIDE,))


def ids(text: str) -> list[int]:
    """A text without a tokenizer: one id per letter, at most 24."""
    return [WORDS.index(letter) for letter in text.lower() if letter in LETTERS][-24:]


@cache
def chameleon(name: str) -> Chameleon:
    """The tiny backbone of a kind. Its trunk is a copy, because a hosted trunk has another attention."""
    own = ChameleonForConditionalGeneration(deepcopy(model().config)).eval().requires_grad_(False)
    own.load_state_dict(model().state_dict())
    codes = codes_of(words(), picture_decoder(), kind(name))
    head = nn.Linear(32, CODES, bias=False)
    head.weight = nn.Parameter(own.lm_head.weight[codes], requires_grad=False)
    return Chameleon(own.model, head, picture_decoder(), kind(name), codes, words(), ids, BOS)


def save(folder: Path, lumina: bool = False) -> Path:
    """A folder in transformers' form, with Meta's file of the picture decoder."""
    model().save_pretrained(folder)
    if lumina:
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"vocab_size"', '"mask_image_logits": false, "vocab_size"'))
    known = {word: i for word, i in words().items() if i < len(WORDS)}
    tokenizer = Tokenizer(WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>").save_pretrained(folder)
    torch.save({"state_dict": decoder_tensors(vqgan_names.taming), "epoch": 3}, folder / "vqgan.ckpt")
    return folder


def save_decoder(path: Path) -> None:
    """The picture decoder alone, as safetensors."""
    save_file({name: tensor.contiguous() for name, tensor in decoder_tensors(vqgan_names.taming).items()}, path)

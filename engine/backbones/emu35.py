"""emu35: text -> picture with Emu3.5 and Emu3.5-Image (BAAI, 34B).

Paper: Emu3.5: Native Multimodal Models are World Learners, arXiv 2510.26583.
The trunk is Qwen3's, tensor by tensor, with one vocabulary for words and for the 131,072 codes of its picture tokenizer, IBQ. After the
conversation come begin of image, "height*width" in words, a mark, and the codes row by row. Every row but the last closes with a row-end
token. Guidance pairs the conversation with one without the text, which is shorter and padded.

A folder has config.json, the weights as safetensors, emu3.tiktoken, and the picture tokenizer in its subfolder vision_tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from engine.backbones.checkpoint_files import (
    UNREADABLE,
    check_room,
    checkpoint_folder,
    cut_numbers,
    dtype_of,
    numbers_in,
    read_config,
    read_model,
)
from engine.backbones.originals import originals
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.backbones.tiktoken_file import read_tiktoken
from engine.backbones.vqgan_names import decoder_of, taming
from engine.checkpoints.families import ADAPTED, stated_licence
from engine.core import Sampling
from engine.errors import MissingWeights, first_line
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.memory import FULL
from engine.networks.hosted import Hosted, slice_head
from engine.networks.vqgan import PictureDecoder

FAMILY = ADAPTED["emu35"]
SIDE, FACTOR, CODES = 64, 16, 131_072  # codes in a row of a square picture of the trained area; pixels of a code; codes of IBQ
CONVERSATION = "You are a helpful assistant for t2i task. USER: {} ASSISTANT: "  # the checkpoint's, for pictures from text
WITHOUT_TEXT = "You are a helpful assistant. USER:  ASSISTANT: "
COPIED = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "hidden_act", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip


@dataclass(frozen=True)
class SpecialIds:
    """Ids of special tokens, and of code 0; the other codes follow it. The defaults are those of the checkpoint."""

    row_end: int = 151_846
    begin: int = 151_849
    answer: int = 151_746  # begin of the answer
    image: int = 151_852  # begin of image
    codes_follow: int = 151_851
    first_code: int = 151_854


IDS = SpecialIds()


class Emu35(PictureCheckpoint):
    """The backbone: a Qwen3ForCausalLM, a picture decoder, and a function from text to ids without special tokens."""

    name, sampling = "emu35", Sampling(temperature=1.0, top_k=5120, top_p=1.0, guidance=5.0)

    def __init__(
        self, model: Qwen3ForCausalLM, picture: PictureDecoder, read: Callable[[str], list[int]],
        side: int = SIDE, ids: SpecialIds = IDS, licence: str = "",
    ):  # fmt: skip
        """side : codes in a row of the picture"""
        self.model, self.picture, self.read, self.ids = model.eval(), picture.eval(), read, ids
        self.vocabulary = picture.codes.num_embeddings
        codes = torch.arange(ids.first_code, ids.first_code + self.vocabulary, device=model.device)
        self.head, table = nn.Sequential(slice_head(model.lm_head, codes)), model.model.embed_tokens
        hosted = Hosted(model.model, lambda tokens: table(tokens + ids.first_code), self.head, table.weight[ids.row_end])
        super().__init__(hosted, [*model.parameters(), *picture.parameters()], licence)
        self.layouts = {side * picture.factor: Raster(side, side, picture.factor)}

    def rows(self, text: str, layout: Raster) -> list[list[int]]:
        """The conversation, and the same without the text."""
        ids = self.ids
        size = [ids.answer, ids.image, *self.read(f"{layout.rows}*{layout.columns}"), ids.codes_follow]
        return [[ids.begin, *self.read(words), *size] for words in (CONVERSATION.format(text), WITHOUT_TEXT)]


def qwen3_config(folder: Path) -> Qwen3Config:
    """The configuration of the trunk, from BAAI's config.json or a converted one; raises MissingWeights for a damaged one."""
    entries = read_config(folder, FAMILY.source)
    lacking = [name for name in COPIED[:7] if type(entries.get(name)) is not int]
    if lacking:
        raise MissingWeights(f"The config.json in {folder} has no {lacking[0]}. Download it again.")
    try:
        theta = entries.get("rope_theta") or (entries.get("rope_parameters") or {}).get("rope_theta")
        return Qwen3Config(**{name: entries[name] for name in COPIED if name in entries}, rope_theta=float(theta))
    except UNREADABLE as e:
        raise MissingWeights(f"The config.json in {folder} cannot be read ({first_line(e)}). Download it again.") from e


def read_picture_decoder(folder: Path) -> PictureDecoder:
    """IBQ's decoder, in float32, from the subfolder vision_tokenizer or, as an import writes it, from next to the weights. Raises
    MissingWeights or NotSupported.

    IBQ is VQGAN with another codebook: Scalable Image Tokenization with Index Backpropagation Quantization, arXiv 2412.02692."""
    own = folder / "vision_tokenizer"
    where = own if any(own.glob("*")) else folder
    with originals(str(where), "The picture tokenizer", "picture tokenizer, BAAI/Emu3.5-VisionTokenizer") as checkpoint:
        return decoder_of(checkpoint, taming, normalised=False)


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> Emu35:
    """The backbone in a local folder; downloads nothing.

    Raises MissingWeights or BadFile for an absent, incomplete or damaged folder, NotSupported for that of another model, TooLittleMemory.
    """
    folder = checkpoint_folder(path, FAMILY)
    kind, config = dtype_of(device, dtype), qwen3_config(folder)
    numbers = numbers_in(folder) - cut_numbers(config, CODES)
    check_room(FAMILY, numbers, config, Raster(SIDE, SIDE, FACTOR), CODES, device, kind, weights)
    read, pictures = read_tiktoken(folder / "emu3.tiktoken"), read_picture_decoder(folder)
    model = read_model(folder, Qwen3ForCausalLM, kind, "model.layers.", config, device, weights)
    backbone = Emu35(model, pictures.to(device), read, SIDE, IDS, stated_licence(folder))
    model.lm_head = None  # replaced by its rows of the codes
    make_steady([backbone.hosted.decoder, backbone.head])
    return backbone

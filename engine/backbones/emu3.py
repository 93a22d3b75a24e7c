"""emu3: text -> picture with Emu3-Gen (BAAI, 8B), through the classes of transformers.

Paper: Emu3: Next-Token Prediction is All You Need, arXiv 2409.18869.
A Llama trunk with one vocabulary for words and pictures. After the text come begin of image, "height*width" in words, a mark, and then
the codes row by row; every row closes with a row-end token. Logits are those of the 32,768 codes. Guidance pairs the prompt with a
negative one, which is longer or shorter; the shorter is padded.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import Emu3Config, Emu3ForConditionalGeneration, PreTrainedTokenizerBase

from engine.backbones.checkpoint_files import (
    check_room,
    checkpoint_folder,
    configuration,
    cut_numbers,
    dtype_of,
    numbers_in,
    read_model,
    read_tokenizer,
)  # fmt: skip
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.checkpoints.families import ADAPTED, stated_licence
from engine.core import Sampling
from engine.errors import MissingWeights, NotSupported
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.memory import FULL
from engine.networks.hosted import Hosted, slice_head

FAMILY = ADAPTED["emu3"]
SIDE = 90  # codes along the side of the trained pictures (720 pixels)
NEGATIVE = "low quality, blurry, distorted, cropped, watermark, text"  # the prompt that guidance leads away from
ROW_END = "<|extra_200|>"
MARKS = ("bos_token", "boi_token", "image_wrapper_token")  # of the tokenizer: begin of sequence, begin of image, begin of codes


class Emu3(PictureCheckpoint):
    """The backbone: an Emu3ForConditionalGeneration, and a function from a text with marks to token ids."""

    name, sampling = "emu3", Sampling(temperature=1.0, top_k=2048, top_p=1.0, guidance=3.0)

    def __init__(self, model: Emu3ForConditionalGeneration, read: Callable[[str, Raster], list[int]], side: int = SIDE, licence: str = ""):
        """read : from a text and the picture's layout to the ids of a whole prompt; side : codes in a row of the picture"""
        self.model, self.read = model.eval(), read
        text, (codes, row_end) = model.model.text_model, picture_ids(model)
        ids = torch.tensor(codes, device=model.device)
        self.head = nn.Sequential(slice_head(model.lm_head, ids))
        hosted = Hosted(text, lambda tokens: text.embed_tokens(ids[tokens]), self.head, text.embed_tokens.weight[row_end])
        super().__init__(hosted, model.parameters(), licence)
        layout = layout_of(model.config, side)
        self.layouts, self.vocabulary = {side * layout.factor: layout}, len(codes)

    def rows(self, text: str, layout: Raster) -> list[list[int]]:
        """The prompt, and the negative prompt."""
        return [self.read(text, layout), self.read(NEGATIVE, layout)]

    def decode(self, codes: Tensor) -> Tensor:
        """The picture [H, W, 3], in about -1..1, of codes int64 [rows, columns]."""
        return self.model.model.vqmodel.decode(codes[None])[0].permute(1, 2, 0)

    def codebook(self) -> Tensor:
        """The vector of every code, float32 [V, D]."""
        return self.model.model.vqmodel.quantize.embedding.weight.detach().float()


def layout_of(config: Emu3Config, side: int) -> Raster:
    """The layout of a square picture."""
    return Raster(side, side, 2 ** (len(config.vq_config.channel_multiplier) - 1))


def picture_ids(model: Emu3ForConditionalGeneration) -> tuple[list[int], int]:
    """The id of each code in order, and that of the row end; raises NotSupported for a model without them."""
    names, size = model.config.vocabulary_map or {}, model.config.vq_config.codebook_size
    id_of = model.vocabulary_mapping.img2bpe if names else {}
    row_end = names.get(ROW_END)
    if sorted(id_of) != list(range(size)) or row_end is None:
        raise NotSupported(f"The vocabulary_map in config.json names {len(id_of):,} of {size:,} codes. Use {FAMILY.source}.")
    return [id_of[code] for code in range(size)], row_end


def reader(tokenizer: PreTrainedTokenizerBase) -> Callable[[str, Raster], list[int]]:
    """A function from a text and a layout to the ids of a prompt; raises MissingWeights if the tokenizer lacks a mark."""
    marks = [getattr(tokenizer, mark, None) for mark in MARKS]
    if None in marks:
        raise MissingWeights(f"The tokenizer has no {MARKS[marks.index(None)]}. Download {FAMILY.source} again.")
    begin, picture, codes = marks

    def read(text: str, layout: Raster) -> list[int]:
        whole = f"{begin}{text}{picture}{layout.rows}*{layout.columns}{codes}"
        return tokenizer(whole, add_special_tokens=False).input_ids

    return read


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> Emu3:
    """The backbone in a local folder; downloads nothing.

    Raises MissingWeights for an absent, incomplete or damaged folder, NotSupported for the folder of another model, TooLittleMemory.
    """
    folder = checkpoint_folder(path, FAMILY)
    kind = dtype_of(device, dtype)
    config = configuration(folder, Emu3Config)
    layout, read = layout_of(config, SIDE), reader(read_tokenizer(folder))
    text, codes = config.text_config, config.vq_config.codebook_size
    check_room(FAMILY, numbers_in(folder) - cut_numbers(text, codes), text, layout, codes, device, kind, weights)
    model = read_model(folder, Emu3ForConditionalGeneration, kind, "model.text_model.", config, device, weights)
    model.model.vqmodel.encoder = None  # for reading pictures; generation never calls it
    model.model.vqmodel.float()
    backbone = Emu3(model, read, SIDE, stated_licence(folder))
    model.lm_head = None  # replaced by its rows of the codes
    make_steady([backbone.hosted.decoder, backbone.head])
    return backbone

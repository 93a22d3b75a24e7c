"""glm_image: text -> picture tokens with the autoregressive half of GLM-Image (Z.ai), through the classes of transformers.

Source: zai-org/GLM-Image; the class `GlmImageForConditionalGeneration` of transformers and `GlmImagePipeline` of diffusers.
The model writes a small picture of 16x16 tokens first, then the whole one of 32x32, or 64x64, without guidance. Pixels come from the other
half, a diffusion transformer of 7 billion parameters, which is not here. What is shown is a map of the tokens: similar tokens have similar
colours. The first rows of the map are the small picture, in rows as wide as the whole one.

Rotary positions have three axes: a token of a picture is at its row and column in it, a word at the same place on all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GlmImageConfig, GlmImageForConditionalGeneration, PreTrainedTokenizerBase

from engine.backbones.checkpoint_files import (
    check_room,
    checkpoint_folder,
    configuration,
    dtype_of,
    numbers_in,
    read_model,
    read_tokenizer,
)  # fmt: skip
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.backbones.preview import CELLS, Preview
from engine.checkpoints.families import ADAPTED, stated_licence
from engine.core import Sampling
from engine.errors import MissingWeights, NotSupported
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.memory import FULL
from engine.networks.hosted import Hosted, slice_head

FAMILY = ADAPTED["glm_image"]
FACTOR = 32  # pixels of a token
SMALL = 16  # tokens in a row of the small picture
SIDES = (1024, 2048)  # pixels; the small picture must fill whole rows of the map
MARKS = ("grid_bos_token", "grid_eos_token", "bos_token")  # of the tokenizer, around sizes and before the tokens
SPREAD = 2.0  # standard deviations at which the colours of the map saturate


class GlmImage(PictureCheckpoint):
    """The backbone: a GlmImageForConditionalGeneration and a function from a text and the side in tokens to the ids of a prompt."""

    name, sampling = "glm_image", Sampling()

    def __init__(
        self, model: GlmImageForConditionalGeneration, read: Callable[[str, int], list[int]], licence: str = "",
        sides: tuple[int, ...] = SIDES, small: int = SMALL,
    ):  # fmt: skip
        """small : tokens in a row of the small picture"""
        self.model, self.read, self.small = model.eval(), read, small
        text, self.vocabulary = model.model.language_model, model.config.vq_config.num_embeddings
        self.head = nn.Sequential(slice_head(model.lm_head, torch.arange(self.vocabulary, device=model.device)))
        super().__init__(Hosted(text, text.embed_tokens, self.head), model.parameters(), licence)
        self.layouts = {side: layout_of(side, small) for side in sides}
        self.sampling = sampling_of(model)

    def rows(self, text: str, layout: Raster) -> list[list[int]]:
        """The prompt alone: there is no guidance."""
        return [self.read(text, layout.columns)]

    def place_decoder(self, lengths: Sequence[int], layout: Raster) -> Hosted:
        """The decoder for prompts of these lengths: after each comes a small picture, then the whole one."""
        tables = torch.tensor(lengths)[:, None], grids(self.small, layout.columns)
        return replace(self.hosted, place=place, tables=tuple(each.to(self.device) for each in tables))

    def decode(self, codes: Tensor) -> Tensor:
        """The map of tokens int64 [rows, columns]: [rows * 32, columns * 32, 3], in about -1..1."""
        return self.preview.picture(codes)

    @cached_property
    def preview(self) -> Preview:
        """The colours of the tokens: their vectors along the three directions in which they differ most."""
        book = self.codebook()
        book = book - book.mean(0)
        directions = torch.linalg.eigh(book.T @ book).eigenvectors[:, -3:]
        colours = book @ directions
        colours = (colours / (SPREAD * colours.std(0).clamp(min=1e-12))).clamp(-1, 1)
        return Preview(colours[:, None, None].expand(-1, CELLS, CELLS, -1), FACTOR)

    def prior_token_ids(self, tokens: list[int], size: int | None = None) -> Tensor:
        """`prior_token_ids` of diffusers' GlmImagePipeline: int64 [1, 4 n] on the model's device, every token of the whole picture 2 x 2
        times, row by row, without the small picture. Raises NotSupported for an unfinished run."""
        layout = self._layout(size)
        if len(tokens) < (needed := layout.starts[-1]):
            raise NotSupported(f"The picture has {len(tokens):,} of {needed:,} tokens. Finish the run first.")
        whole = torch.tensor(tokens[self.small * self.small :], device=self.device).view(-1, layout.columns)
        return whole.repeat_interleave(2, 0).repeat_interleave(2, 1).view(1, -1)

    def codebook(self) -> Tensor:
        """The vector of every token, float32 [V, D]: rows of length 1, because the encoder normalises them."""
        return F.normalize(self.model.model.vqmodel.quantize.embedding.weight.detach().float(), dim=-1)


def layout_of(side: int, small: int) -> Raster:
    """The rows of the small picture, as wide as those of the whole one, then the whole one."""
    columns = side // FACTOR
    return Raster(small * small // columns + columns, columns, FACTOR, small)


def grids(small: int, columns: int) -> Tensor:
    """The places of a picture's tokens on the three axes after an empty prompt, int64 [3, tokens]: the small picture, the whole one."""
    parts, start = [], 0
    for side in (small, columns):
        row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        parts.append(start + torch.stack([torch.zeros_like(row), row, column]).flatten(1))
        start += side
    return torch.cat(parts, 1)


def place(slots: Tensor, lengths: Tensor, grid: Tensor) -> Tensor:
    """The places of slots int64 [1 or branches, R] on the three axes, [3, branches, R]: words along all of them, then the pictures.

    lengths : of the prompts, int64 [branches, 1]; grid : see `grids`
    """
    after = slots - lengths
    return torch.where(after < 0, slots, lengths + grid[:, after.clamp(min=0)])


def sampling_of(model: GlmImageForConditionalGeneration) -> Sampling:
    """The settings in the checkpoint's generation_config.json; what it leaves out is off."""
    settings = model.generation_config
    values = {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
    return Sampling(**{name: value for name, value in values.items() if value is not None})


def reader(tokenizer: PreTrainedTokenizerBase) -> Callable[[str, int], list[int]]:
    """A function from a text and the side in tokens to the ids of a prompt; raises MissingWeights if the tokenizer lacks what it needs."""
    marks = [getattr(tokenizer, mark, None) for mark in MARKS]
    lacking = [mark for mark, token in zip(MARKS, marks, strict=True) if not token]
    if not tokenizer.chat_template:
        lacking.append("chat template")
    if lacking:
        raise MissingWeights(f"The tokenizer has no {lacking[0]}. Copy the folder processor of zai-org/GLM-Image next to the weights.")
    begin, end, picture = marks

    def read(text: str, side: int) -> list[int]:
        message = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        conversation = tokenizer.apply_chat_template(message, tokenize=False)
        sizes = "".join(f"{begin}{each} {each}{end}" for each in (side, SMALL))
        return tokenizer(f"{conversation}{sizes}{picture}", add_special_tokens=False).input_ids

    return read


def tokenizer_in(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder, in `processor` inside it or next to it; raises MissingWeights."""
    for place in (folder, folder / "processor", folder.parent / "processor"):
        if (place / "tokenizer.json").is_file():
            return read_tokenizer(place)
    raise MissingWeights(f"{folder} holds no tokenizer. Copy the folder processor of zai-org/GLM-Image into it.")


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> GlmImage:
    """The backbone in a local folder; downloads nothing.

    Raises MissingWeights for an absent, incomplete or damaged folder, NotSupported for the folder of another model, TooLittleMemory.
    """
    folder, kind = checkpoint_folder(path, FAMILY), dtype_of(device, dtype)
    config, tokenizer = configuration(folder, GlmImageConfig), tokenizer_in(folder)
    layout, codes = layout_of(SIDES[0], SMALL), config.vq_config.num_embeddings
    check_room(FAMILY, numbers_in(folder), config.text_config, layout, codes, device, kind, weights, branches=1, decodes=False)
    model = read_model(folder, GlmImageForConditionalGeneration, kind, "model.language_model.", config, device, weights)
    model.model.visual = None  # for reading pictures; generation never calls it
    backbone = GlmImage(model, reader(tokenizer), stated_licence(folder) or "MIT")
    model.lm_head = None  # replaced by its rows of the tokens
    make_steady([backbone.hosted.decoder, backbone.head])
    return backbone

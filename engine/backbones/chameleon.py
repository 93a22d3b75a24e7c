"""chameleon: text -> picture with the descendants of Meta's Chameleon that draw: Anole, Lumina-mGPT and Lumina-mGPT 2.

Papers: Chameleon, arXiv 2405.09818; Anole, arXiv 2407.06135; Lumina-mGPT, arXiv 2408.02657; Lumina-mGPT 2.0, arXiv 2507.17801.
A Llama trunk with normalised queries and keys, and one vocabulary for words and pictures. Anole draws 32x32 codes without row ends.
Lumina-mGPT writes the picture's size after the mark of its beginning and closes every row. `KINDS` lists the differences.

Guidance pairs the prompt with one that has no words. Anole's own rule has a third row, for pictures in the prompt; where there are none, it
equals the second, and what is left is the usual rule. transformers' class hides the logits of pictures and has no picture decoder, so only
its trunk is used. The decoder is ours; its weights are Meta's vqgan.ckpt or, for Lumina-mGPT 2, those of MoVQGAN.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from transformers import ChameleonModel

from engine.backbones.chameleon_files import FAMILY, HEAD, configuration, decoder_in, folder_of, read_trunk, words_in
from engine.backbones.checkpoint_files import check_room, dtype_of, read_config, read_tokenizer
from engine.backbones.originals import numbers_of, originals
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.checkpoints.families import stated_licence
from engine.core import Sampling
from engine.errors import MissingWeights, NotSupported
from engine.kernels.compressed_linear import compress
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.memory import FULL, check_host
from engine.networks.hosted import Hosted, linear_of
from engine.networks.vqgan import PictureDecoder

TURN, BEGIN, ROW_END = "<reserved08706>", "<racm3:break>", "<reserved08799>"  # end of a turn, begin of a picture, end of its rows
REQUEST = "Generate an image of {0}x{0} according to the following prompt:\n{1}"
GRID = 32  # pixels per unit of the size tokens
FIRST_CODE = 155_000  # id, in Lumina-mGPT 2


@dataclass(frozen=True)
class ChameleonVariant:
    """Properties that differ between the models.

    title, sampling : its name; the settings of its authors' script
    sides   : of its pictures in pixels; the first is the default
    sized   : whether it writes sizes and row ends
    licence : of the published weights
    """

    title: str
    sampling: Sampling
    sides: tuple[int, ...]
    sized: bool
    licence: str


RESEARCH = "Chameleon Research License: no commercial use"
KINDS: Mapping[str, ChameleonVariant] = MappingProxyType({
    "anole": ChameleonVariant("Anole", Sampling(0.7, 0, 0.9, 3.0), (512,), False, RESEARCH),
    "lumina": ChameleonVariant("Lumina-mGPT", Sampling(1.0, 2000, 1.0, 4.0), (768, 512, 1024), True, RESEARCH),
    "lumina2": ChameleonVariant("Lumina-mGPT 2", Sampling(1.0, 4096, 1.0, 4.0), (768, 512, 1024), True, "Apache-2.0"),
})  # fmt: skip


class Chameleon(PictureCheckpoint):
    """The backbone: a trunk, a head of the codes, and a function from a text to its ids.

    words : id by name; codes : the id of each code, in order
    """

    name = "chameleon"

    def __init__(
        self, trunk: ChameleonModel, head: nn.Linear, picture: PictureDecoder, kind: ChameleonVariant, codes: list[int],
        words: Mapping[str, int], read: Callable[[str], list[int]], begin: int, licence: str = "",
    ):  # fmt: skip
        """read : the ids of a text alone; begin : the id that begins a sequence"""
        self.picture, self.kind, self.words_of, self.read, self.begin = picture, kind, words, read, begin
        self.head, self.sampling = nn.Sequential(head), kind.sampling
        ids = torch.tensor(codes, device=trunk.device)
        row_end = trunk.embed_tokens.weight[words[ROW_END]] if kind.sized else None
        hosted = Hosted(trunk, lambda tokens: trunk.embed_tokens(ids[tokens]), self.head, row_end)
        weights = [weight for part in (trunk, head, picture) for weight in part.parameters()]
        super().__init__(hosted, weights, licence or kind.licence)
        self.layouts, self.vocabulary = layouts_of(kind, picture.factor, trunk.config.max_position_embeddings), len(codes)

    def rows(self, text: str, layout: Raster) -> list[list[int]]:
        """The prompt, and the mark of a picture alone."""
        if not self.kind.sized:
            mark = [self.words_of[BEGIN]]
            return [[self.begin, *self.read(text), self.words_of[TURN], *mark], [self.begin, *mark]]
        side = layout.rows * layout.factor
        mark = [self.words_of[BEGIN], *[self.words_of[size_word(side)]] * 2]
        return [[self.begin, *self.read(REQUEST.format(side, text)), self.words_of[TURN], *mark], mark]


def size_word(side: int) -> str:
    """The word for a side in pixels."""
    return f"<reserved{8800 + side // GRID:05d}>"


def layouts_of(kind: ChameleonVariant, factor: int, positions: int) -> dict[int, Raster]:
    """The layouts that fit into the positions of a trunk, the default first; raises MissingWeights if none does."""
    layouts = {side: Raster(side // factor, side // factor, factor) for side in kind.sides}
    fitting = {side: grid for side, grid in layouts.items() if grid.rows * (grid.columns + kind.sized) < positions}
    if not fitting:
        raise MissingWeights(f"config.json allows {positions:,} positions, too few for a picture of {kind.title}. Download it again.")
    return fitting


def kind_of(config: Mapping[str, Any]) -> str:
    """A key of KINDS, by entries that only configurations of Lumina-mGPT have."""
    lumina = "mask_image_logits" in config or "XLLMX" in str(config.get("architectures"))
    if config.get("vocab_size", 65_536) > FIRST_CODE:
        return "lumina2"
    return "lumina" if lumina else "anole"


def codes_of(words: Mapping[str, int], picture: PictureDecoder, kind: ChameleonVariant) -> list[int]:
    """The id of each code; raises NotSupported if a code or a word that marks a picture has none."""
    count = picture.codes.num_embeddings
    if kind is KINDS["lumina2"]:
        id_of = dict(enumerate(range(FIRST_CODE, FIRST_CODE + count)))
    else:  # the digits of a code are letters: IMGIMGBCDZ is code 123
        named = {re.fullmatch(r"IMGIMG([A-J]+)Z", word): i for word, i in words.items()}
        id_of = {int("".join(str(ord(letter) - ord("A")) for letter in match[1])): i for match, i in named.items() if match}
    if sorted(id_of) != list(range(count)):
        raise NotSupported(f"The vocabulary names {len(id_of):,} codes, and the picture decoder has {count:,}. Use {FAMILY.source}.")
    needed = [TURN, BEGIN, *([ROW_END, *map(size_word, kind.sides)] if kind.sized else [])]
    if lacking := [word for word in needed if word not in words]:
        raise NotSupported(f"The tokenizer has no {lacking[0]}, which {kind.title} needs. Use {FAMILY.source}.")
    return [id_of[code] for code in range(count)]


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> Chameleon:
    """The backbone in a local folder; downloads nothing.

    Raises MissingWeights for an absent, incomplete or damaged folder or picture decoder, NotSupported for the folder of another model,
    TooLittleMemory.
    """
    folder, numbers = folder_of(path), dtype_of(device, dtype)
    config = read_config(folder, FAMILY.source)
    text = configuration(config)
    kind, tokenizer = KINDS[kind_of(config)], read_tokenizer(folder)
    words = words_in(config, tokenizer)
    with originals(str(folder), kind.title, FAMILY.source) as checkpoint:
        picture = decoder_in(folder, checkpoint).to(device)
        codes = codes_of(words, picture, kind)
        layout = Raster(kind.sides[0] // picture.factor, kind.sides[0] // picture.factor, picture.factor)
        size = check_room(FAMILY, numbers_of(checkpoint.shapes, ("model.", HEAD)), text, layout, len(codes), device, numbers, weights)
        check_host(FAMILY.name, size, device, str(numbers).removeprefix("torch."), weights)
        trunk = compress(read_trunk(checkpoint, config, numbers), weights, device).to(device)
        head = linear_of(checkpoint.read_as(HEAD, numbers)[codes]).to(device)
    begin = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id

    def read(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False).input_ids

    backbone = Chameleon(trunk, head, picture, kind, codes, words, read, begin, stated_licence(folder))
    make_steady([trunk, backbone.head])
    return backbone

"""pictogram: text -> picture of an emoji scene. A small model, trained by this project and shipped with it.

A caption becomes 32 word slots (bidirectional among themselves) and one slot for the gist and the scale; the picture's tokens follow row
by row. The gist, a sum over the words, is added to every token. It is a direct path from a word to its appearance; without it a
small model needs hours to learn that words matter. One set of weights serves 8x8, 16x16 and 32x32 tokens: rotary coordinates are
normalised to the picture. Guidance pairs the caption with the empty caption, which has the same length, so a pair is one batch of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import isqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones.looks import Looks, read_looks
from engine.backbones.prompts import readable_text
from engine.backbones.trained import TrainedBackbone, trained_in
from engine.cache import KVCache
from engine.core import Prompt, Resampler, Sampling, Suits, Understood
from engine.dispatch.choice import NATIVE
from engine.drafters.resampler import read_resampler, refuse_other_tokens
from engine.errors import BadPrompt, MissingWeights, NotSupported
from engine.kernels.cpu.blocks import RunRows
from engine.kernels.cpu.library import native, native_choice
from engine.layout import Raster
from engine.machine import has_fast_bfloat16
from engine.networks.initial import become_identity, small_normal
from engine.networks.native_blocks import quick_linear, quicken
from engine.networks.rows import AdapterRows, RowSplit
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import TransformerDecoder, causal_mask, rotary_table
from engine.networks.trunk import OwnTrunk, PassArguments
from engine.networks.vq import FACTOR, PictureTokenizer
from engine.networks.weights import MODELS, build_network, hash_of, need, part_files, read_card, read_parts, read_tensors
from engine.words.looks import anonymize, groups_of_words, has_colour, looks_of_words, place_of, random_background, small_look, with_numbers
from engine.words.meanings import OTHER
from engine.words.reading import read, split
from engine.words.understanding import correct, corrections, description, places, remarks, requested
from engine.words.world import PLAIN

FOLDER = MODELS / "pictogram"
TEXT_SLOTS = 32
SCALES = (8, 16, 32)  # tokens along a side
LONGEST_PROMPT = 1000  # characters
MOST_CODES = 2**17  # a damaged card may ask for a table of digits that fills the memory
EXAMPLE = "a red apple on a blue background"
MISSING = -1  # in a grid of tokens
MISSING_COLOUR = (30, 34, 42)


class PictogramModel(nn.Module):
    """The decoder with its embeddings and its head.

    A token's embedding is the sum of the embeddings of its quantizer digits, so neighbouring codes start alike. The head adds the same
    structure to a free row for every code. `words` has one row per word; row 0 is padding. The decoder is `placed` (see Decoder).
    """

    def __init__(
        self, levels: tuple[int, ...], words: int, layers: int = 6, width: int = 320, heads: int = 5, inner: int = 896, looks: int = 0
    ):
        """looks : how many looks it can read (engine/words/looks.py)"""
        super().__init__()
        self.settings = {"layers": layers, "width": width, "heads": heads, "inner": inner} | ({"looks": looks} if looks else {})
        self.levels, self.width = tuple(levels), width
        self.vocabulary = math.prod(levels)
        if self.vocabulary > MOST_CODES:
            raise ValueError(f"{self.vocabulary:,} codes")
        self.words = nn.Embedding(words + 1, width)
        self.scale = nn.Embedding(len(SCALES), width)
        self.gist_map = nn.Linear(width, width, bias=False)
        self.digits_in = small_normal(sum(levels), width)
        self.digits_out = small_normal(sum(levels), width)
        self.head_rows = nn.Parameter(torch.zeros(self.vocabulary, width))
        nn.init.normal_(self.words.weight, std=0.02)
        nn.init.normal_(self.scale.weight, std=0.02)
        nn.init.zeros_(self.gist_map.weight)
        if looks:
            self.orders = nn.Embedding(looks, width)
            self.left_map = nn.Linear(width, width, bias=False)
            self.above_map = nn.Linear(width, width, bias=False)
            self.white_map = nn.Linear(width, width, bias=False)
            self.black_map = nn.Linear(width, width, bias=False)
            nn.init.normal_(self.orders.weight, std=0.02)
            become_identity(self.left_map.weight)
            become_identity(self.above_map.weight)
            nn.init.zeros_(self.white_map.weight)
            nn.init.zeros_(self.black_map.weight)
        self.decoder = TransformerDecoder(layers, width, heads, inner, placed=True)
        self.register_buffer("one_hot", self._digit_matrix(), persistent=False)

    def _digit_matrix(self) -> Tensor:
        """[V, sum(levels)]: 1 for each digit of each code. Not a weight, so allocated from the start."""
        rest = torch.arange(self.vocabulary, device="cpu")
        columns = []
        for level in self.levels:
            columns.append((rest % level)[:, None] == torch.arange(level, device="cpu"))
            rest = rest // level
        return torch.cat(columns, -1).float()

    def token_table(self) -> Tensor:
        """Input embeddings [V, width]."""
        return self.one_hot @ self.digits_in

    def head_table(self) -> Tensor:
        """Output rows [V, width]."""
        return self.head_rows + self.one_hot @ self.digits_out

    def rotary(self, side: int, widths: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
        """cos and sin of all slots of a sequence with side x side tokens: words in row -2, looks above them side by side, the scale
        in row -1, the picture in 0..16.

        widths : tokens along the side of each look
        """
        text = torch.stack([torch.full((TEXT_SLOTS,), -2.0), torch.arange(TEXT_SLOTS) / 2], -1)
        looks = [_grid(n, side) + torch.tensor([-12.0, 9.0 * i]) for i, n in enumerate(widths)]
        coordinates = torch.cat([text, *looks, torch.tensor([[-1.0, 0.0]]), _grid(side, side)])
        return rotary_table(coordinates, self.width // self.decoder.heads)

    def gist(self, words: Tensor, side: int) -> Tensor:
        """Word ids [B, 32] -> [B, 1, width], added to every row after the caption: the words in any order, and the scale."""
        is_word = (words > 0).unsqueeze(-1)
        total = (self.words(words) * is_word).sum(1) / is_word.sum(1).clamp(min=1).sqrt()
        return self.gist_map(total)[:, None] + self.scale.weight[SCALES.index(side)]

    def looks(self, words: Tensor, looks: Sequence[Tensor]) -> Tensor:
        """Tokens of looks, each [B, 3, n*n], -> embeddings [B, sum of n*n, width]; zeros where the caption [B, 32] is empty.

        The embedding of a token adds those of the same place on white and on black, and of the left and upper neighbours, so that
        attention from a row that has just drawn the neighbour finds it.
        """
        if not looks:
            return self.words.weight.new_zeros(len(words), 0, self.width)
        table = torch.cat([self.token_table(), self.words.weight.new_zeros(1, self.width)])
        parts = []
        for i, tokens in enumerate(looks):
            here, white, black = tokens.unbind(1)
            n = isqrt(tokens.shape[2])
            grid = F.pad(here.view(-1, n, n), (1, 0, 1, 0), value=self.vocabulary)
            left, above = grid[:, 1:, :-1].flatten(1), grid[:, :-1, 1:].flatten(1)
            near = self.left_map(table[left]) + self.above_map(table[above])
            shows = self.white_map(table[white]) + self.black_map(table[black])
            parts.append(table[here] + shows + near + self.orders.weight[i])
        return torch.cat(parts, 1) * (words > 0).any(1)[:, None, None]

    def prefix(self, words: Tensor, side: int, looks: Sequence[Tensor] = ()) -> Tensor:
        """Word ids [B, 32] -> embeddings [B, 33 + looks, width]: the words, the looks, then the gist."""
        return torch.cat([self.words(words), self.looks(words, looks), self.gist(words, side)], 1)


def _grid(n: int, side: int) -> Tensor:
    """Coordinates (y, x) of n x n tokens, of which `side` are 16 long, float32 [n*n, 2]."""
    y, x = torch.meshgrid(*[(torch.arange(n) + 0.5) / side * 16] * 2, indexing="ij")
    return torch.stack([y.flatten(), x.flatten()], -1)


def text_mask(count: int, device: torch.device, before: int = TEXT_SLOTS) -> Tensor:
    """Causal, but the first `before` slots, words and looks, see each other: bool [count, count]."""
    mask = causal_mask(count, 0, device)
    mask[:before, :before] = True
    return mask


class _PictogramTrunk(OwnTrunk):
    """PictogramModel at one scale, as a trunk for TransformerSequence."""

    def __init__(
        self, model: PictogramModel, side: int, widths: Sequence[int], gist: Tensor, table: Tensor, head: nn.Linear, dtype: torch.dtype
    ):
        super().__init__(model.decoder)
        self.drafts_once = model.decoder.quick is not None
        self.gist, self.table, self.head = gist, table, head
        cos, sin = (t.to(table.device) for t in model.rotary(side, widths))
        self.places = model.decoder.places(cos, sin)
        own = dtype if model.decoder.quick is None else torch.float32
        self.cos, self.sin = cos.to(own), sin.to(own)

    def move_tensors(self, hold: Callable[[Tensor], Tensor]) -> Hashable:
        self.gist, self.places, self.cos, self.sin = (hold(each) for each in (self.gist, self.places, self.cos, self.sin))
        return None

    def embed(self, tokens: Tensor) -> Tensor:
        return torch.embedding(self.table, tokens) + self.gist

    def run(
        self, x: Tensor, slots: Tensor, mask: Tensor | None, kv_cache: KVCache, split: RowSplit | None = None,
        adapter_rows: AdapterRows | None = None,
    ) -> Tensor:  # fmt: skip
        return self.decoder(x, self.cos[slots], self.sin[slots], mask, kv_cache, split, self.places[slots], adapter_rows)

    def rows(self, arguments: PassArguments) -> RunRows:
        """Returns this run's part of a pass that serves several runs."""
        slots = arguments.slots
        return RunRows(arguments.x + self.places[slots], arguments.kv_cache, arguments.mask, self.cos[slots], self.sin[slots])


class PictogramSequence(TransformerSequence):
    """One run at one scale. It can start the same prompt at a smaller scale, if the model was trained on it."""

    def __init__(self, backbone: Pictogram, prompt: Prompt, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._backbone, self._prompt = backbone, prompt
        self.scales = tuple(s for s in sorted(backbone.sizes) if s < self.layout.columns * FACTOR)
        self.resampler = backbone.resampler

    def at_scale(self, size: int) -> TransformerSequence:
        """A new sequence of the same prompt at another size; raises BadPrompt for a size that was not trained."""
        sequence = self._backbone.start(replace(self._prompt, size=size))
        sequence.run_together = self.run_together
        return sequence


class Pictogram(TrainedBackbone):
    """The backbone: weights, words and pictures."""

    name = known_as = "pictogram"
    capabilities = frozenset({"raster", "wavefront", "text", "codebook", "encode", "hidden", "sketch"})
    # Chosen for the least time on two cores with `bench image --sweep`; the other defaults were tuned on this model.
    suits: Suits = MappingProxyType({
        "mulo": {"repair": "wavefront"},
        "adt_tree": {"row_cost": 0.2, "level_cost": 0.8, "children": "deterministic"},
        "eagle": {"depth": 2, "width": 3, "nodes": 3, "children": "deterministic"},
    })  # fmt: skip
    sampling = Sampling(temperature=0.6, top_k=0, top_p=1.0, guidance=1.8)  # chosen by eye; more guidance tears objects apart

    def __init__(
        self, model: PictogramModel, tokenizer: PictureTokenizer, words: list[str], sides: tuple[int, ...], card: dict,
        folder: Path | None = None, looks: Looks | None = None,
    ):  # fmt: skip
        """folder : of the weights, and of the drafters that were trained for them; looks : for a model that reads them"""
        self.model, self.tokenizer, self.card = model.eval(), tokenizer.eval(), card
        self.dtype, self.weights_hash = "float32", None  # dtype of the passes; residual stream, logits and distributions are always float32
        self.pixels_dtype = torch.float32  # of the full decoder, from tokens to pixels
        self.vocabulary, self.parameters = model.vocabulary, sum(p.numel() for p in model.parameters())
        self._taught = {w: i + 1 for i, w in enumerate(words)}
        self.words = self._taught if looks is None else self._taught | dict.fromkeys(looks.words() - self._taught.keys(), 0)
        self.sides = sides  # the scales that were trained
        self.looks = looks
        self.device = next(model.parameters()).device
        self.folder, self.draft_trunk = folder, model.decoder
        self.capabilities = self.capabilities | trained_in(folder)
        if self.device.type == "cpu" and native(torch.bfloat16) is not None:
            self.capabilities = self.capabilities | {"bfloat16"}
        if len(sides) > 1:
            self.capabilities = self.capabilities | {"at_scale"}

    @cached_property
    def _tables(self) -> tuple[Tensor, nn.Linear]:
        """Embeddings of all tokens [V, width], and the output layer."""
        with torch.no_grad():
            head = nn.Linear(self.model.width, self.model.vocabulary, bias=False, device="meta")
            head.weight = nn.Parameter(self.model.head_table(), requires_grad=False)
            return self.model.token_table(), quick_linear(head) if self.device.type == "cpu" else head

    @property
    def sizes(self) -> list[int]:
        """Picture sizes that were trained, in pixels."""
        return [s * FACTOR for s in self.sides]

    def start(self, prompt: Prompt) -> TransformerSequence:
        """A sequence on a caption; raises BadPrompt if the text is empty or too long, or for a size that was not trained."""
        words = self._with_background(self._readable_words(prompt), prompt.seed)
        side, sampling = self._side(prompt.size), prompt.sampling or self.sampling
        branches = 1 if sampling.guidance == 1 else 2
        table, head = self._tables
        rows = torch.tensor([self.ids_of(words), [0] * TEXT_SLOTS][:branches], device=self.device)
        looks = self.looks_of(words, side)
        prefix = self.model.prefix(rows, side, [tokens.expand(branches, -1, -1) for tokens in looks])
        widths = [isqrt(tokens.shape[1]) for tokens in looks]
        trunk = _PictogramTrunk(self.model, side, widths, self.model.gist(rows, side), table, head, getattr(torch, self.dtype))
        decoder = self.model.decoder
        capacity = prefix.shape[1] + side * side + 256
        width, dtype = decoder.width // decoder.heads, getattr(torch, self.dtype)
        kv_cache = KVCache(len(decoder.blocks), branches, decoder.heads, capacity, width, self.device, dtype)
        before = prefix.shape[1] - 1
        return PictogramSequence(
            self, prompt, trunk, prefix, text_mask(before, self.device, before), kv_cache,
            vocabulary=self.model.vocabulary, limit=side * side, layout=Raster(side, side, FACTOR), sampling=sampling,
            codebook=self.codebook(), workspaces=self.workspaces,
        )  # fmt: skip

    def _readable_words(self, prompt: Prompt) -> tuple[str, ...]:
        """The words of a prompt that are read: unknown ones are replaced by known synonyms or left out (see unknown_words), and a plural
        without a number gets one from the seed."""
        text = readable_text(prompt.text, EXAMPLE)
        if len(text) > LONGEST_PROMPT:
            raise BadPrompt(f"The prompt has {len(text):,} characters; at most {LONGEST_PROMPT:,} are read. Shorten it.")
        reading = read(text, self.words)
        words = tuple(with_numbers(reading.words, prompt.seed))
        if len(words) > TEXT_SLOTS:
            raise BadPrompt(f"The prompt has {len(words)} words; pictogram reads at most {TEXT_SLOTS}. Shorten it.")
        if not split(text):
            raise BadPrompt("The prompt holds no word of letters. Say what to draw, for instance: a red apple on a blue background.")
        if not words and reading.left_out:
            raise BadPrompt(f"The prompt only excludes: {', '.join(reading.left_out)}. Say what to draw, for instance: {EXAMPLE}.")
        if not words:
            hint = ", ".join(quote_unknown(reading.unknown)) or "it has none"
            raise BadPrompt(
                f"pictogram knows no word of this prompt: {hint}. “What it can draw” on the page and `launch.py models` list its words."
            )
        return words

    def _with_background(self, words: tuple[str, ...], seed: int) -> tuple[str, ...]:
        """The words with a background that the seed chooses, if they name none and the model reads looks, which need one."""
        if self.looks is None or place_of(words):
            return words
        names = [group.name for group, _ in groups_of_words(words)]
        pictures = [self.looks.picture_of(look) for look in looks_of_words(words) if look in self.looks]
        placed = (*words, *random_background(seed, names, pictures))
        return placed if len(placed) <= TEXT_SLOTS else words

    def ids_of(self, caption: Sequence[str]) -> list[int]:
        """Ids of words, padded with 0 to 32. A word of an object that the model knows by its look only is THING."""
        words = caption if self.looks is None else anonymize(caption, self._taught)
        ids = [self._taught[word] for word in words if word in self._taught]
        return ids + [0] * (TEXT_SLOTS - len(ids))

    def looks_of(self, words: Sequence[str], side: int) -> list[Tensor]:
        """The looks of the objects in a caption, on its background, tokens int64 [3, n*n] each; none if the model reads
        none."""
        if self.looks is None:
            return []
        looks = [look for look in looks_of_words(words) if look in self.looks][: self.model.settings["looks"]]
        return [self.looks.tokens([(look, place_of(words))], side, self._encode)[0].to(self.device) for look in looks]

    @torch.inference_mode()
    def _encode(self, pictures: np.ndarray) -> Tensor:
        """Tokens int64 [N, h, w] of pictures uint8 [N, 8h, 8w, 3]."""
        x = torch.from_numpy(pictures).to(self.device).permute(0, 3, 1, 2).float() / 127.5 - 1
        return self.tokenizer.encode(x).cpu()

    def unknown_words(self, text: str) -> dict[str, list[str]]:
        """Words that the model does not know, each with up to three known ones: the nearest in meaning, or the correct spelling."""
        return read(text, self.words).unknown

    def objects_in(self, text: str) -> tuple[str, ...]:
        """The objects of a prompt that the model knows."""
        return read(text, self.words).objects

    def warning(self, text: str) -> str:
        """A sentence to show before drawing if the prompt names no object that the model knows; else an empty string."""
        return "" if self.objects_in(text) else f"{self.name} does not know anything in this prompt and will draw an empty background."

    def understand(self, text: str, kept: Container[str] = ()) -> Understood:
        """The model's reading of a prompt. kept : misspelled words that are not corrected"""
        right = corrections(text, self.words, kept)
        corrected = correct(text, right)
        reading = read(corrected, self.words)
        sentences, treated = remarks(self.name, corrected, self.words, self._own_colours(reading.objects))
        lost = {word: near for word, near in reading.unknown.items() if word not in treated}
        warning = self.warning(corrected) if corrected.strip() else ""
        instead = {word: near for word, near in (lost | places(reading.words)).items() if near}
        sentences = [warning, *sentences] if warning else sentences
        draws = description(reading.words, reading.left_out)
        missing = [word for word in reading.unknown if word in treated or word not in OTHER]
        return Understood(corrected, right, draws, sentences, [*lost], instead, requested(reading.words), missing)

    def _own_colours(self, names: Sequence[str]) -> set[tuple[str, str]] | None:
        """(object, colour) of the plain colours that a large part of the object has; None for a model without looks."""
        if self.looks is None:
            return None
        pictures = {name: small_look(self.looks.pictures[name]) for name in names if name in self.looks.pictures}
        return {(name, colour) for name, each in pictures.items() for colour in PLAIN if has_colour(each, colour)}

    def words_read(self, prompt: Prompt) -> str:
        """The known words, with the numbers of plurals and the background that the seed chooses."""
        return " ".join(self._with_background(self._readable_words(prompt), prompt.seed))

    def added_words(self, prompt: Prompt) -> str:
        """The words of a background that the seed chooses, if the prompt names none and the model needs one; else ""."""
        words = self._readable_words(prompt)
        return " ".join(self._with_background(words, prompt.seed)[len(words) :])

    def _side(self, size: int | None) -> int:
        """Tokens along a side for a size in pixels (None: 128, or the nearest that was trained)."""
        if size is None:
            size = min(self.sizes, key=lambda s: abs(s - 128))
        if size not in self.sizes:
            raise BadPrompt(f"pictogram makes pictures of {', '.join(map(str, self.sizes))} pixels, not {size}. Choose one of these.")
        return size // FACTOR

    @torch.inference_mode()
    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray:
        """uint8 [H, W, 3]; missing tokens of a partial picture are dark gray. final=False uses the preview decoder."""
        side = self._side(size)
        grid = np.full(side * side, MISSING, np.int64)
        grid[positions] = tokens
        return self.sketch(grid.reshape(side, side), range(side), fine=final)

    @torch.inference_mode()
    def sketch(self, grid: np.ndarray, rows: range, fine: bool) -> np.ndarray:
        """uint8 [8 * len(rows), 8w, 3]: some rows of a picture with the tokens int [h, w], MISSING where there is none. fine: by the
        full decoder, about twenty times the work of the preview's."""
        known = torch.from_numpy(grid != MISSING)
        tokens = torch.from_numpy(np.where(grid == MISSING, 0, grid).astype(np.int64)).to(self.device)
        rounded = fine and self.pixels_dtype != torch.float32
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            picture = self.tokenizer.decode_rows(tokens[None], rows, preview=not fine)[0].float()
        pixels = ((picture.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).cpu()
        by_token = pixels.unflatten(1, (-1, FACTOR)).unflatten(0, (-1, FACTOR))
        shown = known[rows.start : rows.stop, None, :, None, None]
        return torch.where(shown, by_token, torch.tensor(MISSING_COLOUR, dtype=torch.uint8)).flatten(2, 3).flatten(0, 1).numpy()

    def codebook(self) -> Tensor:
        """The decoder's input for every token, float32 [V, D]."""
        return self.tokenizer.quantizer.codebook()

    @cached_property
    def resampler(self) -> Resampler:
        """The distributions between two scales: from trained networks if the folder has them, else from a resized and encoded picture."""
        return read_resampler(self.folder, self.card, self.tokenizer)

    def encode(self, picture: np.ndarray) -> list[int]:
        """Tokens of a picture uint8 [H, W, 3], row by row; H and W are multiples of 8."""
        return self._encode(picture[None]).flatten().tolist()


def quote_unknown(unknown: dict[str, list[str]], most: int = 5) -> list[str]:
    """At most `most` unknown words in quotes, each with the known words nearest to it, if there are any."""
    return [f"'{w}' (nearest: {', '.join(near)})" if near else f"'{w}'" for w, near in list(unknown.items())[:most]]


# --- files ------------------------------------------------------------------------------------------------------------


def load_tokenizer(folder: Path = FOLDER) -> PictureTokenizer:
    """The shipped tokenizer."""
    settings, path = need(read_card(folder), "tokenizer.settings", dict, folder), folder / "tokenizer.safetensors"
    return build_network(PictureTokenizer, settings, read_tensors(path), path).eval()


def load_model(folder: Path = FOLDER) -> PictogramModel:
    """The shipped decoder."""
    card = read_card(folder)
    tensors, files = read_parts(folder, "decoder", need(card, "decoder.files", int, folder))
    levels, words = need(card, "tokenizer.settings.levels", list, folder, of=int), need(card, "words", list, folder, of=str)
    make = partial(PictogramModel, tuple(levels), len(words))
    return build_network(make, need(card, "decoder.settings", dict, folder), tensors, files[0]).eval()


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto") -> Pictogram:
    """The backbone in a model folder (default: the shipped one).

    dtype : "float32" (also "auto"), or "bfloat16", which on a CPU needs hardware that multiplies it and the compiled functions
    """
    if dtype == "bfloat16" and torch.device(device).type == "cpu" and (choice := native_choice(torch.bfloat16)).name != NATIVE:
        raise NotSupported(f"pictogram runs in bfloat16 by compiled functions only. {choice.reason} Use --dtype float32.")
    folder = Path(path) if path else FOLDER
    card = read_card(folder)
    sides = need(card, "sides", list, folder, of=int)
    if not sides or not set(sides) <= set(SCALES):
        raise MissingWeights(f"The card of {folder} offers the scales {sides}; there are {list(SCALES)}. Restore it with git.")
    refuse_other_tokens(card, "decoder", folder)
    torch.set_flush_denormal(True)
    model, tokenizer = load_model(folder).to(device), load_tokenizer(folder).to(device)
    looks = read_looks(folder, need(card, "looks", list, folder, of=str)) if "looks" in model.settings else None
    backbone = Pictogram(model, tokenizer, card["words"], tuple(sides), card, folder, looks)
    backbone.weights_hash = hash_of([folder / "tokenizer.safetensors", *part_files(folder, "decoder")])
    backbone.dtype = "bfloat16" if dtype == "bfloat16" else "float32"
    if backbone.device.type == "cpu":
        # half the time; the mean of the differences is a fifth of a gray level of 256
        backbone.pixels_dtype = torch.bfloat16 if has_fast_bfloat16() else torch.float32
        backbone.draft_dtype = getattr(torch, backbone.dtype)
        quicken(model.decoder, backbone.draft_dtype)
        backbone.capabilities |= {"joined"} if model.decoder.quick is not None else set()
    return backbone

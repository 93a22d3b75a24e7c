"""Backbones as teachers of drafters: they generate their own training sequences, and return the hidden states that predicted each token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones import lowpoly, pictogram
from engine.backbones.pictogram import TEXT_SLOTS, text_mask
from engine.cache import KVCache
from engine.layout import Layout, Line, Raster
from engine.networks.mesh_decoder import CloudReading
from engine.networks.transformer import causal_mask
from engine.networks.vq import FACTOR
from engine.sampling import draw, guide, warp
from engine.words.looks import Look
from engine.words.reading import split
from research.train import loop
from research.train.head_lessons import generate_together
from research.train.lowpoly import PAD, collate, hidden_states, sample_of
from research.worlds.emoji_scenes import caption, held_out_scenes, lessons_of, looks_of_scene, trained_scenes
from research.worlds.lowpoly_shapes import held_out_shapes, stretch_and_turn, training_shapes

LOOK_SIZES = (48, 48)  # sizes of the named objects, if pictogram reads looks: all prefixes of a batch have the same length
DROPPED = 10  # one caption in this many is empty, so that the drafter also learns pictures without a condition (ADT-Tree)


@dataclass
class Recorded:
    """A sequence that the backbone generated.

    condition : word ids int64 [32], points float32 [1024, 6], token ids int64 [branches, P], or inputs [branches, P, H]
    tokens    : int64 [L]
    hidden    : float16 [branches, L, H], last hidden states; row i predicted token i
    """

    condition: Tensor
    tokens: Tensor
    hidden: Tensor


@dataclass
class TeacherOptions(loop.RecipeOptions):
    """The options of a recipe that learns from a backbone."""

    backbone: str = field(default="pictogram", metadata=loop.argument("pictogram, lowpoly, or an imported model", metavar="NAME|PATH"))
    prompts: Path | None = field(
        default=None, metadata=loop.argument("for an imported model: one prompt per line (emoji captions)", type=Path, metavar="FILE")
    )


class Teacher(ABC):
    """A backbone that generates sequences and returns its hidden states.

    name : of the backbone, for files and messages; folder : where the drafter is written
    width, heads, inner : of the drafter; the feed-forward width keeps its file near 2 MB
    final_norm : weight and bias, each [H]; vocabulary : of tokens
    trunk  : has the `blocks` that `run` applies; linear : names of the blocks' linear layers that process the rows of a sequence
    """

    width: int
    heads: int
    inner: int
    final_norm: tuple[Tensor, Tensor | None]
    vocabulary: int
    trunk: nn.Module
    linear: tuple[str, ...]

    def __init__(self, backbone: Any, name: str):
        self.backbone, self.name, self.folder, self.sampling = backbone, name, backbone.folder, backbone.sampling
        self.weights_hash = str(backbone.weights_hash)

    def usable_row(self, row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Returns the card's entry of a drafter if it was trained for these weights, else None: the backbone refuses to load it."""
        return row if row is not None and row.get("backbone") == self.weights_hash else None

    @abstractmethod
    def conditions(self, count: int, held_out: bool) -> Tensor:
        """Returns conditions to generate from, [count, ...]."""

    @abstractmethod
    def generate(self, prompts: Tensor, rng: Generator) -> list[Recorded]:
        """Returns sequences for conditions [B, ...], one token of each per pass, with the backbone's default sampling."""

    @abstractmethod
    def embed(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        """Returns embeddings [branches * B, L, H] of tokens int64 [B, L], branch by branch."""

    @abstractmethod
    def prefix(self, prompts: Tensor) -> Tensor:
        """Returns the rows before the tokens, [branches * B, P, H]; the last one predicts the first token."""

    @abstractmethod
    def run(self, prompts: Tensor, x: Tensor, slots: Tensor, mask: Tensor, kv_cache: Any) -> Tensor:
        """Returns last hidden states of rows [branches * B, R, H] at slots int64 [R] (0 = the first of the prefix); the cache holds their
        keys and values."""

    @abstractmethod
    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits [..., V] of hidden states [..., H]."""

    @abstractmethod
    def layout(self, length: int) -> Layout:
        """Returns the layout of a sequence of this length."""

    def mask(self, count: int) -> Tensor:
        """Returns the attention mask of the first `count` rows, prefix included: bool [count, count]. Causal by default."""
        return causal_mask(count, 0, self.final_norm[0].device)

    def allowed_ids(self, tokens: list[int]) -> Tensor | None:
        """Returns the ids that may follow each token, bool [L, V]; None without a grammar."""
        return None


class PictureTeacher(Teacher):
    """pictogram, with captions of the lessons that it was trained on."""

    def __init__(self, device: str):
        super().__init__(pictogram.load(device=device), "pictogram")
        self.model = self.backbone.model.requires_grad_(False)
        self.side = self.backbone._side(None)
        self.width, self.heads, self.inner = self.model.width, self.model.decoder.heads, 6 * self.model.width // 5
        self.final_norm = (self.model.decoder.norm.weight, None)
        self.table, self.rows = self.model.token_table(), self.model.head_table()
        self.vocabulary, self.trunk = len(self.rows), self.model.decoder
        self.linear = ("query_key_value", "attention_out", "gate_up", "feed_out")
        widths = [Look("", "", size).tokens(self.side) for size in LOOK_SIZES] if self.backbone.looks else []
        self.rotary = tuple(t.to(self.table.device) for t in self.model.rotary(self.side, widths))
        self.words = ["", *self.backbone.card["words"]]
        self.before = TEXT_SLOTS + sum(n * n for n in widths)

    def conditions(self, count: int, held_out: bool) -> Tensor:
        """Returns word ids int64 [count, 32]."""
        lessons = lessons_of(self.backbone.card)
        many = 8 * count if self.backbone.looks else count
        scenes = held_out_scenes(many, lessons) if held_out else trained_scenes(2**42, many, lessons=lessons)
        if self.backbone.looks:
            scenes = [scene for scene in scenes if [look.side for look in looks_of_scene(scene)] == list(LOOK_SIZES)][:count]
        ids_by_prompt = torch.zeros(count, TEXT_SLOTS, dtype=torch.int64)
        for i, scene in enumerate(scenes):
            if not held_out and i % DROPPED == DROPPED - 1:
                continue
            ids_by_prompt[i] = torch.tensor(self.backbone.ids_of(split(caption(scene, i))))
        return ids_by_prompt

    def _pair(self, prompts: Tensor) -> Tensor:
        """Returns captions [B, 32] followed by as many empty ones, [branches * B, 32]."""
        prompts = prompts.to(self.table.device)
        return prompts if self.sampling.guidance == 1 else torch.cat([prompts, torch.zeros_like(prompts)])

    @torch.inference_mode()
    def generate(self, prompts: Tensor, rng: Generator) -> list[Recorded]:
        """Returns pictures for captions [B, 32]."""
        pair, model, device = self._pair(prompts), self.model, self.table.device
        decoder, length = model.decoder, self.side**2
        kv_cache = KVCache(
            len(decoder.blocks), len(pair), decoder.heads, self.before + length, decoder.width // decoder.heads, device, torch.float32
        )
        cos, sin = self.rotary
        prefix, gist, before = self.prefix(prompts), model.gist(pair, self.side), self.before
        decoder(prefix[:, :before], cos[:before], sin[:before], self.mask(before), kv_cache)
        kv_cache.keep(list(range(before)))
        x, states, tokens = prefix[:, before:], [], []
        for slot in range(before, before + length):
            states.append(decoder(x, cos[slot : slot + 1], sin[slot : slot + 1], None, kv_cache))
            kv_cache.keep([0])
            logits = self.head(states[-1]).view(-1, len(prompts), len(self.rows))
            p = torch.softmax(warp(guide(logits.float(), self.sampling.guidance), self.sampling), -1)
            tokens.append(draw(p, torch.from_numpy(rng.random(len(prompts)))))
            x = self.table[tokens[-1]].repeat(len(pair) // len(prompts), 1)[:, None] + gist
        hidden = torch.cat(states, 1).unflatten(0, (-1, len(prompts))).half().cpu()
        rows = zip(prompts.cpu(), torch.stack(tokens, 1).cpu(), hidden.transpose(0, 1).contiguous(), strict=True)
        return [Recorded(*row) for row in rows]

    def embed(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        """Returns the token's row of the table plus the gist of the caption, which is empty in the second branch."""
        pair = self._pair(prompts)
        return self.table[tokens].repeat(len(pair) // len(prompts), 1, 1) + self.model.gist(pair, self.side)

    def prefix(self, prompts: Tensor) -> Tensor:
        """Returns the rows of the caption, the looks and the gist."""
        pair = self._pair(prompts)
        return self.model.prefix(pair, self.side, self._looks(pair))

    def _looks(self, prompts: Tensor) -> list[Tensor]:
        """Returns the tokens of the looks of captions [B, 32], each [B, 3, n*n]; zeros for an empty caption, which names no object."""
        if not self.backbone.looks:
            return []
        some = [torch.zeros(3, Look("", "", size).tokens(self.side) ** 2, dtype=torch.int64) for size in LOOK_SIZES]
        rows = [self.backbone.looks_of([self.words[i] for i in ids if i], self.side) or some for ids in prompts.tolist()]
        return [torch.stack(each).to(self.table.device) for each in zip(*rows, strict=True)]

    def mask(self, count: int) -> Tensor:
        """Returns a mask in which words and looks see each other."""
        return text_mask(count, self.table.device, self.before)

    def run(self, prompts: Tensor, x: Tensor, slots: Tensor, mask: Tensor, kv_cache: Any) -> Tensor:
        """Runs the decoder."""
        cos, sin = self.rotary
        return self.trunk(x, cos[slots], sin[slots], mask, kv_cache)

    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits of picture tokens."""
        return F.linear(hidden, self.rows)

    def layout(self, length: int) -> Layout:
        """Returns a square raster."""
        return Raster(self.side, self.side, FACTOR)


class MeshTeacher(Teacher):
    """lowpoly, with point clouds of the families that it was trained on."""

    def __init__(self, device: str):
        super().__init__(lowpoly.load(device=device), "lowpoly")
        self.model = self.backbone.model.requires_grad_(False)
        s = self.model.settings
        self.width, self.heads, self.inner = s.width, s.heads, s.inner
        self.final_norm = (self.model.decoder.norm.weight, self.model.decoder.norm.bias)
        self.table = self.model.decoder.table()
        self.vocabulary, self.trunk = s.vocabulary, self.model.decoder
        self.linear = ("query_key_value", "query", "out", "value_gate")
        self._newest: tuple[Tensor, CloudReading] | None = None

    def conditions(self, count: int, held_out: bool) -> Tensor:
        """Returns points [count, N, 6] of shapes that face any side, as in lowpoly's training; lowpoly reads N points."""
        families, rng = tuple(self.backbone.card["families"]), Generator(PCG64(8))
        if held_out:
            shapes = iter([s for s in held_out_shapes(8 * count) if s.family in families][:count])
        else:
            shapes = training_shapes(2**34, count, families)
        return collate([sample_of(stretch_and_turn(s, rng)) for s in shapes], rng, 0.0, self.backbone.points)[0]

    @torch.no_grad()
    def _read_clouds(self, prompts: Tensor) -> CloudReading:
        """Returns the model's reading of point clouds; keeps the newest, because a step of the stream needs it four times."""
        if self._newest is None or self._newest[0] is not prompts:
            self._newest = prompts, self.model.read(prompts.to(self.table.device))
        return self._newest[1]

    @torch.inference_mode()
    def generate(self, prompts: Tensor, rng: Generator) -> list[Recorded]:
        """Returns meshes for point clouds [B, N, 6]; their states come from one pass over the generated tokens."""
        sequences = generate_together(self.backbone, prompts, rng)
        tokens = pad_rows([torch.tensor(row) for row in sequences]).to(self.table.device)
        reading = self._read_clouds(prompts)
        embedded = reading.embed(self.table, tokens.clamp(min=0)[:, :-1])
        hidden = hidden_states(self.model.decoder, reading.condition, embedded).half().cpu()
        rows = zip(prompts.cpu(), sequences, hidden, strict=True)
        return [Recorded(cloud, torch.tensor(row), states[None, : len(row)].clone()) for cloud, row, states in rows]

    def embed(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        """Returns the tokens' rows of the table plus the clouds' contribution, without positions."""
        return self._read_clouds(prompts).embed(self.table, tokens)

    def prefix(self, prompts: Tensor) -> Tensor:
        """Returns the start vector."""
        return self.trunk.start.expand(len(prompts), 1, -1)

    def run(self, prompts: Tensor, x: Tensor, slots: Tensor, mask: Tensor, kv_cache: Any) -> Tensor:
        """Runs the decoder on the point clouds."""
        cross_kv = self.trunk.keys_values(self._read_clouds(prompts).condition)
        positions = F.pad(self.trunk.positions, (0, 0, 1, 0))  # the start vector has no position
        return self.trunk(x + positions[slots], mask, cross_kv, kv_cache)

    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits of all ids."""
        return self.model.decoder.head(hidden)

    def layout(self, length: int) -> Layout:
        """Returns a line."""
        return Line()

    def allowed_ids(self, tokens: list[int]) -> Tensor:
        """Returns the ids that BPT's grammar allows after each token."""
        grammar = lowpoly.MaskedGrammar(None)
        state, masks = grammar.start, []
        for token in tokens:
            state = grammar.next(state, token)
            masks.append(grammar.allowed_ids(state))
        return torch.stack(masks).to(self.table.device)


def pad_rows(rows: list[Tensor]) -> Tensor:
    """Returns int64 [B, L], short rows padded with -1."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

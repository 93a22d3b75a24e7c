"""An imported picture model as the teacher of a drafter: `launch.py train feature-draft --backbone NAME`, and predictive-stream.

It generates its own training sequences, a batch at a time: the guidance rows of all prompts are one batch, branch by branch, each padded on
the left to the longest prompt. The drafters are written into the folder `drafters` next to the imported weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from engine.backbones import DRAFTERS, load, resolve
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.core import Prompt
from engine.errors import BadFile, NotSupported
from engine.layout import Layout
from engine.networks.hosted import Hosted, RowEnds
from engine.sampling import draw, guide, warp
from research.train.adapters import restore_linear
from research.train.teachers import Recorded, Teacher
from research.worlds.emoji_scenes import caption, held_out_scenes, trained_scenes

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
HELD_OUT = 10  # every tenth prompt of a file is held out
FEWEST = 2 * HELD_OUT  # prompts in a file
NOTHING = -1  # the id of padding on the left of a prompt


class CheckpointTeacher(Teacher):
    """A teacher from an imported checkpoint of transformers.

    A prompt is the ids of its guidance rows, int64 [branches, P], padded with -1 on the left. If the model's prompts are not ids,
    it is their inputs, [branches, P, H], padded with NaN on the left.
    """

    def __init__(self, name_or_folder: str, device: str, prompts: Path | None = None):
        """prompts : a file with one prompt per line (default: captions of emoji scenes)"""
        name, path = resolve(name_or_folder)
        backbone = load(name, path, device, "float32" if device == "cpu" else "auto")
        super().__init__(require_checkpoint(backbone, name_or_folder), Path(str(path)).name)
        self.hosted, self.trunk = self.backbone.hosted, self.backbone.hosted.decoder
        self.layout_of_it, self.vocabulary = self.backbone.layout, backbone.vocabulary
        config = self.trunk.config
        self.width, self.heads = config.hidden_size, config.num_attention_heads
        self.inner = 6 * self.width // 5
        self.final_norm = (self.trunk.norm.weight, None)
        self.linear = LINEAR
        self.texts = read_prompts(prompts) if prompts else None
        if isinstance(self.hosted.head, nn.Module):
            restore_linear(self.hosted.head)  # packed layers have no gradient

    def conditions(self, count: int, held_out: bool) -> Tensor:
        """Returns ids int64 [count, branches, P], or inputs [count, branches, P, H]."""
        texts = self._texts(count, held_out)
        if type(self.backbone).rows is PictureCheckpoint.rows:
            inputs = [self._inputs(text) for text in texts]
            longest = max(x.shape[1] for x in inputs)
            return torch.stack([F.pad(x, (0, 0, longest - x.shape[1], 0), value=torch.nan) for x in inputs])
        ids_by_prompt = [self._ids(text) for text in texts]
        longest = max(len(ids) for rows in ids_by_prompt for ids in rows)
        padded = [[[NOTHING] * (longest - len(ids)) + ids for ids in rows] for rows in ids_by_prompt]
        return torch.tensor(padded)

    def _texts(self, count: int, held_out: bool) -> list[str]:
        if self.texts is None and self.backbone.classes:
            classes = [str(i) for i in range(self.backbone.classes) if (i % HELD_OUT == 0) == held_out]
            return [classes[i % len(classes)] for i in range(count)]
        if self.texts is None:
            scenes = held_out_scenes(count) if held_out else trained_scenes(2**42, count)
            return [caption(scene, i) for i, scene in enumerate(scenes)]
        texts = [text for i, text in enumerate(self.texts) if (i % HELD_OUT == 0) == held_out]
        return [texts[i % len(texts)] for i in range(count)]

    def _ids(self, text: str) -> list[list[int]]:
        rows = self.backbone.rows(text, self.layout_of_it)
        return rows[:1] if self.sampling.guidance == 1 else rows

    @torch.no_grad()
    def _inputs(self, text: str) -> Tensor:
        """The inputs [branches, P, H] of a prompt, without padding."""
        x, padding = self.backbone.inputs(Prompt(text=text, sampling=self.sampling))
        assert not any(padding), f"{self.name} pads its own prompts"
        return x.cpu()

    def _rows(self, prompts: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs [branches * B, P, H] of prompts [B, branches, ...], branch by branch, and the padding int64 [branches * B]."""
        rows = prompts.to(self.trunk.device).transpose(0, 1).flatten(0, 1)
        if rows.is_floating_point():
            return rows.nan_to_num(0.0), rows[..., 0].isnan().sum(1)
        return self.trunk.embed_tokens(rows.clamp(min=0)).detach(), (rows == NOTHING).sum(1)

    def _hosted_for(self, length: int, padding: Tensor) -> Hosted:
        """The decoder for prompts of this length with some padding."""
        return self.backbone.place_decoder((length - padding).tolist(), self.layout_of_it)

    @torch.inference_mode()
    def generate(self, prompts: Tensor, rng: Generator) -> list[Recorded]:
        """Returns pictures for prompts [B, branches, ...]."""
        start, padding = self._rows(prompts)
        hosted = self._hosted_for(start.shape[1], padding)
        sequence = self.backbone.sequence(start, tuple(padding.tolist()), self.layout_of_it, self.sampling, hosted)
        sequence.read_prompt()
        x, states, tokens = start[:, -1:], [], []
        for slot in range(start.shape[1] - 1, start.shape[1] - 1 + sequence.limit):
            states.append(sequence.trunk.run(x, torch.tensor([slot], device=x.device), None, sequence.kv_cache))
            sequence.kv_cache.keep([0])
            logits = sequence.trunk.head(states[-1]).float().view(-1, len(prompts), self.vocabulary)
            p = torch.softmax(warp(guide(logits, self.sampling.guidance), self.sampling), -1)
            tokens.append(draw(p, torch.from_numpy(rng.random(len(prompts)))))
            x = self.hosted.embed(tokens[-1]).repeat(len(start) // len(prompts), 1)[:, None]
        sequence.close()
        hidden = torch.cat(states, 1).unflatten(0, (-1, len(prompts))).half().cpu()
        rows = zip(prompts.cpu(), torch.stack(tokens, 1).cpu(), hidden.transpose(0, 1).contiguous(), strict=True)
        return [Recorded(*row) for row in rows]

    def embed(self, prompts: Tensor, tokens: Tensor) -> Tensor:
        """Returns the inputs of picture tokens, the same in every branch."""
        rows = self.hosted.embed(tokens.flatten()).detach().float().view(*tokens.shape, -1)
        return rows.repeat(prompts.shape[1], 1, 1)

    def prefix(self, prompts: Tensor) -> Tensor:
        """Returns the inputs of the prompts."""
        return self._rows(prompts)[0]

    def run(self, prompts: Tensor, x: Tensor, slots: Tensor, mask: Tensor, kv_cache: Any) -> Tensor:
        """Runs the decoder. Row ends run with the tokens before them; a padding row is visible only to itself."""
        if self.hosted.row_end is None:
            return self._decode(prompts, x, slots, mask, kv_cache)
        layout = self.layout_of_it
        where = RowEnds(prompts.shape[2], layout.columns, layout.rows * layout.columns)
        rows, ends = where.expand(slots)
        past = where.expand(torch.arange(mask.shape[1] - len(mask), device=x.device))[0]  # the cached rows are a prefix
        x = torch.where(ends[:, None], self.hosted.row_end.detach().to(x.dtype), x[:, rows])
        hidden = self._decode(prompts, x, where.slots(slots, rows, ends), where.place_mask(mask, past, rows, ends), kv_cache)
        return hidden[:, where.last(rows)]

    def _decode(self, prompts: Tensor, x: Tensor, slots: Tensor, mask: Tensor, kv_cache: Any) -> Tensor:
        padding = self._rows(prompts)[1]
        hosted = self._hosted_for(prompts.shape[2], padding)
        count, total = mask.shape
        real = torch.arange(total, device=x.device) >= padding[:, None, None]
        own = torch.eye(count, total, dtype=torch.bool, device=x.device).roll(total - count, 1)
        positions = (slots[None] - padding[:, None]).clamp(min=0)
        hidden = self.trunk(
            inputs_embeds=x.to(self.trunk.dtype),
            position_ids=positions if hosted.place is None else hosted.place(positions, *hosted.tables),
            attention_mask=(mask & real | own)[:, None],
            past_key_values=Cache(layers=[_LayerCache(kv_cache, layer, total - count) for layer in range(len(self.trunk.layers))]),
            use_cache=True,
        )
        return hidden.last_hidden_state

    def make_trainable(self) -> None:
        """Makes the decoder differentiable: plain linear layers, and PyTorch's own attention."""
        restore_linear(self.trunk)
        self.trunk.set_attn_implementation("sdpa")
        self.trunk.requires_grad_(False)

    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits of picture tokens."""
        return self.hosted.head(hidden.to(self.trunk.dtype))

    def layout(self, length: int) -> Layout:
        """Returns the layout of its pictures."""
        return self.layout_of_it


class _LayerCache(CacheLayerMixin):
    """One layer of a key/value cache (`write`) with the interface of a transformers cache layer."""

    def __init__(self, kv_cache: Any, layer: int, before: int):
        super().__init__()
        self.kv_cache, self.layer, self.before, self.is_initialized = kv_cache, layer, before, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the cache is already allocated."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Keys and values of all visible rows."""
        return self.kv_cache.write(self.layer, key_states, value_states)

    def get_seq_length(self) -> int:
        """The number of rows before this pass."""
        return self.before

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The number of rows that a mask spans, and the index of the first."""
        return self.before + query_length, 0

    def get_max_length(self) -> int:
        """-1: no limit."""
        return -1


def require_checkpoint(backbone: Any, name: str) -> PictureCheckpoint:
    """The backbone, if a drafter can be trained for it; raises NotSupported."""
    if not isinstance(backbone, PictureCheckpoint):
        raise NotSupported(f"There is no recipe for a drafter of {name} ({backbone.name}). Methods that need no drafter work on it.")
    if backbone.folder is None:
        raise NotSupported(f"{name} is not imported, so its drafter has no folder. Import it first: python launch.py models import {name}")
    assert backbone.folder.name == DRAFTERS, backbone.folder
    return backbone


def read_prompts(path: Path) -> Sequence[str]:
    """The lines of a file of prompts; raises BadFile if there are too few."""
    try:
        prompts = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as e:
        raise BadFile(f"{path} cannot be read ({e}). Give a text file with one prompt per line.") from e
    if len(prompts) < FEWEST:
        raise BadFile(f"{path} has {len(prompts)} prompts; training needs at least {FEWEST}, one per line.")
    return prompts

"""Common part of the adapters of text-to-picture checkpoints. An adapter adds what differs.

`PictureCheckpoint` is a Backbone over a decoder of transformers (engine/networks/hosted.py). An adapter subclasses it. It sets `name`,
`sampling`, `layouts` and `vocabulary`, passes a `Hosted` to the constructor, and defines `rows` (from a prompt to the token ids of each
guidance row). It has the picture decoder of VQGAN as `picture`, or defines `decode` (from codes to a picture) and `codebook` (the vector of
each code). A model whose prompts are no token ids defines `inputs` in place of `rows`, and one whose positions depend on the prompt defines
`place_decoder`.

Guidance rows are one batch. If their prompts differ in length, the shorter one is padded on the left; its padding is hidden and its
positions begin at 0, so its rows are those of a prompt of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.backbones.preview import Preview, fit_preview
from engine.backbones.prompts import readable_text
from engine.backbones.trained import TrainedBackbone
from engine.core import Prompt, Sampling
from engine.errors import BadPrompt
from engine.layout import Raster
from engine.networks.hosted import Hosted, HostedTrunk, RowEndCache, RowEnds, kv_cache_for
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import causal_mask
from engine.networks.vqgan import PictureDecoder

EXAMPLE = "a red apple on a blue table"
MISSING_COLOUR = (30, 34, 42)


class PictureCheckpoint(TrainedBackbone):
    """A text-to-picture backbone. What the module's docstring does not name is the same for every checkpoint."""

    name: str
    sampling: Sampling
    layouts: Mapping[int, Raster]  # by the picture's side in pixels; the first is the default
    vocabulary: int
    capabilities: frozenset[str] = frozenset({"raster", "wavefront", "text", "codebook", "hidden"})
    picture: PictureDecoder  # unless an adapter decodes by other means
    classes = 0  # a prompt names one of this many by number; 0: it is a text

    def __init__(self, hosted: Hosted, weights: Iterable[Tensor], licence: str = ""):
        """weights : all of them, to be counted; licence : of the weights, as the checkpoint names it"""
        self.hosted, self.draft_trunk, self.parameters = hosted, hosted.decoder, sum(each.numel() for each in weights)
        self.device, self.dtype = hosted.decoder.device, str(hosted.decoder.dtype).removeprefix("torch.")
        self.draft_dtype = hosted.decoder.dtype
        self.card: Mapping[str, Any] = {"licence": licence} if licence else {}

    def rows(self, text: str, layout: Raster) -> list[list[int]]:
        """The ids of a prompt up to the picture's first token: those of the text, then those without it, for guidance. A model without
        guidance gives one list."""
        raise NotImplementedError

    def decode(self, codes: Tensor) -> Tensor:
        """The picture [pixel rows, pixel columns, 3], in about -1..1, of codes int64 [rows, columns]."""
        return self.picture(codes)

    def codebook(self) -> Tensor:
        """The decoder's input for every token, float32 [V, D]."""
        return self.picture.codebook()

    @property
    def layout(self) -> Raster:
        """The layout of the default size."""
        return next(iter(self.layouts.values()))

    @property
    def sizes(self) -> list[int]:
        """Picture sizes, in pixels."""
        return sorted(self.layouts)

    def start(self, prompt: Prompt) -> TransformerSequence:
        """Prefills a prompt; raises BadPrompt if the text is empty or too long, or for a size that the model does not make."""
        layout = self._layout(prompt.size)
        x, padding = self.inputs(prompt)
        hosted = self.place_decoder([x.shape[1] - pad for pad in padding], layout)
        return self.sequence(x, padding, layout, prompt.sampling or self.sampling, hosted)

    def inputs(self, prompt: Prompt) -> tuple[Tensor, tuple[int, ...]]:
        """The decoder's inputs for a prompt [branches, P, H], and the number of inputs before it in each branch. A model whose
        prompts are token ids defines `rows` instead."""
        layout, sampling = self._layout(prompt.size), prompt.sampling or self.sampling
        rows = self.rows(readable_text(prompt.text, EXAMPLE), layout)
        self._check_length(rows, layout)
        return self._prefix(rows[:1] if sampling.guidance == 1 else rows)

    def place_decoder(self, lengths: Sequence[int], layout: Raster) -> Hosted:
        """The decoder for prompts of these lengths, one for each branch: positions of a picture may depend on them."""
        return self.hosted

    def sequence(
        self, x: Tensor, padding: tuple[int, ...], layout: Raster, sampling: Sampling, hosted: Hosted | None = None
    ) -> TransformerSequence:
        """A sequence after some inputs x [branches, P, H], of which the first `padding` of each branch are no part of its prompt.
        hosted : the decoder with what depends on the prompt; None: nothing does"""
        limit, ends = layout.rows * layout.columns, 0
        if self.hosted.row_end is not None:
            ends = layout.rows + 1
        kv_cache = kv_cache_for(self.hosted, len(x), x.shape[1] + limit + 2 * ends)
        trunk = HostedTrunk(hosted or self.hosted, padding)
        return TransformerSequence(
            trunk, x, self._prefix_mask(x.shape[1]),
            RowEndCache(kv_cache, RowEnds(x.shape[1], layout.columns, limit)) if ends else kv_cache,
            vocabulary=self.vocabulary, limit=limit, layout=layout, sampling=sampling, codebook=self.codebook(),
            workspaces=self.workspaces,
        )  # fmt: skip

    def _prefix_mask(self, count: int) -> Tensor | None:
        return None if count < 2 else causal_mask(count - 1, 0, self.device)

    def _prefix(self, rows: list[list[int]]) -> tuple[Tensor, tuple[int, ...]]:
        """The inputs of the guidance rows [branches, P, H], and the padding of each on the left."""
        longest = max(map(len, rows))
        padding = tuple(longest - len(ids) for ids in rows)
        ids = torch.tensor([ids[:1] * pad + ids for ids, pad in zip(rows, padding, strict=True)], device=self.device)
        return self.hosted.decoder.embed_tokens(ids), padding

    def _check_length(self, rows: list[list[int]], layout: Raster) -> None:
        ends = layout.rows if self.hosted.row_end is not None else 0
        most = self.hosted.decoder.config.max_position_embeddings - layout.rows * layout.columns - ends
        if len(rows[0]) > most:
            raise BadPrompt(f"The prompt has {len(rows[0]):,} tokens; {self.name} reads at most {most:,}. Shorten it.")

    def _layout(self, size: int | None) -> Raster:
        if size is None:
            return self.layout
        if size not in self.layouts:
            sides = ", ".join(map(str, self.sizes))
            raise BadPrompt(f"{self.name} makes pictures of {sides} pixels, not {size}. Choose {sides.replace(', ', ' or ')}.")
        return self.layouts[size]

    @cached_property
    def preview(self) -> Preview:
        """The linear map that replaces the decoder in partial pictures; fitted when the first one is rendered."""
        return fit_preview(self.decode, self.codebook(), self.layout.factor)

    @torch.inference_mode()
    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray:
        """uint8 [H, W, 3]; missing tokens are dark gray. A picture that is not final is a preview: a linear map of the codes."""
        layout = self._layout(size)
        side, factor = (layout.rows, layout.columns), layout.factor
        grid = torch.zeros(layout.rows * layout.columns, dtype=torch.int64, device=self.device)
        known = torch.zeros(len(grid), dtype=torch.bool, device=self.device)
        at = torch.tensor(positions, dtype=torch.int64, device=self.device)
        grid[at], known[at] = torch.tensor(tokens, dtype=torch.int64, device=self.device), True
        picture = self.decode(grid.view(side)) if final else self.preview.picture(grid.view(side))
        pixels = ((picture.float().clamp(-1, 1) + 1) * 127.5).round().byte()
        shown = known.view(side).repeat_interleave(factor, 0).repeat_interleave(factor, 1)
        pixels[~shown] = torch.tensor(MISSING_COLOUR, dtype=torch.uint8, device=self.device)
        return pixels.cpu().numpy()

"""Plain decoding of several point clouds at once, for measurements and lessons: the tokens of `ar` one by one, in a fraction of the time.

A pass costs nearly the same for one row as for thirty. Every sequence has its own noise, grammar and end, so its tokens are those of a run
of its own, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.backbones.lowpoly import Lowpoly, MaskedGrammar
from engine.cache import KVCache
from engine.core import Bias, Prompt
from engine.mesh.bpt_tokens import BPT
from engine.noise import Noise
from engine.sampling import draw_gumbel, warp

FORGET = 32  # positions after which a noise object, which stores all noise it has drawn, is replaced
CROWDED = 0.75  # rows are moved together when fewer than this share of them go on


class _Row:
    """One sequence: its noise, the states of its grammar, its bias, and its tokens."""

    def __init__(self, place: int, prompt: Prompt, grammar: bool, bias: Bias | None):
        self.place, self.prompt, self.tokens = place, prompt, []
        self.bias, self.lost_in = bias, bias.start if bias else None
        self.grammar = MaskedGrammar(prompt.size) if grammar else None
        self.state = self.grammar.start if self.grammar else None
        self.done = False

    def allowed_ids(self, vocabulary: int) -> Tensor:
        """The ids allowed next, bool [V]."""
        return self.grammar.allowed_ids(self.state) if self.grammar else torch.ones(vocabulary, dtype=torch.bool)

    def push(self, token: int, limit: int) -> None:
        """Takes the next token."""
        self.tokens.append(token)
        self.state = self.grammar.next(self.state, token) if self.grammar else None
        self.lost_in = self.bias.next(self.lost_in, token) if self.bias else None
        self.done = token == BPT.eos or len(self.tokens) >= limit


def decode_together(backbone: Lowpoly, prompts: Sequence[Prompt]) -> list[list[int]]:
    """The tokens of each prompt; raises BadPrompt for too few points or an impossible number of faces. All prompts share one sampling."""
    return decode_read(backbone, torch.stack([backbone.read_points(prompt) for prompt in prompts]), prompts)


@torch.inference_mode()
def decode_read(backbone: Lowpoly, points: Tensor, prompts: Sequence[Prompt], longest: int | None = None) -> list[list[int]]:
    """The tokens of points [B, N, 6] in the order in which the model reads them, by the seeds, budgets and sampling of prompts.

    longest : a sequence stops at this length; None: at the backbone's
    """
    torch.set_flush_denormal(True)
    decoder, s, device = backbone.model.decoder, backbone.model.settings, backbone.device
    sampling, length = prompts[0].sampling or backbone.sampling, min(s.length, longest or s.length)
    table, positions = backbone.tables
    reading = backbone.model.read(points.to(device), backbone.face_levels(prompts))
    rows = [_Row(i, prompt, backbone.grammar, backbone.bias(prompt)) for i, prompt in enumerate(prompts)]
    tokens: list[list[int]] = [row.tokens for row in rows]
    condition_kv = decoder.keys_values(reading.condition)
    kv_cache = KVCache(s.layers, len(rows), s.heads, 1 + length, s.width // s.heads, device, torch.float32)
    x = decoder.start.expand(len(rows), 1, -1)
    for n in range(length):
        if n % FORGET == 0:
            noises = [Noise(row.prompt.seed, s.vocabulary, device) for row in rows]
        hidden = decoder(x + positions[n], None, condition_kv, kv_cache)
        kv_cache.keep([0])
        allowed = torch.stack([row.allowed_ids(s.vocabulary) for row in rows]).to(device)
        logits = decoder.head(hidden)[:, 0].float()
        for row, own in zip(rows, logits, strict=True):
            if row.bias is not None:
                own -= row.bias.loss(row.lost_in).to(device)
        scores = warp(logits, sampling, allowed)
        drawn = draw_gumbel(scores, torch.cat([noise.gumbel(n, 1) for noise in noises]))
        for row, token in zip(rows, drawn.tolist(), strict=True):
            if not row.done:
                row.push(token, length)
        going = [i for i, row in enumerate(rows) if not row.done]
        if not going:
            break
        if len(going) < CROWDED * len(rows):
            rows, noises, drawn = [rows[i] for i in going], [noises[i] for i in going], drawn[going]
            kv_cache.block, kv_cache.branches = kv_cache.block[:, :, going], len(going)
            condition_kv = [(keys[going], values[going]) for keys, values in condition_kv]
            reading = reading.select(going)
        x = reading.embed(table, drawn[:, None])
    return tokens

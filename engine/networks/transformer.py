"""The decoder architecture of our own models: RMSNorm, SwiGLU, rotary positions from a table, normalised queries and keys.

It reads and writes a `KVCache`. Positions are explicit: nothing is inferred from the length of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import KVCache
from engine.kernels.tree_attention import Chain, Visibility
from engine.networks.attention import attend
from engine.networks.rows import AdapterRows, RowSplit, adapter_hooks


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis: x / sqrt(mean(x^2) + eps) * weight.

    Computed with a vector norm and a hypotenuse: four kernels on a CPU instead of the nine of PyTorch's norm. Such overhead dominates
    the pass of one token.
    """

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("floor", torch.tensor(math.sqrt(width * eps)), persistent=False)
        self.scale = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width]"""
        return self.normalize(x) * (self.weight * self.scale)

    def normalize(self, x: Tensor) -> Tensor:
        """Returns x divided by its length, for inputs that are weighted later; without the factor sqrt(width)."""
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self.floor)
        return x / length


class TransformerBlock(nn.Module):
    """Attention and a gated feed-forward part; each is applied after a norm and added to its input."""

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = RMSNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.query_norm = RMSNorm(width // heads)
        self.key_norm = RMSNorm(width // heads)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.feed_norm = RMSNorm(width)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.feed_out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Visibility, kv_cache: KVCache | None, layer: int) -> Tensor:
        """x [B, R, width]; cos, sin [R, head width] or [B, R, head width]; mask bool [R, all], or sets, or None (see everything)."""
        b, r, width = x.shape
        mixed = self.query_key_value(self.attention_norm(x)).view(b, r, 3, self.heads, -1)
        weight = torch.stack([self.query_norm.weight, self.key_norm.weight])[:, None] * self.query_norm.scale
        pair = self.query_norm.normalize(mixed[:, :, :2]) * weight.to(mixed.dtype)  # both at once: half the kernels
        turned = rotate(pair, cos, sin)
        q, k, v = turned[:, :, 0].transpose(1, 2), turned[:, :, 1].transpose(1, 2), mixed[:, :, 2].transpose(1, 2)
        if kv_cache is not None:
            k, v = kv_cache.write(layer, k, v)
        attended = attend(q.to(k.dtype), k, v, mask).to(mixed.dtype)  # the cache may be rounded where the network is not
        x = x + self.attention_out(attended.transpose(1, 2).reshape(b, r, width))
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, -1)
        return x + self.feed_out(F.silu(gate) * up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position: x [B, R, ..., heads, d], cos and sin [R, d] or [B, R, d] (the two halves of d are the two parts of each pair).

    The halves are rotated separately and concatenated once. A concatenation in the middle cannot be vectorised when compiled for training;
    this form made the whole step a quarter shorter.
    """
    half = x.shape[-1] // 2
    shape = (*cos.shape[:-1], *[1] * (x.ndim - 3), -1)
    cos, sin = cos[..., :half].to(x.dtype).view(shape), sin[..., :half].to(x.dtype).view(shape)
    a, b = x.chunk(2, -1)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -2).flatten(-2)


def rotary_table(coordinates: Tensor, width: int, base: float = 100.0) -> tuple[Tensor, Tensor]:
    """cos and sin [slots, width] for coordinates [slots, axes]; the pairs of a head are divided evenly among the axes."""
    axes = coordinates.shape[1]
    pairs = width // 2 // axes
    frequency = base ** (-torch.arange(pairs, dtype=torch.float32, device=coordinates.device) / pairs)
    angles = (coordinates[:, :, None].float() * frequency).flatten(1)  # [slots, axes * pairs]
    angles = F.pad(angles, (0, width // 2 - angles.shape[1]))
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


class TransformerDecoder(nn.Module):
    """A stack of blocks and a final norm.

    Rotary positions give a row only its distance to what it sees, which in a flat area of a picture does not locate the row in an object.
    So each row of a `placed` decoder also gets its own place, computed from the cos and sin of its queries and keys.
    """

    quick: Callable[..., Tensor | None] | None = None  # all blocks and the last norm in one call, or None for an unsupported pass

    def __init__(self, layers: int, width: int, heads: int, inner: int, placed: bool = False):
        super().__init__()
        self.width, self.heads = width, heads
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, inner) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.place_map = nn.Linear(width // heads, width, bias=False) if placed else None
        for name, p in self.named_parameters():
            if p.ndim == 2:
                out = name.endswith(("attention_out.weight", "feed_out.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if out else 0.02)
        if placed:
            nn.init.zeros_(self.place_map.weight)  # weights trained without it behave as before

    def with_places(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Embeddings x [B, R, width] with their places added, from the tables [R, head width] or [B, R, head width] of their slots."""
        return x if self.place_map is None else x + self.places(cos, sin)

    def places(self, cos: Tensor, sin: Tensor) -> Tensor:
        """The vectors that a `placed` decoder adds to embeddings, [..., width], from the tables [..., head width] of their slots."""
        half = cos.shape[-1] // 2
        return self.place_map(torch.cat([cos[..., :half], sin[..., :half]], -1).to(self.place_map.weight.dtype))

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Visibility,
        kv_cache: KVCache | None = None,
        split: RowSplit | None = None,
        places: Tensor | None = None,
        adapter_rows: AdapterRows | None = None,
    ) -> Tensor:
        """Hidden states [B, R, width] after the final norm; writes the rows' keys and values into the cache, if there is one.

        places : [R, width], the rows' places if already computed
        """
        x = self.with_places(x, cos, sin) if places is None else x + places
        if self.quick is not None and (hidden := self.quick(x, mask, kv_cache, cos, sin, None, split, adapter_rows)) is not None:
            return hidden
        if isinstance(mask, Chain):
            mask = mask.dense(x.device)
        with adapter_hooks(adapter_rows):
            for layer, block in enumerate(self.blocks):
                if split is not None and layer == split.layer:
                    x, cos, sin, mask = x[:, split.rows], cos[split.rows], sin[split.rows], split.mask
                x = block(x, cos, sin, mask, kv_cache, layer)
        return self.norm(x)


def causal_mask(count: int, kept: int, device: torch.device) -> Tensor:
    """The causal mask of `count` rows after `kept` cached ones: bool [count, kept + count]."""
    return Chain(count, kept).dense(device)

"""The network of BPT: point cloud -> mesh tokens. One class serves the public checkpoint and the small lowpoly model.

Paper: Scaling Mesh Generation via Compressive Tokenization (BPT), Weng et al., arXiv 2411.07025; the point encoder is from
Michelangelo, Zhao et al., arXiv 2306.17115.
`PointEncoder` turns points into a short list of condition vectors. `MeshDecoder` predicts block, offset and end tokens. Each of its
blocks attends to the sequence so far, then to the condition, and ends with a feed-forward layer. Queries and keys are normalised, and
their cosine is scaled by ten. Keys and values of the condition never change, so a run computes them once; computing them for every
token, as the public code does, costs more than everything else together.
Widths, depths and lengths are read from the shapes of the weights (`settings_of`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import KVCache
from engine.kernels.tree_attention import Chain, Visibility
from engine.networks.attention import attend
from engine.networks.cloud_blocks import BlockReader
from engine.networks.initial import small_normal
from engine.networks.packing import count
from engine.networks.rows import AdapterRows, RowSplit, adapter_hooks

COSINE_SCALE = 10.0
FREQUENCIES = 8  # 2^0 .. 2^7, without pi
BLOCKS, OFFSETS = 512, 4096  # ids 0..511 plain blocks, 512..4607 offsets, 4608..5119 patch starts, 5120 the end
ENCODED = 1024  # the number of first points that the encoder gets in a model with a block reader
BUDGETS = 9  # learned vectors of numbers of faces: 0 = none, then 32 and its doublings; numbers between two mix their vectors


@dataclass(frozen=True)
class MeshSettings:
    """The shape of a model."""

    layers: int = 6
    width: int = 192
    heads: int = 6
    inner: int = 512
    length: int = 1024  # positions, end included
    vocabulary: int = 5121
    memories: int = 4  # learned keys and values in addition to the condition
    features: int = 55  # per point; 54 without the flag for known normals
    encoder_width: int = 192
    encoder_blocks: int = 2
    latents: int = 65
    budgets: int = BUDGETS  # 0: the model reads no number of faces
    contents: int = 0  # numbers per block of the cloud that the model reads; 0: it has no block reader


class CosineAttention(nn.Module):
    """Cosine attention: softmax(10 q.k / (|q| |k|)) v, without biases."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.out = nn.Linear(width, width, bias=False)

    def split(self, x: Tensor) -> Tensor:
        """[B, R, width] -> [B, heads, R, head width]"""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Visibility) -> Tensor:
        """q, k, v [B, heads, R or S, d], q and k of length 1 -> [B, R, width]"""
        return self.join(attend(q, k, v, mask, COSINE_SCALE))

    def join(self, heads: Tensor) -> Tensor:
        """[B, heads, R, d] -> [B, R, width]"""
        return self.out(heads.transpose(1, 2).flatten(2))


class SelfAttention(CosineAttention):
    """Attention to the sequence so far."""

    def __init__(self, width: int, heads: int):
        super().__init__(width, heads)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x: Tensor, mask: Visibility, kv_cache: KVCache | None, layer: int) -> Tensor:
        """x [B, R, width]; mask bool [R, all], or sets, or None (see everything)."""
        mixed = self.query_key_value(x).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)  # [3, B, heads, R, d]
        q, k = F.normalize(mixed[:2], dim=-1)
        v = mixed[2]
        if kv_cache is not None:
            k, v = kv_cache.write(layer, k, v)
        return self.attend(q, k, v, mask)


class CrossAttention(CosineAttention):
    """Attention to the condition and a few learned memories."""

    def __init__(self, width: int, heads: int, memories: int):
        super().__init__(width, heads)
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.memory = small_normal(2, heads, memories, width // heads)

    def keys_values(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, heads, memories + C, d] of a condition [B, C, width]."""
        b = len(condition)
        keys, values = (self.split(x) for x in self.key_value(condition).chunk(2, -1))
        keys, values = (torch.cat([m.to(x.dtype).expand(b, -1, -1, -1), x], 2) for m, x in zip(self.memory, (keys, values), strict=True))
        return F.normalize(keys, dim=-1), values

    def forward(self, x: Tensor, condition_kv: tuple[Tensor, Tensor]) -> Tensor:
        """x [B, R, width]"""
        q, (k, v) = self.split(self.query(x)), condition_kv
        return self.attend(F.normalize(q, dim=-1), k, v, None)


class FeedForward(nn.Module):
    """GEGLU: value * gelu(gate)."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        self.value_gate = nn.Linear(width, 2 * inner)
        self.out = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width]"""
        value, gate = self.value_gate(x).chunk(2, -1)
        return self.out(value * F.gelu(gate))


class MeshBlock(nn.Module):
    """Self-attention, cross-attention and feed-forward; each is applied after a norm and added to its input."""

    def __init__(self, s: MeshSettings):
        super().__init__()
        self.self_norm, self.cross_norm, self.feed_norm = (nn.LayerNorm(s.width) for _ in range(3))
        self.self_attention = SelfAttention(s.width, s.heads)
        self.cross_attention = CrossAttention(s.width, s.heads, s.memories)
        self.feed = FeedForward(s.width, s.inner)

    def forward(self, x: Tensor, mask: Tensor | None, condition_kv: tuple[Tensor, Tensor], kv_cache: KVCache | None, layer: int) -> Tensor:
        """x [B, R, width]; condition_kv: the condition's keys and values."""
        x = x + self.self_attention(self.self_norm(x), mask, kv_cache, layer)
        x = x + self.cross_attention(self.cross_norm(x), condition_kv)
        return x + self.feed(self.feed_norm(x))


class ConditionKV(list[tuple[Tensor, Tensor]]):
    """Keys and values of a condition for every block. compiled : the same for compiled blocks, made once per run"""

    compiled: Any = None


class MeshDecoder(nn.Module):
    """Embeddings, blocks, final norm and head. Row 0 of a sequence is the start vector; row i+1 is token i and predicts token i+1."""

    quick: Callable[..., Tensor | None] | None = None  # all blocks and the last norm in one call, or None for an unsupported pass

    def __init__(self, s: MeshSettings):
        super().__init__()
        self.tokens = small_normal(s.vocabulary, s.width)
        self.kinds = small_normal(3, s.width)  # plain block, offset, patch start; the end has none
        self.positions = small_normal(s.length, s.width)
        self.start = small_normal(s.width)
        self.blocks = nn.ModuleList(MeshBlock(s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.width)
        self.head = nn.Linear(s.width, s.vocabulary)

    def table(self) -> Tensor:
        """Embeddings of all ids, with the embedding of their kind added, [V, width]."""
        kinds = torch.cat([row.expand(count, -1) for row, count in zip(self.kinds, (BLOCKS, OFFSETS, BLOCKS), strict=True)])
        return self.tokens + F.pad(kinds, (0, 0, 0, len(self.tokens) - len(kinds)))

    def keys_values(self, condition: Tensor) -> ConditionKV:
        """The condition's keys and values for every block, computed once per run."""
        return ConditionKV(block.cross_attention.keys_values(condition) for block in self.blocks)

    def forward(
        self,
        x: Tensor,
        mask: Visibility,
        condition_kv: list[tuple[Tensor, Tensor]],
        kv_cache: KVCache | None = None,
        split: RowSplit | None = None,
        adapter_rows: AdapterRows | None = None,
    ) -> Tensor:
        """Embedded rows [B, R, width], positions included -> hidden states after the final norm."""
        if self.quick is not None and (hidden := self.quick(x, mask, kv_cache, None, None, condition_kv, split, adapter_rows)) is not None:
            return hidden
        if isinstance(mask, Chain):
            mask = mask.dense(x.device)
        with adapter_hooks(adapter_rows):
            for layer, block in enumerate(self.blocks):
                if split is not None and layer == split.layer:
                    x, mask = x[:, split.rows], split.mask
                x = block(x, mask, condition_kv[layer], kv_cache, layer)
        return self.norm(x)


class EncoderAttention(nn.Module):
    """Softmax attention; queries, keys and values of a head are adjacent, as in the public encoder."""

    def __init__(self, width: int, heads: int, cross: bool):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False) if cross else None
        self.mixed = nn.Linear(width, (2 if cross else 3) * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, data: Tensor | None = None) -> Tensor:
        """x [B, R, width]; data [B, N, width] for cross-attention."""
        source = x if data is None else data
        parts = self.mixed(source).view(*source.shape[:2], self.heads, -1).transpose(1, 2)
        if data is None:
            q, k, v = parts.chunk(3, -1)
        else:
            q = self.query(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            k, v = parts.chunk(2, -1)
        return self.out(attend(q, k, v).transpose(1, 2).flatten(2))


class EncoderBlock(nn.Module):
    """Attention and a GELU layer of four times the width."""

    def __init__(self, width: int, heads: int, cross: bool = False):
        super().__init__()
        self.attention_norm, self.feed_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.data_norm = nn.LayerNorm(width) if cross else None
        self.attention = EncoderAttention(width, heads, cross)
        self.feed_in, self.feed_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, data: Tensor | None = None) -> Tensor:
        """x [B, R, width]"""
        x = x + self.attention(self.attention_norm(x), None if data is None else self.data_norm(data))
        return x + self.feed_out(F.gelu(self.feed_in(self.feed_norm(x))))


class PointEncoder(nn.Module):
    """Learned queries attend to all points once, then to each other. Takes any number of points, in any order."""

    def __init__(self, s: MeshSettings):
        super().__init__()
        width, heads = s.encoder_width, s.encoder_width // (s.width // s.heads)
        self.features = s.features
        self.queries = small_normal(s.latents, width)
        self.points = nn.Linear(s.features, width)
        self.cross = EncoderBlock(width, heads, cross=True)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads) for _ in range(s.encoder_blocks))
        self.norm = nn.LayerNorm(width)
        self.first, self.others = nn.Linear(width, s.width), nn.Linear(width, s.width)
        self.budget = nn.Embedding(s.budgets, s.width) if s.budgets else None

    def forward(self, points: Tensor, target: Tensor | None = None) -> Tensor:
        """points [B, N, 6] (xyz in [-1, 1], unit normals or zeros), target float [B] (`face_level`) or None -> condition [B, C, width]."""
        data = self.points(point_features(points)[..., : self.features])
        x = self.cross(self.queries.expand(len(points), -1, -1), data)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        condition = torch.cat([self.first(x[:, :1]), self.others(x[:, 1:])], 1)
        if self.budget is None:
            return condition
        level = torch.zeros(len(points), device=points.device) if target is None else target
        below = level.floor().long().clamp(max=self.budget.num_embeddings - 2)
        share = (level - below)[:, None].to(self.budget.weight.dtype)
        row = torch.lerp(self.budget(below), self.budget(below + 1), share)
        return torch.cat([condition, row[:, None]], 1)


def point_features(points: Tensor) -> Tensor:
    """[B, N, 6] -> [B, N, 55]: xyz, sines and cosines at eight octaves, the normal, and 1 where there is a normal."""
    xyz, normals = points[..., :3], points[..., 3:]
    angles = (xyz[..., None] * 2.0 ** torch.arange(FREQUENCIES, device=points.device)).flatten(-2)
    known = normals.abs().sum(-1, keepdim=True) > 0
    return torch.cat([xyz, angles.sin(), angles.cos(), normals, known.to(xyz.dtype)], -1)


def face_level(faces: int | None) -> float:
    """A number of faces as the model reads it: 0 = none, 1 = up to 32 faces, and 1 more for each doubling, up to BUDGETS - 1."""
    return 0.0 if not faces else min(BUDGETS - 1.0, max(1.0, math.log2(faces) - 4))


class CloudReading(NamedTuple):
    """The output of a model's encoder for some clouds.

    condition : [B, C, width]
    added     : vectors added to the blocks' embeddings [B, BLOCKS + 1, width], the last of which is 0; None without a block reader
    """

    condition: Tensor
    added: Tensor | None

    def embed(self, table: Tensor, tokens: Tensor) -> Tensor:
        """Embeddings [B, L, width] of tokens int64 [B, L] from a table [V, width]."""
        x = table[tokens]
        if self.added is None:
            return x
        rows = blocks_of(tokens)[..., None].expand(-1, -1, x.shape[-1])
        return x + self.added.gather(1, rows).to(x.dtype)

    def select(self, chosen: list[int]) -> CloudReading:
        """The readings of the chosen clouds."""
        return CloudReading(self.condition[chosen], None if self.added is None else self.added[chosen])

    def table(self, table: Tensor) -> Tensor:
        """The embeddings of all ids [V, width] for the first cloud."""
        if self.added is None:
            return table
        out, added, start = table.clone(), self.added[0, :BLOCKS].to(table.dtype), BLOCKS + OFFSETS
        out[:BLOCKS] += added  # the ids for which `blocks_of` returns a block
        out[start : start + BLOCKS] += added
        return out


def blocks_of(tokens: Tensor) -> Tensor:
    """The block that an id names, plain or as the start of a patch; BLOCKS for other ids."""
    start = BLOCKS + OFFSETS
    plain, patch = (tokens >= 0) & (tokens < BLOCKS), (tokens >= start) & (tokens < start + BLOCKS)
    return torch.where(plain, tokens, torch.where(patch, tokens - start, BLOCKS))


class MeshModel(nn.Module):
    """Encoder and decoder."""

    def __init__(self, settings: MeshSettings):
        super().__init__()
        self.settings = settings
        self.encoder, self.decoder = PointEncoder(settings), MeshDecoder(settings)
        self.reader = BlockReader(settings.width, settings.contents) if settings.contents else None
        depth = 2 * settings.layers
        for name, p in self.named_parameters():
            if p.ndim == 2 and name.endswith("weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(depth) if name.endswith("out.weight") else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)
        if self.reader is not None:
            self.reader.begin()

    def read(self, points: Tensor, target: Tensor | None = None) -> CloudReading:
        """Reads clouds [B, N, 6] and numbers of faces float [B] (`face_level`; 0 = none)."""
        if self.reader is None:
            return CloudReading(self.encoder(points, target), None)
        return CloudReading(self.encoder(points[:, :ENCODED], target), self.reader(points))


def settings_of(weights: Mapping[str, Tensor]) -> MeshSettings:
    """The shape of a model, from the shapes of its weights."""
    memory = weights["decoder.blocks.0.cross_attention.memory"]
    budgets = weights.get("encoder.budget.weight")
    return MeshSettings(
        layers=count(weights, "decoder.blocks."),
        width=len(weights["decoder.start"]),
        heads=memory.shape[1],
        inner=weights["decoder.blocks.0.feed.out.weight"].shape[1],
        length=len(weights["decoder.positions"]),
        vocabulary=len(weights["decoder.tokens"]),
        memories=memory.shape[2],
        features=weights["encoder.points.weight"].shape[1],
        encoder_width=weights["encoder.queries"].shape[1],
        encoder_blocks=count(weights, "encoder.blocks."),
        latents=len(weights["encoder.queries"]),
        budgets=0 if budgets is None else len(budgets),
        contents=weights["reader.contents.weight"].shape[1] if "reader.contents.weight" in weights else 0,
    )


def describe(settings: MeshSettings) -> dict[str, int]:
    """The settings that apply, as entries of a card."""
    return {name: value for name, value in asdict(settings).items() if name != "contents" or value}

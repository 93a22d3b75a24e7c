"""The decoder shape that our own models share, and the running sequence that every transformer adapter uses.

Two things live here. `Decoder` is a Llama-shaped stack (RMSNorm, SwiGLU, rotary positions from a table, normalised queries and
keys) that reads and writes a `Slab`. `TransformerSequence` is the seam over any such trunk: it keeps the pending token, turns a Draft
into tokens, positions and a visibility mask, and keeps the accepted path. Positions are explicit: nothing is inferred from the
length of the cache.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import Slab
from engine.core import Draft, Grammar, Rows, Sampling
from engine.layout import Layout
from engine.sampling import guide, warp
from engine.tree import depths, is_chain, visibility


class Norm(nn.Module):
    """Root-mean-square norm over the last axis: x / sqrt(mean(x^2) + eps) * weight.

    Written with a vector norm and a hypotenuse: four kernels instead of the nine of PyTorch's own on a CPU, where one token's pass is
    mostly such overhead.
    """

    def __init__(self, width: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("floor", torch.tensor(math.sqrt(width * eps)), persistent=False)
        self.scale = math.sqrt(width)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., width]"""
        return self.unweighted(x) * (self.weight * self.scale)

    def unweighted(self, x: Tensor) -> Tensor:
        """x over its length, for inputs whose weight comes later; without the factor sqrt(width)."""
        length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), self.floor)
        return x / length


class Block(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm, each added to its input."""

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = Norm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.query_norm = Norm(width // heads)
        self.key_norm = Norm(width // heads)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.feed_norm = Norm(width)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.feed_out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, slab: Slab | None, layer: int) -> Tensor:
        """x [B, R, width]; cos, sin [R, head width] or [B, R, head width]; mask bool [R, all] or None (see everything)."""
        b, r, width = x.shape
        mixed = self.query_key_value(self.attention_norm(x)).view(b, r, 3, self.heads, -1)
        weight = torch.stack([self.query_norm.weight, self.key_norm.weight])[:, None] * self.query_norm.scale
        pair = self.query_norm.unweighted(mixed[:, :, :2]) * weight.to(mixed.dtype)  # both at once: half the kernels
        turned = rotate(pair, cos, sin)
        q, k, v = turned[:, :, 0].transpose(1, 2), turned[:, :, 1].transpose(1, 2), mixed[:, :, 2].transpose(1, 2)
        if slab is not None:
            k, v = slab.write(layer, k, v)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.attention_out(seen.transpose(1, 2).reshape(b, r, width))
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, -1)
        return x + self.feed_out(F.silu(gate) * up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position: x [B, R, ..., heads, d], cos and sin [R, d] or [B, R, d] (the two halves of d are the two parts of each pair).

    The halves are turned apart and put together once: compiled for training, a catenation in the middle cannot be vectorised, and this
    form made the whole step a quarter shorter.
    """
    half = x.shape[-1] // 2
    shape = (*cos.shape[:-1], *[1] * (x.ndim - 3), -1)
    cos, sin = cos[..., :half].to(x.dtype).view(shape), sin[..., :half].to(x.dtype).view(shape)
    a, b = x.chunk(2, -1)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -2).flatten(-2)


def rotary_table(coordinates: Tensor, width: int, base: float = 100.0) -> tuple[Tensor, Tensor]:
    """cos and sin [slots, width] for coordinates [slots, axes]; the pairs of a head are shared out evenly among the axes."""
    axes = coordinates.shape[1]
    pairs = width // 2 // axes
    frequency = base ** (-torch.arange(pairs, dtype=torch.float32) / pairs)
    angles = (coordinates[:, :, None].float() * frequency).flatten(1)  # [slots, axes * pairs]
    angles = F.pad(angles, (0, width // 2 - angles.shape[1]))
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


class Decoder(nn.Module):
    """A stack of blocks and a final norm.

    Rotary positions tell a row only how far away it looks. Inside a flat area that does not say where in an object it is. So each row of a
    `placed` one is also given its own place, mapped from the waves that turn its queries and keys.
    """

    def __init__(self, layers: int, width: int, heads: int, inner: int, placed: bool = False):
        super().__init__()
        self.width, self.heads = width, heads
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.norm = Norm(width)
        self.place_map = nn.Linear(width // heads, width, bias=False) if placed else None
        for name, p in self.named_parameters():
            if p.ndim == 2:
                out = name.endswith(("attention_out.weight", "feed_out.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if out else 0.02)
        if placed:
            nn.init.zeros_(self.place_map.weight)  # weights that were trained without it start as they were

    def with_places(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Embeddings x [B, R, width] that know their places, by the tables [R, head width] or [B, R, head width] of their slots."""
        if self.place_map is None:
            return x
        half = cos.shape[-1] // 2
        return x + self.place_map(torch.cat([cos[..., :half], sin[..., :half]], -1).to(x.dtype))

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, slab: Slab | None = None, fork: Fork | None = None
    ) -> Tensor:
        """Hidden states [B, R, width] after the final norm; writes the rows' keys and values into the slab, if there is one."""
        x = self.with_places(x, cos, sin)
        for layer, block in enumerate(self.blocks):
            if fork is not None and layer == fork.layer:
                x, cos, sin, mask = x[:, fork.rows], cos[fork.rows], sin[fork.rows], fork.mask
            x = block(x, cos, sin, mask, slab, layer)
        return self.norm(x)


@dataclass(frozen=True)
class Fork:
    """A layer at which rows of a pass part that were one until there: from it on, row i continues row rows[i] of the layers below.

    layer : 1 to the last; rows : int64 [R]; mask : bool [R, kept + R], who sees whom from that layer on
    """

    layer: int
    rows: Tensor
    mask: Tensor


class Trunk(Protocol):
    """What TransformerSequence needs of a model."""

    def embed(self, tokens: Tensor) -> Tensor:
        """[R] ids of the head in use -> [1 or branches, R, H]"""
        ...

    def run(self, x: Tensor, slots: Tensor, mask: Tensor | None, slab: Slab, fork: Fork | None = None) -> Tensor:
        """x [branches, R, H] at slots int64 [R] (0 = first of the prefix), mask bool [R, kept+R] or None -> hidden, same shape; behind a
        fork, with the fork's rows. Only models that have predictive streams know forks."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[branches, R, H] -> logits [branches, R, V]"""
        ...


class RowAdapter(Protocol):
    """What predictive rows run with: see engine/drafters/predictive_stream.py."""

    first_layer: int  # of the blocks that it acts in

    def worn(self, first: int) -> AbstractContextManager[None]:
        """Inside, rows from number `first` on of every pass of this thread run with the adapter, and all others as they are."""
        ...


class TransformerSequence:
    """One run on one prompt: slab cache, pending token, warp. `prefix` has been fed, all but its last row, which is pending."""

    def __init__(
        self,
        trunk: Trunk,
        prefix: Tensor,
        prefix_mask: Tensor | None,
        slab: Slab,
        *,
        vocabulary: int,
        limit: int,
        layout: Layout,
        sampling: Sampling,
        end: int | None = None,
        grammar: Grammar | None = None,
        condition: Tensor | None = None,
        codebook: Tensor | None = None,
    ):
        """prefix : [branches, P, H] embeddings; prefix_mask : bool [P-1, P-1] or None (causal). end : the end-of-sequence id.
        condition : [C, H] that drafters may look at, or None. codebook : [V, e], where each id lies among the codes, or None."""
        self.trunk, self.slab = trunk, slab
        self.vocabulary, self.limit, self.layout, self.sampling, self.end = vocabulary, limit, layout, sampling, end
        self.grammar, self.condition, self.codebook = grammar, condition, codebook
        self._state = grammar.start if grammar else None  # behind the committed tokens
        self.device = prefix.device
        self.prefix = prefix.shape[1]
        self.tokens: list[int] = []
        self.done = limit == 0
        self._prompt_end = self._pending = prefix[:, -1:]
        self.pending = [-1]  # committed positions that are not in the cache, ascending; -1: the end of the prompt
        self._cached: list[int] | None = None  # positions of the cached tokens, slab row by slab row; None = a prefix, in order
        self._draft: list[int] = []
        self.adapter: RowAdapter | None = None  # of predictive rows
        self._places: Tensor | None = None
        if self.prefix > 1:
            mask = causal(self.prefix - 1, 0, self.device) if prefix_mask is None else prefix_mask
            trunk.run(prefix[:, :-1], torch.arange(self.prefix - 1, device=self.device), mask, slab)
            slab.keep(list(range(self.prefix - 1)))

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self.tokens)

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes of the draft."""
        assert self.slab.kept == self.prefix + self.length - len(self.pending), (self.slab.kept, self.prefix, self.length, self.pending)
        count = len(draft.tokens)
        parents = None if draft.parents is None else draft.parents.tolist()
        x = self._pending
        if count:
            nodes = self.trunk.embed(draft.tokens.to(self.device))
            x = torch.cat([x, nodes.expand(x.shape[0], -1, -1)], 1)
        control = count if draft.predictive is None else int((~draft.predictive).sum())
        slots, mask = self._slots(draft, parents), self._mask(draft, parents, count)
        with self._adapted(len(self.pending) + control if control < count else None):
            if draft.twins and self.adapter.first_layer:
                below, low, fork = forked(mask, len(self.pending), control, draft.twins, self.adapter.first_layer)
                hidden = self.trunk.run(x[:, below], slots[below], low, self.slab, fork)
            else:
                hidden = self.trunk.run(x, slots, mask, self.slab)
        self._draft = draft.tokens[:control].tolist()
        self._places = draft.positions  # of the nodes; None: behind what is pending
        return Rows(self.trunk.head(hidden), partial(self._warp, parents, self._draft, self._state), hidden)

    def _adapted(self, first: int | None) -> AbstractContextManager[None]:
        """Inside, rows from `first` on run with the adapter; None: no row does."""
        return nullcontext() if first is None else self.adapter.worn(first)

    def _slots(self, draft: Draft, parents: list[int] | None) -> Tensor:
        base = self.prefix + self.pending[-1]
        if draft.positions is not None or len(self.pending) > 1:
            own = [] if draft.positions is None else draft.positions.tolist()
            return torch.tensor([*self.pending, *own], device=self.device) + self.prefix
        if parents is None:
            return torch.arange(base, base + len(draft.tokens) + 1, device=self.device)
        return torch.tensor([base, *(base + d for d in depths(parents))], device=self.device)

    def _mask(self, draft: Draft, parents: list[int] | None, count: int) -> Tensor | None:
        if self._cached is not None:
            return self._scattered_mask(draft, parents, count)
        if draft.visible is None and (parents is None or is_chain(parents)):
            return None if count == 0 else causal(count + 1, self.slab.kept, self.device)
        tail = draft.visible if draft.visible is not None else visibility(parents)
        past = torch.ones(count + 1, self.slab.kept, dtype=torch.bool, device=self.device)
        return torch.cat([past, tail.to(self.device)], 1)

    def _scattered_mask(self, draft: Draft, parents: list[int] | None, count: int) -> Tensor | None:
        """Where committed tokens are no prefix, a row sees those at smaller positions, wherever they lie in the slab."""
        assert draft.positions is not None or count == 0, "behind a wavefront, drafts name their positions"
        if count == 0 and len(self.pending) == 1 and max(self._cached, default=-1) < self.pending[0]:
            return None  # a prefix after all, as in plain decoding
        heads = len(self.pending)
        at = torch.tensor([*self.pending, *([] if count == 0 else draft.positions.tolist())])
        before = torch.cat([torch.full((self.prefix,), -1), torch.tensor(self._cached, dtype=torch.int64), at[:heads]])
        committed = before <= at[:, None]
        if draft.visible is not None:
            committed[:, -heads:] &= draft.visible[:, :heads].cpu()
            nodes = draft.visible[:, heads:].cpu()
        else:
            nodes = F.pad(visibility(parents or list(range(-1, count - 1)))[1:, 1:], (0, 0, heads, 0))
        return torch.cat([committed, nodes], 1).to(self.device)

    def _warp(self, parents: list[int] | None, tokens: list[int], state: Any, logits: Tensor, soft: bool = False) -> Tensor:
        """Scores of a pass over these tokens that began in this state of the grammar; laws are made lazily, perhaps behind the commit."""
        sampling = self.sampling.softened() if soft else self.sampling
        guided = guide(logits.float(), sampling.guidance)
        if self.grammar is None:
            return warp(guided, sampling)
        states = [state]
        for i, token in enumerate(tokens):
            states.append(self.grammar.next(states[i if parents is None else parents[i] + 1], token))
        allowed = torch.stack([self.grammar.allowed(s) for s in states[: len(guided)]])
        allowed = F.pad(allowed, (0, 0, 0, len(guided) - len(allowed)), value=True)  # predictive rows have no grammar yet
        return warp(guided, sampling, allowed.to(self.device))

    def law(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Laws [k, V] of guided logits [k, V] behind the committed tokens and hypothetical paths, one a row or one for all."""
        allowed = None if self.grammar is None else torch.stack([self.allowed(path) for path in paths])
        return torch.softmax(warp(logits.float(), self.sampling, allowed), -1)

    def allowed(self, path: list[int]) -> Tensor | None:
        """The ids that may come behind a hypothetical path, bool [V]; None without a grammar."""
        return None if self.grammar is None else self.grammar.allowed(self.state(path)).to(self.device)

    def state(self, path: list[int]) -> Hashable:
        """What the grammar knows behind a hypothetical path; None without a grammar."""
        state = self._state
        for token in path if self.grammar else ():
            state = self.grammar.next(state, token)
        return state

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps a path of the last pass and makes `token` pending; cuts at the end of sequence and at the limit."""
        assert self._cached is None, "committed tokens are no prefix: commit at positions"
        new = [self._draft[i] for i in nodes] + [token]
        new = new[: self.limit - self.length]
        if self.end is not None and self.end in new:
            new = new[: new.index(self.end) + 1]
        self.slab.keep([0, *(i + 1 for i in nodes[: len(new) - 1])])
        self.tokens += new
        for token in new if self.grammar else ():
            self._state = self.grammar.next(self._state, token)
        self.done = self.length >= self.limit or (self.end is not None and new[-1] == self.end)
        self.pending = [self.length - 1]
        self._pending = self.trunk.embed(torch.tensor([new[-1]], device=self.device)).expand(self.slab.branches, -1, -1)
        return new

    def commit_at(self, positions: list[int], tokens: list[int], nodes: Iterable[int] = ()) -> None:
        """Keeps what was pending and some nodes (of a chain, if they name no positions), and makes tokens at any positions pending;
        grammars and ends of sequence know prefixes only."""
        assert self.end is None and self.grammar is None, "a wavefront has no end of sequence and no grammar"
        nodes, heads = list(nodes), len(self.pending)
        if self._cached is None:
            self._cached = list(range(self.length - 1))
        self.slab.keep([*range(heads), *(heads + i for i in nodes)])
        places = range(self.length, self.length + len(self._draft)) if self._places is None else self._places.tolist()
        self._cached += [position for position in self.pending if position >= 0] + [places[i] for i in nodes]
        self.tokens += [self._draft[i] for i in nodes] + tokens
        self.done = self.length >= self.limit
        self.pending = positions
        self._pending = self.trunk.embed(torch.tensor(tokens, device=self.device)).expand(self.slab.branches, -1, -1)

    def rewind(self, length: int) -> None:
        """Forgets the committed tokens from `length` on; grammars do not go back."""
        prefix = self._cached is None or self._cached[: max(0, length - 1)] == list(range(length - 1))
        assert prefix and self.grammar is None and length <= self.length, "what is left must be a prefix, cached in order"
        self._cached = None
        self.tokens = self.tokens[:length]
        self.slab.rewind(self.prefix + length - 1)
        self.done = self.length >= self.limit
        self.pending = [length - 1]
        newest = torch.tensor(self.tokens[-1:], device=self.device)
        self._pending = self.trunk.embed(newest).expand(self.slab.branches, -1, -1) if length else self._prompt_end

    def close(self) -> None:
        """Frees the cache."""
        self.slab = None


def forked(mask: Tensor, heads: int, control: int, twins: int, layer: int) -> tuple[Tensor, Tensor, Fork]:
    """How a pass runs in which predictive rows are the twins of drafts below a layer: its rows there int64 [R'], who sees whom among them
    bool [R', kept + R'], and the fork.

    mask : bool [R, kept + R] of all rows: `heads` pending ones, `control` drafts, then predictive ones, of which the first `twins` are
    twins of the first drafts
    """
    first, count, device = heads + control, len(mask), mask.device
    kept = mask.shape[1] - count
    below = torch.cat([torch.arange(first), torch.arange(first + twins, count)]).to(device)
    low = mask[below][:, torch.cat([torch.arange(kept, device=device), kept + below])]
    low[first:, kept + heads : kept + heads + twins] |= mask[first + twins :, kept + first : kept + first + twins]
    rows = torch.cat([torch.arange(first), torch.arange(heads, heads + twins), torch.arange(first, len(below))])
    return below, low, Fork(layer, rows.to(device), mask)


def causal(count: int, kept: int, device: torch.device) -> Tensor:
    """Who sees whom when `count` rows follow `kept` cached ones: bool [count, kept + count]."""
    return torch.ones(count, kept + count, dtype=torch.bool, device=device).tril_(kept)

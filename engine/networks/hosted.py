"""A decoder of the transformers library as the trunk of a TransformerSequence: its layers and weights, our cache.

An adapter declares a `Hosted`: the decoder, the input of a picture token, the output head, and the token that ends a row of the picture.
`HostedTrunk` is a `Hosted` for one run, with the padding of each guidance row and the width of the picture.

The cache is ours, because the library's can drop a suffix but cannot keep one path of a tree. Masks and positions are explicit,
since a node's depth in a tree is not the length of the cache. Attention is ours too, and on a CPU so are the linear layers of a loaded
checkpoint (hosted_attention.py, engine/kernels/cpu/steady_linear.py): a row has the same bits in a pass of one row and in a window.

Methods see tokens of the picture only. A row end is never drafted, sampled or counted: it is computed in the pass of the token before it,
and that token's logits are taken after the row end. So a pass has one more row for each row end, and row ends need no extra pass.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from engine.cache import FixedView, KVCache, PassRows
from engine.kernels.tree_attention import Visibility, VisibleRows
from engine.networks.hosted_attention import NAME, attend, whole_blocks
from engine.networks.hosted_layers import can_run, run_layers
from engine.networks.rows import RowSplit
from engine.networks.trunk import PassArguments, Trunk

DRAFT_ROWS = 256  # rows of the cache after the longest sequence, for the drafts of a pass


class KVCacheLayer(CacheLayerMixin):
    """One layer of our cache, with the interface of a transformers cache layer.

    whole : return keys in whole blocks, beyond the visible ones, as our attention needs; False: only the visible ones
    """

    def __init__(self, kv_cache: KVCache | FixedView, layer: int, whole: bool = True):
        super().__init__()
        self.kv_cache, self.layer, self.whole, self.is_initialized = kv_cache, layer, whole, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the cache is allocated when the run begins."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Writes [branches, heads, R, width] after the kept rows; returns keys and values."""
        visible = self.kv_cache.write(self.layer, key_states, value_states)
        if not self.whole:
            return visible
        keys, values = self.kv_cache.block[self.layer]
        end = self.get_mask_sizes(key_states.shape[2])[0]
        return keys[:, :, :end], values[:, :, :end]

    def get_seq_length(self) -> int:
        """The number of kept rows."""
        return self.kv_cache.kept

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The number of rows that a mask spans in a pass of `query_length`, and the index of the first."""
        span = self.kv_cache.span(query_length)
        return whole_blocks(span, self.kv_cache.block.device) if self.whole else span, 0

    def get_max_length(self) -> int:
        """The number of rows that fit."""
        return self.kv_cache.capacity


def cache_over(kv_cache: KVCache | FixedView, layers: int, whole: bool = True) -> Cache:
    """Wraps our cache as a transformers cache; see KVCacheLayer."""
    return Cache(layers=[KVCacheLayer(kv_cache, layer, whole) for layer in range(layers)])


@dataclass(frozen=True)
class Hosted:
    """The parts of a checkpoint that all of its runs share.

    decoder : a transformers decoder without its head: LlamaModel, Qwen3Model, Emu3TextModel, ...
    embed   : ids of the picture vocabulary int64 [R] -> inputs of the decoder [R, H]
    head    : hidden states [branches, R, H] -> logits of the picture vocabulary [branches, R, V]
    row_end : the input [H] of the token that ends every row of the picture but the last; None: rows have no end
    place   : (positions int64 [branches, R], *tables) -> `position_ids` of the decoder; a module's function, because it is part of a
              graph's key. None: unchanged (rotary positions along one axis)
    tables  : what `place` reads of one prompt
    """

    decoder: nn.Module
    embed: Callable[[Tensor], Tensor]
    head: Callable[[Tensor], Tensor]
    row_end: Tensor | None = None
    place: Callable[..., Tensor] | None = None
    tables: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        """Sets our attention in the decoder, whatever attention it was loaded with."""
        self.decoder.set_attn_implementation(NAME)


@dataclass(frozen=True)
class RowEnds:
    """The places of row ends. A *row* is a row as methods count them; a *place* is a row of the decoder. A row has one place, or two if it
    has an end.

    first : rows of the prompt; columns : tokens in a row of the picture; limit : tokens of the picture
    """

    first: int
    columns: int
    limit: int

    def expand(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """The row of each place int64 [P], for rows at some slots, and True for each place that is a row end, bool [P]."""
        at = slots - self.first
        ended = (at >= 0) & (at < self.limit - 1) & (at % self.columns == self.columns - 1)
        rows = torch.arange(len(slots), device=slots.device).repeat_interleave(1 + ended.long())
        return rows, torch.cat([rows.new_zeros(1, dtype=torch.bool), rows[1:] == rows[:-1]])

    def place_mask(self, mask: Tensor, past: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
        """The visibility of places bool [P, past + P], from the visibility of rows [R, kept + R]. A row end is visible wherever its token
        is.

        past : the row of each place before the pass, int64. It, rows and ends may be on the host, the mask elsewhere
        """
        columns = torch.cat([past, mask.shape[1] - len(mask) + rows])
        visible = mask[rows.to(mask.device)][:, columns.to(mask.device)]
        last = ends.nonzero().flatten()
        if len(last):
            visible[(last - 1).to(mask.device), (len(past) + last).to(mask.device)] = False  # the token comes before its end
        return visible

    def slots(self, slots: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
        """The slots of places, int64 [P], row ends counted."""
        before = (slots - self.first).clamp(min=0) // self.columns  # row ends before each row
        return (slots + before)[rows] + ends

    def last(self, rows: Tensor) -> Tensor:
        """True for each place that is the last of its row, bool [P]: its hidden state predicts the next token of the picture."""
        return torch.cat([rows[1:] != rows[:-1], rows.new_ones(1, dtype=torch.bool)])


class RowEndCache:
    """A cache in which some rows are followed by a row end (see RowEnds). Its interface hides the row ends."""

    def __init__(self, kv_cache: KVCache, ends: RowEnds):
        self.below, self.ends = kv_cache, ends
        self._rows: list[int] = []  # the row of each kept place
        self._pass: list[int] = []  # the row, in the pass, of each place of the last pass
        self.kept, self.branches = 0, kv_cache.branches

    @property
    def capacity(self) -> int:
        """The most places that fit."""
        return self.below.capacity

    def expand(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Begins a pass over slots on the host; see RowEnds. The results are on the host, too."""
        rows, ends = self.ends.expand(slots)
        self._pass = rows.tolist()
        return rows, ends

    def begin_pass(self, slots: Tensor, visible: Tensor) -> PassRows:
        """Begins a pass; see KVCache."""
        rows, ends = self.expand(slots)
        among = self.ends.place_mask(visible, rows[:0], rows, ends)
        most = len(slots) + (len(slots) - 1) // self.ends.columns + 1
        return PassRows(rows, ends, self.ends.last(rows).nonzero().flatten(), self.ends.slots(slots, rows, ends), among, most)

    def place_mask(self, mask: Tensor, rows: Tensor, ends: Tensor) -> Tensor:
        """The visibility of the places of a pass; see RowEnds."""
        return self.ends.place_mask(mask, torch.tensor(self._rows, dtype=torch.int64), rows, ends)

    def place(self, slots: Tensor, row: int) -> int:
        """The number of the first place of a row, in a pass over some slots."""
        return int((self.ends.expand(slots)[0] < row).sum())

    def keep(self, rows: list[int]) -> None:
        """Keeps rows of the last pass, in this order, with their ends; discards the rest."""
        places: dict[int, list[int]] = {}
        for place, row in enumerate(self._pass):
            places.setdefault(row, []).append(place)
        self.below.keep([place for row in rows for place in places[row]])
        self._rows += [self.kept + i for i, row in enumerate(rows) for _ in places[row]]
        self.kept += len(rows)

    def rewind(self, length: int) -> None:
        """Discards every row from `length` on."""
        assert length <= self.kept, (length, self.kept)
        self._rows = [row for row in self._rows if row < length]
        self.below.rewind(len(self._rows))
        self.kept = length


class PaddedTrunk(Trunk):
    """A transformers decoder for one run, whose guidance rows may begin with padding. It has no reference to the cache, so closing a run
    frees the cache."""

    takes_splits = False

    def __init__(self, padding: Sequence[int], device: torch.device):
        """padding : the number of padding rows before the prompt, for each guidance row"""
        self.padding = torch.tensor(padding, device=device)[:, None]
        self._padded = any(padding)

    def _positions(self, slots: Tensor) -> Tensor:
        """The positions of slots, int64 [1 or branches, R]; a prompt begins at 0."""
        return (slots - self.padding).clamp(min=0) if self._padded else slots[None]

    def _without_padding(self, mask: Tensor, written: Tensor) -> Tensor:
        """The visibility of each guidance row bool [1 or branches, R, S], from the visibility bool [R, S] that all share.

        written : int64 [R], the rows of the cache that the pass writes: a padding row sees itself, because it sees nothing else
        """
        if not self._padded:
            return mask[None]
        every = torch.arange(mask.shape[1], device=mask.device)
        return mask & (every >= self.padding[:, None]) | (every == written[:, None])


@dataclass(frozen=True)
class DecoderInputs:
    """A pass as the decoder gets it.

    x : [branches, P, H]; positions : int64 [1 or branches, P]; mask : bool [1 or branches, 1, P, S], or sets
    last : int64 [R], the last place of each row; None: a row is a place
    """

    x: Tensor
    positions: Tensor
    mask: Visibility
    kv_cache: KVCache | FixedView
    last: Tensor | None


class JointPass:
    """Passes of several runs as one sequence of rows: run by run, branch by branch.

    attended : keys and values of each run in the current layer, written by its cache
    """

    def __init__(self, parts: list[DecoderInputs]):
        self.parts, self.shapes = parts, [each.x.shape[:2] for each in parts]
        self.attended: list[tuple[Tensor, Tensor]] = []

    def divide(self, x: Tensor) -> list[Tensor]:
        """[1, heads, rows of all runs, width] -> [branches, heads, P, width] for each run."""
        parts = x[0].split([branches * count for branches, count in self.shapes], 1)
        return [part.unflatten(1, shape).transpose(0, 1) for part, shape in zip(parts, self.shapes, strict=True)]

    def attend(self, module: nn.Module, query: Tensor, scaling: float | None) -> Tensor:
        """[1, heads, rows of all runs, width] -> [1, rows of all runs, heads, width], each run by its own keys."""
        outs = [
            attend(module, own, *kv, part.mask, scaling)[0].flatten(0, 1)
            for own, kv, part in zip(self.divide(query), self.attended, self.parts, strict=True)
        ]
        return torch.cat(outs)[None]


class JointLayer(KVCacheLayer):
    """One layer of the caches of all runs of a joint pass."""

    def __init__(self, joint: JointPass, layer: int):
        super().__init__(joint.parts[0].kv_cache, layer)
        self.joint, self.own = joint, [KVCacheLayer(part.kv_cache, layer) for part in joint.parts]

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Writes [1, heads, rows of all runs, width] into the cache of each run. Returns its arguments, which attention does not read."""
        pairs = zip(self.own, self.joint.divide(key_states), self.joint.divide(value_states), strict=True)
        self.joint.attended = [own.update(keys, values) for own, keys, values in pairs]
        return key_states, value_states


class HostedTrunk(PaddedTrunk):
    """A hosted decoder for one run."""

    reads_slots, fixed = True, True

    def __init__(self, hosted: Hosted, padding: Sequence[int]):
        """padding : see PaddedTrunk"""
        super().__init__(padding, hosted.decoder.device)
        self.hosted, self.tables, self.takes_sets = hosted, hosted.tables, can_run(hosted.decoder)

    def move_tensors(self, hold: Callable[[Tensor], Tensor]) -> Hashable:
        """See Trunk."""
        self.padding, self.tables = hold(self.padding), tuple(hold(each) for each in self.tables)
        return self._padded, self.hosted.place

    def embed(self, tokens: Tensor) -> Tensor:
        """[R] ids of the picture vocabulary -> [1, R, H]"""
        return self.hosted.embed(tokens)[None]

    def with_row_ends(self, x: Tensor, ends: Tensor) -> Tensor:
        """x [branches, P, H] with row ends where `ends` bool [P] says so."""
        return x if self.hosted.row_end is None else torch.where(ends[:, None], self.hosted.row_end, x)

    def run(
        self, x: Tensor, slots: Tensor, mask: Visibility, kv_cache: KVCache | FixedView | RowEndCache, split: RowSplit | None = None
    ) -> Tensor:  # fmt: skip
        """See Trunk. With row ends, the hidden state of a row is that of its end."""
        assert split is None, "all layers of a checkpoint of transformers run on all rows"
        inputs = self._inputs(x, slots, mask, kv_cache)
        hidden = self._decode(inputs)
        return hidden if inputs.last is None else hidden[:, inputs.last]

    @property
    def joins(self) -> bool:
        """True if positions have one axis."""
        return self.hosted.place is None

    def run_together(self, passes: Sequence[PassArguments]) -> list[tuple[Tensor, Tensor]] | None:
        """See Trunk. The rows of all runs are one sequence for the decoder; attention divides it. On a GPU a linear layer may round
        otherwise for another number of rows."""
        parts = [each.trunk._inputs(each.x, each.slots, dense(each.mask), each.kv_cache) for each in passes]
        joint, decoder = JointPass(parts), self.hosted.decoder
        hidden = decoder(
            inputs_embeds=torch.cat([each.x.flatten(0, 1) for each in parts])[None],
            position_ids=torch.cat([each.positions.expand(each.x.shape[:2]).flatten() for each in parts])[None],
            attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=parts[0].x.device),  # each part has its own
            past_key_values=Cache(layers=[JointLayer(joint, layer) for layer in range(len(decoder.layers))]),
            use_cache=True,
            joint=joint,
        ).last_hidden_state
        divided = (own[:, 0] for own in joint.divide(hidden[:, None]))
        rows = [own if part.last is None else own[:, part.last] for own, part in zip(divided, parts, strict=True)]
        return [(own, self.head(own)) for own in rows]

    def _inputs(self, x: Tensor, slots: Tensor, mask: Tensor | None, kv_cache: KVCache | FixedView | RowEndCache) -> DecoderInputs:
        """The decoder's inputs for a pass."""
        assert mask is not None or x.shape[1] == 1, "transformers reads a missing mask as a causal one"
        if not isinstance(kv_cache, RowEndCache):
            return self._laid_out(x, slots.to(x.device), mask, kv_cache, None)
        slots = slots.cpu()  # the number of rows depends on their values
        rows, ends = kv_cache.expand(slots)
        mask = dense(mask)  # its sets number rows, and these are places
        if len(rows) > len(slots) and mask is None:
            mask = torch.ones(1, kv_cache.kept + 1, dtype=torch.bool, device=x.device)
        if mask is not None:
            mask = kv_cache.place_mask(mask, rows, ends)
        last = kv_cache.ends.last(rows).nonzero().flatten()
        x = self.with_row_ends(x[:, rows.to(x.device)], ends.to(x.device))
        return self._laid_out(x, kv_cache.ends.slots(slots, rows, ends).to(x.device), mask, kv_cache.below, last.to(x.device))

    def _laid_out(
        self, x: Tensor, slots: Tensor, mask: Visibility, kv_cache: KVCache | FixedView, last: Tensor | None
    ) -> DecoderInputs:  # fmt: skip
        positions, count = self._positions(slots), len(slots)
        if isinstance(mask, VisibleRows):
            return DecoderInputs(x, positions, self._padded_rows(mask), kv_cache, last)
        span = kv_cache.span(count)
        if mask is None:
            mask = torch.ones(1, span, dtype=torch.bool, device=x.device)
        mask = F.pad(self._without_padding(mask, kv_cache.places(count)), (0, whole_blocks(span, x.device) - span))
        return DecoderInputs(x, positions, mask[:, None], kv_cache, last)

    def _decode(self, inputs: DecoderInputs) -> Tensor:
        """The decoder's hidden states: by our layers where the rows' visibility is in sets, else by its own."""
        decoder, place = self.hosted.decoder, self.hosted.place
        positions = inputs.positions if place is None else place(inputs.positions, *self.tables)
        if isinstance(inputs.mask, VisibleRows):
            return run_layers(decoder, inputs.x, positions, inputs.mask, inputs.kv_cache)
        return decoder(
            inputs_embeds=inputs.x,
            position_ids=positions,
            attention_mask=inputs.mask,  # 4-D masks are used unchanged
            past_key_values=cache_over(inputs.kv_cache, len(decoder.layers)),
            use_cache=True,
        ).last_hidden_state

    def _padded_rows(self, seen: VisibleRows) -> VisibleRows:
        """The visibility with each guidance row's padding hidden."""
        return replace(seen, padding=self.padding.flatten()) if self._padded else seen

    def head(self, hidden: Tensor) -> Tensor:
        """[branches, R, H] -> logits [branches, R, V]"""
        return self.hosted.head(hidden.to(self.hosted.decoder.dtype))  # the states of a drafter on a CPU are float32


def dense(mask: Visibility) -> Tensor | None:
    """A visibility as a mask bool [R, kept + R], or None (everything)."""
    return mask.dense()[0] if isinstance(mask, VisibleRows) else mask


def kv_cache_for(hosted: Hosted, branches: int, rows: int) -> KVCache:
    """A cache with room for some rows and the drafts of a pass after them."""
    config = hosted.decoder.config
    capacity = whole_blocks(rows + DRAFT_ROWS, hosted.decoder.device)
    shape = (config.num_hidden_layers, branches, config.num_key_value_heads, capacity, head_width(config))
    return KVCache(*shape, hosted.decoder.device, hosted.decoder.dtype)


def slice_head(head: nn.Linear, ids: Tensor) -> nn.Linear:
    """The rows of a head that belong to some ids int64 [V]. The head of a whole vocabulary would cost as much as several layers."""
    return linear_of(*(None if each is None else each.detach()[ids].clone() for each in (head.weight, head.bias)))


def linear_of(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with these weights [V, H] and [V], for inference; they are not allocated twice."""
    layer = nn.Linear(weight.shape[1], len(weight), bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def head_width(config: object) -> int:
    """The width of an attention head: from the configuration, or the width divided by the number of heads."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

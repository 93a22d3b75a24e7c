"""The toy: a two-layer transformer in float64, small enough to enumerate every sequence. Exactness is tested on it.

It has everything that a real model has: a key/value cache whose rows depend on the context they were computed in, a guidance pair, a
2-D grid with forced row-end tokens, and optionally an end-of-sequence token and a grammar. Its drafters are random tables, because
exactness must not depend on training. It is fast because it is memoised exactly: a cache row is identified by (token, position, the
identities of the rows it saw), so each distinct row is computed once, with real attention over the stored keys and values of what it
saw. A wrong cache therefore gives wrong distributions, as in a real model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Backbone, Draft, Prompt, Rows, Sampling
from engine.drafters.spatial_heads import SlotInputs, SpatialRun
from engine.layout import Raster, fine_rows
from engine.mesh.bpt_tokens import TokenLevels
from engine.sampling import guide, warp
from engine.tree import depths, path

ROW_END = -2  # the input id of the forced token after each row of the grid
START = -1  # the input id of the prompt
HEADS = 4  # of the drafter
REACH = 3  # of the row and column heads
LEVELS = TokenLevels((1, 1))  # its ids 0, 1 and 2 also spell vertices, all in the one cell there is


class Toy(Backbone):
    """The backbone. `vocabulary` ids, `rows` x `columns` positions; with `end` the last id ends the sequence."""

    name, dtype, parameters = "toy", "float64", 0
    capabilities = frozenset({
        "raster", "wavefront", "hidden", "mesh_heads", "feature_draft", "predictive_stream", "codebook", "at_scale", "spatial_heads",
        "vertices",
    })  # fmt: skip

    def __init__(
        self,
        vocabulary: int = 3,
        rows: int = 2,
        columns: int = 3,
        seed: int = 0,
        end: bool = False,
        sharpness: float = 1.8,
        guidance: float = 1.4,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        grammar: bool = False,
        counting: bool = False,
        bidirectional: bool = False,
        uneven: bool = False,
        small: int = 0,
    ):
        """grammar: no token may follow itself. counting: each token is followed by its successor, and the drafters know it.
        bidirectional: predictive rows also see later predictive rows. uneven: the feature drafter is sure after some tokens and not after
        others. small: see Raster."""
        self.vocabulary, self.layout, self.end = vocabulary, Raster(rows, columns, 1, small), vocabulary - 1 if end else None
        self.sampling = Sampling(temperature, top_k, top_p, guidance)
        self.device = torch.device("cpu")
        self.grammar, self.bidirectional = grammar, bidirectional
        self.seed, self.sharpness, self.counting = seed, sharpness, counting
        self.codes = torch.from_numpy(np.random.default_rng(11).normal(size=(vocabulary, 2)))
        self.resampler = TableResampler(vocabulary)
        self._smaller: dict[int, Toy] = {}
        self.uneven = uneven
        self.network = _Counter(vocabulary) if counting else _Network(vocabulary, rows * (columns + 1) + 1, seed, sharpness)

    @property
    def sizes(self) -> list[int]:
        """The one picture size: a pixel per token."""
        return [self.layout.columns]

    def at_scale(self, size: int) -> Toy:
        """A toy of `size` columns with unrelated distributions; each size is made once."""
        if size not in self._smaller:
            rows, shape = -(-self.layout.rows * size // self.layout.columns), (self.sharpness, self.sampling.guidance)
            self._smaller[size] = Toy(self.vocabulary, rows, size, self.seed + 100 + size, False, *shape, counting=self.counting)
        return self._smaller[size]

    def start(self, prompt: Prompt) -> ToySequence:
        """An empty sequence. Only the prompt's sampling is used."""
        return ToySequence(self, prompt.sampling or self.sampling)

    def drafter(self, name: str) -> TableHeads | TableFeatures | TableStream | TableSpatialHeads:
        """Heads, a feature drafter, a predictive stream or row and column heads, untrained. With `counting`, the first two are always
        right."""
        if name == "spatial_heads":
            return TableSpatialHeads(*self.network.around)
        if name == "predictive_stream":
            return TableStream(*self.network.stream, causal=not self.bidirectional)
        if name == "feature_draft" and self.uneven:
            return uneven_features(self.vocabulary, _Network.WIDTH)
        return TableFeatures(*self.network.features) if name == "feature_draft" else TableHeads(self.network.tables)

    def codebook(self) -> Tensor:
        """The code vector of every id, float64 [V, 2]: random, so neighbours have no meaning."""
        return self.codes

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray:
        """uint8 [rows, columns, 3]: a gray level per token."""
        picture = np.zeros((self.layout.rows, self.layout.columns, 3), np.uint8)
        for token, position in zip(tokens, positions, strict=True):
            picture[self.layout.place(position)] = 255 * (token + 1) // self.vocabulary
        return picture

    def enumerate_distribution(self, sampling: Sampling | None = None) -> dict[tuple[int, ...], float]:
        """The probability of every sequence; see the function."""
        return enumerate_distribution(self, sampling)


def enumerate_distribution(backbone: Backbone, sampling: Sampling | None = None) -> dict[tuple[int, ...], float]:
    """The probability of every sequence, by single steps of plain decoding. Sequences end at `end` or at the limit."""
    probs: dict[tuple[int, ...], float] = {}

    def descend(path: tuple[int, ...], probability: float) -> None:
        sequence = backbone.start(Prompt(sampling=sampling))
        for token in path:
            sequence.forward(Draft(torch.empty(0, dtype=torch.int64)))
            sequence.commit([], token)
        if sequence.done:
            probs[path] = probability
            return
        p = sequence.forward(Draft(torch.empty(0, dtype=torch.int64))).p[0].tolist()
        for token, chance in enumerate(p):
            if chance > 0:
                descend((*path, token), probability * chance)

    descend((), 1.0)
    return probs


class ToySequence:
    """One run. The cache is a list of row identities; `forward` computes or looks up the rows that a draft needs."""

    def __init__(self, toy: Toy, sampling: Sampling):
        self.toy, self.network, self.sampling = toy, toy.network, sampling
        self.vocabulary, self.layout, self.device = toy.vocabulary, toy.layout, toy.device
        self.codebook, self.condition, self.masks, self.levels = toy.codes, None, None, LEVELS
        self.automaton = None
        self.resampler = toy.resampler
        self.scales = tuple(s for s in sorted({-(-self.layout.columns // r) for r in (2, 4)}) if s < self.layout.columns)
        self.limit = toy.layout.rows * toy.layout.columns
        self.tokens: list[int] = []
        self.done = False
        self._cache: tuple[int, ...] = ()
        self.pending = [-1]  # committed positions that are not in the cache, ascending; -1: the prompt
        self._newest = [START]  # their tokens
        self._in_order: int | None = None  # how many committed tokens are known to be a prefix; None: all
        self._added: list[tuple[int, ...]] = []  # per row of the last pass, except predictive ones: the cache rows that it added
        self.adapter: TableStream | None = None
        self.hidden_states = None  # not recorded
        self.workspace = None
        self._draft: list[int] = []

    @property
    def length(self) -> int:
        """The number of committed tokens."""
        return len(self.tokens)

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes. Row i+1 is read after node i (at a row's end, after the forced token)."""
        tokens = draft.tokens.tolist()
        parents = list(range(-1, len(tokens) - 1)) if draft.parents is None else draft.parents.tolist()
        places = [self.length - 1 + d for d in depths(parents)] if draft.positions is None else draft.positions.tolist()
        if draft.predictive is not None:
            tokens = tokens[: int((~draft.predictive).sum())]
            places = places[: len(tokens)]
        row_contexts: list[tuple[int, ...]] = []
        self._added, reads = [], []
        newest = [*self._newest, *tokens]  # by row; kept for the grammar, because distributions are computed lazily
        for i, (token, place) in enumerate(zip(newest, [*self.pending, *places], strict=True)):
            slot = self._slot(place)
            if self._in_order is not None:
                context = self._scattered_context(i, slot, parents, row_contexts, draft.visible)
            else:
                context = self._context(i, parents, row_contexts, draft.visible) if i else self._cache
            added = self._feed(token, slot, place, context)
            self._added.append(added)
            row_contexts.append((*context, *added) if draft.visible is None and self._in_order is None else added)
            reads.append(added[-1])
        self._draft = tokens
        logits, hidden = self.network.read(reads)
        if draft.predictive is not None:
            states = self.adapter.states(hidden, draft)
            logits, hidden = torch.cat([logits, states @ self.adapter.out], 1), torch.cat([hidden, states], 1)
        return Rows(logits, lambda raw, soft=False: self._warp(raw, self._grammar_mask(newest), soft), hidden)

    def _context(self, i: int, parents: list[int], row_contexts: list[tuple[int, ...]], visible: Tensor | None) -> tuple[int, ...]:
        """The cache rows that node i-1 sees besides itself."""
        if visible is None:
            return row_contexts[parents[i - 1] + 1]
        rows = [r for j in range(i) if visible[i, j] for r in row_contexts[j]]
        return (*self._cache, *rows)

    def _scattered_context(
        self, i: int, slot: int, parents: list[int], row_contexts: list[tuple[int, ...]], visible: Tensor | None
    ) -> tuple[int, ...]:
        """The cache rows that row i of a pass sees besides itself, ordered by slot, when the committed tokens are not a prefix."""
        waiting, slots = len(self.pending), self.network.slots
        if visible is not None:
            others = [j for j in range(i) if visible[i, j]]
        else:
            ancestors = path(parents, i - waiting)[:-1] if i >= waiting else []
            others = [*range(min(i, waiting)), *(waiting + node for node in ancestors)]
        rows = [r for r in (*self._cache, *(r for j in others if j < waiting for r in row_contexts[j])) if slots[r] < slot]
        rows += [r for j in others if j >= waiting for r in row_contexts[j]]
        return tuple(sorted(rows, key=lambda r: slots[r]))

    def _slot(self, place: int) -> int:
        """The absolute slot of a position: the start token and the forced token after every row take slots too."""
        return 1 + place + place // self.layout.columns if place >= 0 else 0

    def _feed(self, token: int, slot: int, place: int, context: tuple[int, ...]) -> tuple[int, ...]:
        """Cache rows of a token, and of the forced row end that follows it in the last column."""
        row = self.network.row(token, slot, context)
        if place >= 0 and (place + 1) % self.layout.columns == 0 and place + 1 < self.limit:
            return row, self.network.row(ROW_END, slot + 1, (*context, row))
        return (row,)

    def _warp(self, logits: Tensor, allowed: Tensor | None, soft: bool = False) -> Tensor:
        if allowed is not None:  # predictive rows come after the others and have no grammar yet
            count = logits.shape[1]
            allowed = F.pad(allowed[:count], (0, 0, 0, max(0, count - len(allowed))), value=True)
        return warp(guide(logits, self.sampling.guidance), self.sampling.soften() if soft else self.sampling, allowed)

    def _grammar_mask(self, newest: list[int]) -> Tensor | None:
        """The ids that the grammar allows after each of these tokens, bool [N, V]; None without a grammar."""
        if not self.toy.grammar:
            return None
        return torch.arange(self.vocabulary) != torch.tensor(newest)[:, None]

    def probs_after(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Distributions [k, V] from guided logits, after hypothetical paths."""
        return torch.softmax(warp(logits, self.sampling, self._grammar_mask([self._last(path) for path in paths])), -1)

    def biased_logits(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """The logits unchanged: the toy has no bias."""
        return logits

    def favourites(self, count: int) -> list[int]:
        """None: the toy has no bias."""
        return []

    def allowed_ids(self, path: list[int]) -> Tensor | None:
        """The ids allowed after a hypothetical path, bool [V]; None without a grammar."""
        mask = self._grammar_mask([self._last(path)])
        return None if mask is None else mask[0]

    def state(self, path: list[int]) -> int | None:
        """The grammar's state after a hypothetical path, which is its last token; None without a grammar."""
        return self._last(path) if self.toy.grammar else None

    def _last(self, path: list[int]) -> int:
        return [START, *self.tokens, *path][-1]

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps the cache rows of a path and makes `token` pending; truncates at the end of sequence and at the limit."""
        new = ([self._draft[i] for i in nodes] + [token])[: self.limit - self.length]
        if self.toy.end is not None and self.toy.end in new:
            new = new[: new.index(self.toy.end) + 1]
        for i in [0, *(node + 1 for node in nodes[: len(new) - 1])]:
            self._cache = (*self._cache, *self._added[i])
        self.tokens += new
        self.done = self.length >= self.limit or (self.toy.end is not None and new[-1] == self.toy.end)
        self.pending, self._newest = [self.length - 1], new[-1:]
        return new

    def commit_at(self, positions: list[int], tokens: list[int], nodes: Iterable[int] = ()) -> None:
        """Keeps the pending tokens and some nodes, and makes tokens at any positions pending. Not for a grammar or an end of sequence,
        which need a prefix."""
        assert self.toy.end is None and not self.toy.grammar, "a wavefront has no end of sequence and no grammar"
        nodes, waiting = list(nodes), len(self.pending)
        if self._in_order is None:
            self._in_order = self.length
        for i in [*range(waiting), *(waiting + node for node in nodes)]:
            self._cache = (*self._cache, *self._added[i])
        self.tokens += [self._draft[i] for i in nodes] + tokens
        self.done = self.length >= self.limit
        self.pending, self._newest = positions, tokens

    def at_scale(self, size: int) -> ToySequence:
        """A new sequence of a smaller toy."""
        return self.toy.at_scale(size).start(Prompt(sampling=self.sampling))

    def rewind(self, length: int) -> None:
        """Drops the committed tokens from `length` on."""
        assert length <= (self.length if self._in_order is None else self._in_order), "the rest must be a prefix, cached in order"
        self._in_order = None
        self.tokens = self.tokens[:length]
        self._cache = tuple(r for r in self._cache if self.network.slots[r] < self._slot(length - 1))
        self.done = self.length >= self.limit
        self.pending, self._newest = [length - 1], self.tokens[-1:] or [START]

    def close(self) -> None:
        """Drops the cache."""
        self._cache = ()


class _Network:
    """Two attention layers of width 16 with two heads, a conditional and an unconditional branch; rows are interned and computed once."""

    WIDTH, HEADS, LAYERS = 16, 2, 2

    def __init__(self, vocabulary: int, slots: int, seed: int, sharpness: float):
        r = np.random.default_rng(seed)
        w = self.WIDTH
        self.embedding = r.normal(size=(2, vocabulary + 2, w))  # one table per branch; the last two ids are ROW_END and START
        self.place = r.normal(size=(slots + 1, w)) * 0.7
        self.project = r.normal(size=(self.LAYERS, 4, w, w)) / w**0.5  # query, key, value, out
        self.feed = r.normal(size=(self.LAYERS, w, w)) / w**0.5
        self.out = r.normal(size=(w, vocabulary)) * sharpness / w**0.5
        self.tables = torch.from_numpy(r.normal(size=(HEADS, w, vocabulary)) * sharpness / w**0.5)  # of the drafter
        mix, tokens = r.normal(size=(w, w)) / w**0.5, r.normal(size=(vocabulary, w))
        out = r.normal(size=(w, vocabulary)) * sharpness / w**0.5
        self.features = torch.from_numpy(mix), torch.from_numpy(tokens), torch.from_numpy(out)  # of the feature drafter
        stream = np.random.default_rng([seed, 17])
        read, input_table = stream.normal(size=(w, w)) / w**0.5, stream.normal(size=(2 * slots + 1, vocabulary, w))
        guessed = stream.normal(size=(w, vocabulary)) * sharpness / w**0.5
        self.stream = torch.from_numpy(read), torch.from_numpy(input_table), torch.from_numpy(guessed)  # of the predictive stream
        spatial = np.random.default_rng([seed, 19])
        read, input_table = spatial.normal(size=(3, w, vocabulary)) / w**0.5, spatial.normal(size=(3, vocabulary, vocabulary)) / 2
        far = spatial.normal(size=(2 * REACH + 1, vocabulary)) / 2
        self.around = tuple(torch.from_numpy(x * sharpness) for x in (read, input_table, far))  # of the row and column heads
        self.rows: dict[tuple[Any, ...], int] = {}
        self.slots: list[int] = []  # of every row
        self.keys = np.zeros((4096, self.LAYERS, 2, w))
        self.values = np.zeros_like(self.keys)
        self.logits = np.zeros((2, 4096, vocabulary))  # NumPy: rows are added both inside and outside torch's inference mode
        self.hidden = np.zeros((2, 4096, w))

    def row(self, token: int, slot: int, context: tuple[int, ...]) -> int:
        """The identity of a cache row, computed if it is new."""
        key = (token, slot, context)
        identity = self.rows.get(key)
        if identity is None:
            identity = self.rows[key] = len(self.rows)
            self.slots.append(slot)
            self._grow(identity)
            self._compute(identity, token, slot, list(context))
        return identity

    def read(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Logits [2, N, V] and hidden states [2, N, H] of rows."""
        return torch.from_numpy(self.logits[:, rows]), torch.from_numpy(self.hidden[:, rows])

    def _grow(self, needed: int) -> None:
        if needed < len(self.keys):
            return
        self.keys, self.values = (np.concatenate([x, np.zeros_like(x)]) for x in (self.keys, self.values))
        self.logits, self.hidden = (np.concatenate([x, np.zeros_like(x)], 1) for x in (self.logits, self.hidden))

    def _compute(self, row: int, token: int, slot: int, context: list[int]) -> None:
        x = self.embedding[:, token] + self.place[slot]  # [2, width]
        visible = [*context, row]
        for layer in range(self.LAYERS):
            q, k, v, _ = (_norm(x) @ m for m in self.project[layer])
            self.keys[row, layer], self.values[row, layer] = k, v
            heads = (len(visible), 2, self.HEADS, -1)
            keys, values = self.keys[visible, layer].reshape(heads), self.values[visible, layer].reshape(heads)
            score = np.einsum("bhd,sbhd->bhs", q.reshape(2, self.HEADS, -1), keys) / (self.WIDTH // self.HEADS) ** 0.5
            weight = np.exp(score - score.max(-1, keepdims=True))
            weight /= weight.sum(-1, keepdims=True)
            x = x + np.einsum("bhs,sbhd->bhd", weight, values).reshape(2, -1) @ self.project[layer, 3]
            x = x + np.tanh(_norm(x) @ self.feed[layer])
        final = _norm(x)
        self.hidden[:, row] = final
        self.logits[:, row] = final @ self.out


class _Counter:
    """Every token is followed by its successor with near certainty. A row depends on its token alone."""

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary
        successor = torch.eye(vocabulary, dtype=torch.float64).roll(1, 1) * 60  # row x: the logits after x
        self.logits = successor.expand(2, -1, -1)
        self.tables = torch.stack([successor.roll(j + 1, 1) for j in range(HEADS)])
        self.features = torch.zeros_like(successor), successor.roll(-1, 1), successor  # the state is the token itself
        flat = torch.zeros(3, vocabulary, vocabulary, dtype=torch.float64)
        self.around = flat, flat, torch.zeros(2 * REACH + 1, vocabulary, dtype=torch.float64)
        self.rows: list[int] = []
        self.slots: list[int] = []

    def row(self, token: int, slot: int, context: tuple[int, ...]) -> int:
        """A new identity for every row."""
        self.rows.append(token % self.vocabulary)
        self.slots.append(slot)
        return len(self.rows) - 1

    def read(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Logits [2, N, V]; the hidden state is the token as a one-hot vector [2, N, V]."""
        tokens = torch.tensor([self.rows[r] for r in rows])
        return self.logits[:, tokens], torch.eye(self.vocabulary, dtype=torch.float64)[tokens].expand(2, -1, -1)


class TableHeads:
    """A drafter of mesh heads: head j's logits are the hidden state times a table. tables : [D, H, V]"""

    def __init__(self, tables: Tensor):
        self.tables, self.depth = tables, len(tables)

    def of(self, kind: str) -> TableHeads:
        """The heads of a kind: all kinds have the same tables."""
        return self

    def start(self, sequence: Any) -> Callable[[Rows, int, int], Tensor]:
        """The heads for one run: (pass, row number, count) -> logits [count, V]."""
        return lambda rows, row, count: self.guess(rows.hidden[0, row], count)

    def guess(self, hidden: Tensor, count: int) -> Tensor:
        """logits [count, V]"""
        return torch.einsum("h,dhv->dv", hidden, self.tables[:count])


class TableResampler:
    """A resampler (engine/drafters/resampler.py) of random tables. A finer token's distribution depends on the coarser token of its cell
    and on its place in the cell; a coarser token depends on all finer ones of its cell."""

    def __init__(self, vocabulary: int):
        r = np.random.default_rng(13)
        self.probs = torch.softmax(torch.from_numpy(r.normal(size=(2, 2, vocabulary, vocabulary))) * 1.5, -1)
        self.votes = r.normal(size=(2, 2, vocabulary, vocabulary))
        self.training_free = self  # tables are all there is

    def up(self, tokens: Tensor, coarse: Raster, fine: Raster, first: int, stop: int) -> Tensor:
        """Distributions [N, V] of the finer tokens."""
        rows = [self.probs[row % 2, column % 2, tokens[above]] for row, column, above in _cells(coarse, fine, first, stop)]
        return torch.stack(rows)

    def down(self, tokens: Tensor, fine: Raster, coarse: Raster, first: int, stop: int) -> Tensor:
        """Coarser tokens int64 [N]."""
        votes = np.zeros((stop * coarse.columns, len(self.votes[0, 0])))
        for row, column, above in _cells(coarse, fine, first, stop):
            votes[above] += self.votes[row % 2, column % 2, tokens[row * fine.columns + column]]
        return torch.from_numpy(votes[first * coarse.columns :].argmax(-1))


def _cells(coarse: Raster, fine: Raster, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Row, column and coarser position of every finer position in some coarser rows."""
    for row in range(*fine_rows(coarse, fine, first, stop)):
        for column in range(fine.columns):
            yield row, column, row * coarse.rows // fine.rows * coarse.columns + column * coarse.columns // fine.columns


class TableStream:
    """A predictive stream (engine/drafters/predictive_stream.py) of random tables: a row's output depends on the committed tokens, and on
    every input that it sees and its position.

    read : [H, H]; input_table : [distances, V, H], the middle one is distance 0; out : [H, V]; causal: rows do not see later rows
    """

    def __init__(self, read: Tensor, input_table: Tensor, out: Tensor, causal: bool):
        self.read, self.input_table, self.out, self.causal = read, input_table, out, causal
        self.both_ways = TableStream(read, input_table, out, causal=False) if causal else None

    def start(self, sequence: ToySequence) -> Callable[[Rows, int], Tensor]:
        """The stream for one run: (rows of a pass, number of its first predictive row) -> guided logits [R, V] of the predictive rows."""
        sequence.adapter = self
        return lambda rows, first: guide(rows.logits[:, first:], sequence.sampling.guidance)

    def states(self, hidden: Tensor, draft: Draft) -> Tensor:
        """The hidden states of the predictive rows, [branches, R, H], from the mean of the control rows that they see, and their inputs.
        hidden : [branches, C, H] of all control rows, pending token and drafts."""
        control = hidden.shape[1]
        sees, places = draft.visible[control:].double(), draft.positions[control - 1 :]
        context = (sees[:, :control] / sees[:, :control].sum(-1, keepdim=True)) @ hidden
        far = (places - places[:, None]) + len(self.input_table) // 2
        inputs = self.input_table[far, draft.tokens[control - 1 :]]  # [R, R, H], row by input
        return torch.tanh(context @ self.read + (sees[:, control:, None] * inputs).sum(1) / 2)


class TableSpatialHeads:
    """Row and column heads (engine/drafters/spatial_heads.py) of random tables: the logits of a slot are a sum of terms of its two
    neighbours above, of the newest token and of the distance to it.

    read : [3, H, V] of states; input_table : [3, V, V] of tokens; far : [distances, V]
    """

    def __init__(self, read: Tensor, input_table: Tensor, far: Tensor):
        self.read, self.input_table, self.far, self.reach = read, input_table, far, REACH

    def start(self, sequence: ToySequence) -> SpatialRun:
        """The heads for one run."""

        def guess(around: SlotInputs, above: Tensor, above_tokens: Tensor, left: Tensor, left_token: Tensor) -> Tensor:
            """Guided logits [N, V]."""
            above_logits = torch.einsum("bnkh,khv->bnv", above, self.read[:2])
            above_logits = above_logits + self.input_table[0][above_tokens[:, 0]] + self.input_table[1][above_tokens[:, 1]]
            newest = left[:, None] @ self.read[2] + self.input_table[2][left_token]
            logits = torch.where(around.has_above[:, None], above_logits, 0.0) + newest * (around.distance > 0)[:, None]
            return guide(logits + self.far[around.distance], sequence.sampling.guidance)

        return SpatialRun(sequence, self.reach, guess)


class TableFeatures:
    """A feature drafter (engine/drafters/feature_draft.py) of random tables: the next state is tanh(state @ mix + tokens[x]).

    mix : [H, H]; tokens : [V, H]; out : [H, V]
    """

    def __init__(self, mix: Tensor, tokens: Tensor, out: Tensor):
        self.mix, self.tokens, self.out = mix, tokens, out

    def start(self, sequence: Any) -> TableGrowth:
        """The drafter for one run."""
        return TableGrowth(self, sequence.sampling.guidance)


def uneven_features(vocabulary: int, width: int) -> TableFeatures:
    """A feature drafter that sees the newest token alone. It gives 0.98 to a repetition of it, but after the last id 0.6 to the second id.
    width : of the hidden states, which it ignores; `vocabulary` at least"""
    probs = torch.full((vocabulary, vocabulary), 0.02 / (vocabulary - 1), dtype=torch.float64).fill_diagonal_(0.98)
    probs[-1] = 0.4 / (vocabulary - 1)
    probs[-1, 1] = 0.6
    states = torch.eye(vocabulary, width, dtype=torch.float64)
    return TableFeatures(torch.zeros(width, width, dtype=torch.float64), 20 * states, states.T @ probs.log())  # tanh(20) is 1


class TableGrowth:
    """One run of `TableFeatures`. Its cache is the newest state, and for every node the state after it."""

    def __init__(self, tables: TableFeatures, guidance: float):
        self.tables, self.guidance = tables, guidance
        self.states = torch.empty(0)  # [1 + nodes, branches, H]

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """hidden [branches, k, H], k tokens -> guided logits [V] after the newest token."""
        state = torch.zeros_like(hidden[:, 0]) if not len(self.states) else self.states[0]
        for i, token in enumerate(tokens):  # the newest state depends on all of them, so a lost or repeated token shows
            state = torch.tanh((hidden[:, i] + state / 4) @ self.tables.mix + self.tables.tokens[token])
        self.states = state[None]
        return guide(self.states[0][:, None] @ self.tables.out, self.guidance)[0]

    def expand(self, parents: list[int] | Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Numbers of parents (-1 is the root) and tokens -> guided logits [k, V]."""
        behind = self.states[torch.as_tensor(parents) + 1]
        new = torch.tanh(behind @ self.tables.mix + self.tables.tokens[tokens][:, None])
        self.states = torch.cat([self.states, new])
        return guide((new @ self.tables.out).transpose(0, 1), self.guidance)


def _norm(x: np.ndarray) -> np.ndarray:
    """Root-mean-square norm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto") -> Toy:
    """The toy. It has no weights to load and always computes in float64."""
    return Toy()

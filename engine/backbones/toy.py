"""The toy: a two-layer transformer in float64, so small that every sequence can be enumerated. Exactness is proven on it.

It has all that a real model has: a key/value cache whose rows depend on the context they were computed in, a guidance pair, a
2-D grid with forced row-end tokens, and optionally an end-of-sequence token. It is fast because it is memoised exactly: a cache
row is identified by (token, position, the identities of the rows it saw), so each distinct row is computed once, with
real attention over the stored keys and values of what it saw, and a wrong cache gives wrong laws just as in a real model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.core import Draft, Prompt, Rows, Sampling
from engine.layout import Raster
from engine.sampling import guide, warp
from engine.tree import depths

ROW_END = -2  # the input id of the forced token behind each row of the grid
START = -1  # the input id of the prompt


class Toy:
    """The backbone. `vocabulary` ids, `rows` x `columns` positions; if `end` the last id ends the sequence."""

    name = "toy"
    capabilities = frozenset({"raster", "hidden"})

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
    ):
        self.vocabulary, self.layout, self.end = vocabulary, Raster(rows, columns, 1), vocabulary - 1 if end else None
        self.sampling = Sampling(temperature, top_k, top_p, guidance)
        self.device = torch.device("cpu")
        self.network = _Network(vocabulary, rows * (columns + 1) + 1, seed, sharpness)

    def start(self, prompt: Prompt) -> ToySequence:
        """An empty sequence; the prompt only brings its sampling."""
        return ToySequence(self, prompt.sampling or self.sampling)

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray:
        """uint8 [rows, columns, 3]: a gray level a token."""
        picture = np.zeros((self.layout.rows, self.layout.columns, 3), np.uint8)
        for token, position in zip(tokens, positions, strict=True):
            picture[self.layout.place(position)] = 255 * (token + 1) // self.vocabulary
        return picture

    def enumerate_law(self, sampling: Sampling | None = None) -> dict[tuple[int, ...], float]:
        """The probability of every sequence, by plain single steps. Sequences end at `end` or at the limit."""
        found: dict[tuple[int, ...], float] = {}

        def descend(path: tuple[int, ...], probability: float) -> None:
            sequence = self.start(Prompt(sampling=sampling))
            for token in path:
                sequence.forward(Draft(torch.empty(0, dtype=torch.int64)))
                sequence.commit([], token)
            if sequence.done:
                found[path] = probability
                return
            p = sequence.forward(Draft(torch.empty(0, dtype=torch.int64))).p[0].tolist()
            for token, chance in enumerate(p):
                if chance > 0:
                    descend((*path, token), probability * chance)

        descend((), 1.0)
        return found


class ToySequence:
    """One run. The cache is a list of row identities; forward computes or looks up the rows that a draft needs."""

    def __init__(self, toy: Toy, sampling: Sampling):
        self.toy, self.network, self.sampling = toy, toy.network, sampling
        self.vocabulary, self.layout, self.device = toy.vocabulary, toy.layout, toy.device
        self.limit = toy.layout.rows * toy.layout.columns
        self.tokens: list[int] = []
        self.done = False
        self._cache: tuple[int, ...] = ()
        self._pending = (START, 0)
        self._fed: list[tuple[int, ...]] = []  # per row of the last pass: the cache rows that it added
        self._draft: list[int] = []

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self.tokens)

    def forward(self, draft: Draft) -> Rows:
        """One pass over the pending token and the nodes. Row i+1 is read behind node i (behind the forced token, at a row's end)."""
        tokens = draft.tokens.tolist()
        parents = list(range(-1, len(tokens) - 1)) if draft.parents is None else draft.parents.tolist()
        places = [self.length - 1 + d for d in depths(parents)] if draft.positions is None else draft.positions.tolist()
        seen: list[tuple[int, ...]] = []
        self._fed, reads = [], []
        for i in range(len(tokens) + 1):
            if i == 0:
                context, (token, slot) = self._cache, self._pending
                place = self.length - 1
            else:
                context = self._context(i, parents, seen, draft.visible)
                token, place = tokens[i - 1], places[i - 1]
                slot = self._slot(place)
            added = self._feed(token, slot, place, context)
            self._fed.append(added)
            seen.append((*context, *added) if draft.visible is None else added)
            reads.append(added[-1])
        self._draft = tokens
        logits, hidden = self.network.read(reads)
        return Rows(logits, self._warp, hidden)

    def _context(self, i: int, parents: list[int], seen: list[tuple[int, ...]], visible: Tensor | None) -> tuple[int, ...]:
        """The cache rows that node i-1 sees besides itself."""
        if visible is None:
            return seen[parents[i - 1] + 1]
        rows = [r for j in range(i) if visible[i, j] for r in seen[j]]
        return (*self._cache, *rows)

    def _slot(self, place: int) -> int:
        """The absolute slot of a position: the start token, and a forced token behind every row, take slots too."""
        return 1 + place + place // self.layout.columns

    def _feed(self, token: int, slot: int, place: int, context: tuple[int, ...]) -> tuple[int, ...]:
        """Cache rows of a token, and of the forced row end that follows it in the last column."""
        row = self.network.row(token, slot, context)
        if place >= 0 and (place + 1) % self.layout.columns == 0 and place + 1 < self.limit:
            return row, self.network.row(ROW_END, slot + 1, (*context, row))
        return (row,)

    def _warp(self, logits: Tensor) -> Tensor:
        return warp(guide(logits, self.sampling.guidance), self.sampling)

    def law(self, logits: Tensor, path: list[int]) -> Tensor:
        """Laws [k, V] of guided logits."""
        return torch.softmax(warp(logits, self.sampling), -1)

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps the cache rows of a path, makes `token` pending, cuts at the end of sequence and at the limit."""
        new = ([self._draft[i] for i in nodes] + [token])[: self.limit - self.length]
        if self.toy.end is not None and self.toy.end in new:
            new = new[: new.index(self.toy.end) + 1]
        for i in [0, *(node + 1 for node in nodes[: len(new) - 1])]:
            self._cache = (*self._cache, *self._fed[i])
        self.tokens += new
        self.done = self.length >= self.limit or (self.toy.end is not None and new[-1] == self.toy.end)
        self._pending = (new[-1], self._slot(self.length - 1))
        return new

    def close(self) -> None:
        """Forgets the cache."""
        self._cache = ()


class _Network:
    """Two attention layers, width 16, two heads, conditional and unconditional branch; rows are interned and computed once."""

    WIDTH, HEADS, LAYERS = 16, 2, 2

    def __init__(self, vocabulary: int, slots: int, seed: int, sharpness: float):
        r = np.random.default_rng(seed)
        w = self.WIDTH
        self.embedding = r.normal(size=(2, vocabulary + 2, w))  # a table a branch: the condition; the last two are ROW_END and START
        self.place = r.normal(size=(slots + 1, w)) * 0.7
        self.project = r.normal(size=(self.LAYERS, 4, w, w)) / w**0.5  # query, key, value, out
        self.feed = r.normal(size=(self.LAYERS, w, w)) / w**0.5
        self.out = r.normal(size=(w, vocabulary)) * sharpness / w**0.5
        self.rows: dict[tuple[Any, ...], int] = {}
        self.keys = np.zeros((4096, self.LAYERS, 2, w))
        self.values = np.zeros_like(self.keys)
        self.logits = torch.zeros(2, 4096, vocabulary, dtype=torch.float64)
        self.hidden = torch.zeros(2, 4096, w, dtype=torch.float64)

    def row(self, token: int, slot: int, context: tuple[int, ...]) -> int:
        """The identity of a cache row, computed if it is new."""
        key = (token, slot, context)
        found = self.rows.get(key)
        if found is None:
            found = self.rows[key] = len(self.rows)
            self._grow(found)
            self._compute(found, token, slot, list(context))
        return found

    def read(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Logits [2, N, V] and hidden states [2, N, H] of rows."""
        index = torch.tensor(rows)
        return self.logits[:, index], self.hidden[:, index]

    def _grow(self, needed: int) -> None:
        if needed < len(self.keys):
            return
        self.keys, self.values = (np.concatenate([x, np.zeros_like(x)]) for x in (self.keys, self.values))
        self.logits, self.hidden = (torch.cat([x, torch.zeros_like(x)], 1) for x in (self.logits, self.hidden))

    def _compute(self, row: int, token: int, slot: int, context: list[int]) -> None:
        x = self.embedding[:, token] + self.place[slot]  # [2, width]
        seen = [*context, row]
        for layer in range(self.LAYERS):
            q, k, v, _ = (_norm(x) @ m for m in self.project[layer])
            self.keys[row, layer], self.values[row, layer] = k, v
            heads = (len(seen), 2, self.HEADS, -1)
            keys, values = self.keys[seen, layer].reshape(heads), self.values[seen, layer].reshape(heads)
            score = np.einsum("bhd,sbhd->bhs", q.reshape(2, self.HEADS, -1), keys) / (self.WIDTH // self.HEADS) ** 0.5
            weight = np.exp(score - score.max(-1, keepdims=True))
            weight /= weight.sum(-1, keepdims=True)
            x = x + np.einsum("bhs,sbhd->bhd", weight, values).reshape(2, -1) @ self.project[layer, 3]
            x = x + np.tanh(_norm(x) @ self.feed[layer])
        final = _norm(x)
        self.hidden[:, row] = torch.from_numpy(final)
        self.logits[:, row] = torch.from_numpy(final @ self.out)


def _norm(x: np.ndarray) -> np.ndarray:
    """Root-mean-square norm over the last axis."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto") -> Toy:
    """The toy; it has no weights to load, and is float64 always."""
    return Toy()

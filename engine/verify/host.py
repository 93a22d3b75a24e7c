"""Verdicts on a processor, by numpy: each row is computed alone, and only when something reads it.

Between two passes the weights have flushed the caches, and then a numpy operation costs a quarter of PyTorch's. A row has the same bits in
every pass, whatever the number of rows. Only the tokens that the grammar and the filters leave are exponentiated, drawn and given noise.

Mathematics: request.py. The k-th largest score is at least the k-th largest of the maxima of parts of the row, so only the few scores from
there on are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine.core import ChosenTokens, Grammar, Sampling
from engine.noise import ACCEPT, DRAW, RESIDUAL
from engine.noise.kernel import gumbel_at
from engine.verify.request import Recorded, check_pair

if TYPE_CHECKING:
    from engine.noise import Noise

PARTS = 16  # parts of a row; their maxima bound its k-th largest score
FEW = 128  # scores that top-p sorts first, before it sorts all
LEAST = np.finfo(np.float32).min


AllowedIds = slice | np.ndarray  # ids of the vocabulary, ascending


class HostRow:
    """One row of a pass.

    sound  : False for a row that cannot be drawn from; then the rest is missing
    ids    : int64 [K], ascending: the tokens that the grammar and the filters leave; None: all
    scores : float32 [K], warped; top : the greatest
    """

    def __init__(self, logits: np.ndarray, allowed: AllowedIds | None, sampling: Sampling, out: np.ndarray | None = None):
        """logits : float32 [C, V]; allowed : the possible tokens, None: all; out : [V], for p, or None"""
        scores = guide(logits if allowed is None else logits[:, allowed], sampling.guidance)
        self.vocabulary, self.ids, self.top, self.out = logits.shape[1], None, np.maximum.reduce(scores, initial=-np.inf), out
        self.sound = bool(-np.inf < self.top < np.inf)
        if not self.sound:
            return
        temperature = np.float32(sampling.temperature)
        if temperature == 0:
            self.ids = ids_of(np.array([scores.argmax()]), allowed)
            self.scores, self.top = np.zeros(1, np.float32), np.float32(0)
            return
        count = sampling.top_k if sampling.top_k < len(scores) else 0
        is_filtered = count or sampling.top_p < 1
        is_late = sampling.temperature_last and is_filtered
        if temperature != 1 and not is_late:
            scores, self.top = scores / temperature, self.top / temperature
        if is_filtered or allowed is not None:
            places = filtered_ids(scores, self.top, count, sampling.top_p) if is_filtered else np.flatnonzero(scores >= LEAST)
            scores, self.ids = scores[places], ids_of(places, allowed)
        if is_late:
            scores, self.top = scores / temperature, self.top / temperature
        self.scores = scores

    @cached_property
    def p(self) -> np.ndarray:
        """The probabilities of the remaining tokens, float32 [K]; also computes the entropy and the greatest probability."""
        gap = self.scores - self.top
        shares = np.exp(gap, out=self.out)
        total = float(np.add.reduce(shares))
        heat = float(shares.dot(gap))
        if heat != heat:  # the model itself rules out tokens: 0 times -inf
            heat = float(shares[shares > 0].dot(gap[shares > 0]))
        self.entropy, self.peak = log(total) - heat / total, 1 / total
        shares /= np.float32(total)
        return shares

    def probability(self, token: int) -> float:
        """The probability of a token."""
        p = self.p
        if self.ids is None:
            return float(p[token])
        at = int(self.ids.searchsorted(token))
        return float(p[at]) if at < len(p) and self.ids[at] == token else 0.0

    def residual(self, token: int, draft_probs: np.ndarray | None) -> np.ndarray:
        """max(0, p - q) of the remaining tokens, not normalised; p where nothing remains. draft_probs : [V], None: one-hot"""
        if draft_probs is None:
            rest = self.p.copy()
            rest[token if self.ids is None else self.ids == token] = 0
        else:
            rest = np.maximum(self.p - (draft_probs if self.ids is None else draft_probs[self.ids]), 0)
        return self.p if rest.sum() < 1e-12 else rest

    def draw(self, weights: np.ndarray, u: float) -> int:
        """The token at which the running sum of weights [K] reaches u times their sum."""
        sums = weights.cumsum(dtype=np.float64)
        return self.token(min(int(sums.searchsorted(u * sums[-1])), len(sums) - 1))

    def answer(self, noise: Noise, position: int) -> int:
        """The draw with the noise of a position."""
        if self.ids is None:
            return int((self.scores + noise.gumbel_row(position)).argmax())
        if len(self.ids) == 1:
            return int(self.ids[0])
        return self.token(int((self.scores + gumbel_at(noise.base, position, self.ids).astype(np.float32)).argmax()))

    def token(self, place: int) -> int:
        """The id of the remaining token at a place."""
        return place if self.ids is None else int(self.ids[place])

    def spread(self, values: np.ndarray, elsewhere: float) -> np.ndarray:
        """Values [K] of the remaining tokens, spread over a whole row [V]."""
        if self.ids is None:
            return values
        row = np.full(self.vocabulary, elsewhere, np.float32)
        row[self.ids] = values
        return row


def guide(logits: np.ndarray, scale: float) -> np.ndarray:
    """Guidance on raw logits [C, ..., V], as `sampling.guide`."""
    if len(logits) == 1:
        return logits[0]
    c, u = logits
    scores = c - u
    scores *= np.float32(scale if abs(scale) < 0.5 else scale - 1)
    scores += u if abs(scale) < 0.5 else c
    return scores


def candidates(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of at least the `count` best scores [V], and of all that equal the last of them, ascending."""
    peaks = np.maximum.reduce(scores[: len(scores) // PARTS * PARTS].reshape(PARTS, -1))
    if count > len(peaks):
        return np.arange(len(scores))
    peaks.sort()
    return (scores >= max(peaks[-count], LEAST)).nonzero()[0]


def filtered_ids(scores: np.ndarray, top: np.float32, count: int, share: float) -> np.ndarray:
    """The places, ascending, of the scores [V] that top-k (0: all) and then top-p keep; `top` is the greatest."""
    ids, total = candidates(scores, count or FEW), None
    if not count:
        weights = np.exp(scores - top)
        total = weights.sum()
        ids = ids if weights[ids].sum() >= share * total else np.arange(len(scores))
    some = scores[ids]
    best = some.copy()
    best.sort()
    return ids[some >= max(least_kept(best[::-1], count, share, total), LEAST)]


def least_kept(best: np.ndarray, count: int, share: float, total: np.float32 | None) -> np.float32:
    """The smallest score that top-k (0: all) and then top-p keep, as in `sampling.warp`.

    best : descending, with all scores that can be kept; total : the sum of e^(score - best[0]) over all tokens; None: over top-k's
    """
    if 0 < count < len(best):
        while count < len(best) and best[count] == best[count - 1]:
            count += 1
        best = best[:count]
    if share >= 1:
        return best[-1]
    p = np.exp(best - best[0])
    p /= np.add.reduce(p) if total is None else total
    return best[max(1, int((p.cumsum() - p).searchsorted(share))) - 1]


class HostRows:
    """The rows of a pass, each computed when it is needed."""

    def __init__(self, logits: Tensor, sampling: Sampling, allowed: Sequence[AllowedIds] | None = None):
        """logits : [C, R, V]; allowed : the possible tokens of each of the first rows; None, and in other rows: all"""
        self.logits, self.sampling, self.allowed = logits.detach().float().numpy(), sampling, allowed
        self.rows: list[HostRow | None] = [None] * logits.shape[1]
        whole = allowed is None and sampling.temperature and not sampling.top_k and sampling.top_p >= 1
        self.shares = np.empty(self.logits.shape[1:], np.float32) if whole else None  # storage for every row's p
        if whole:  # no token is left out, so all rows need the same operations, which cost less together
            scores = guide(self.logits, sampling.guidance)
            self.logits, self.sampling = (scores / np.float32(sampling.temperature))[None], Sampling()

    def row(self, i: int) -> HostRow:
        """Row i."""
        if (row := self.rows[i]) is None:
            allowed = None if self.allowed is None or i >= len(self.allowed) else self.allowed[i]
            row = self.rows[i] = HostRow(self.logits[:, i], allowed, self.sampling, None if self.shares is None else self.shares[i])
        return row

    def probs(self, start: int, stop: int) -> Tensor:
        """Distributions of rows start..stop-1, float32 [stop-start, V]; NaN in a row that is not sound."""
        values = [row.spread(row.p, 0.0) if row.sound else self._unsound for row in map(self.row, range(start, stop))]
        if self.shares is not None and all(row.sound for row in self.rows[start:stop]):
            return torch.from_numpy(self.shares[start:stop])
        return self._stack(values)

    def scores(self, count: int) -> Tensor:
        """Warped scores of the first rows, float32 [count, V]; NaN in a row that is not sound."""
        return self._stack(row.spread(row.scores, -np.inf) if row.sound else self._unsound for row in map(self.row, range(count)))

    @property
    def _unsound(self) -> np.ndarray:
        return np.full(self.logits.shape[2], np.nan, np.float32)

    def _stack(self, values: Iterable[np.ndarray]) -> Tensor:
        rows = list(values)
        if len(rows) == 1:
            return torch.from_numpy(rows[0])[None]
        return torch.from_numpy(np.stack(rows) if rows else np.empty((0, self.logits.shape[2]), np.float32))


class HostDraws:
    """Tokens of rows, drawn when a slice of them is read."""

    def __init__(self, draw: Callable[[int], int], count: int):
        self.draw, self.count = draw, count

    def __getitem__(self, some: slice) -> Tensor:
        return torch.tensor([self.draw(i) for i in range(*some.indices(self.count))], dtype=torch.int64)


class HostVerdict:
    """The verdict on a window: the members of `Verdict` that a run reads, computed on first use. `recorded` alone has chances, entropies
    and top.

    settled : the first refusal and the token after it, which is -1 if a row up to there is not sound
    """

    def __init__(
        self, rows: HostRows, tokens: Tensor, draft_probs: Tensor | ChosenTokens | None, noise: Noise, start: int, iteration: int,
        seeded: bool,
    ):  # fmt: skip
        """As `decoding.verdict.judge`: row i is the distribution of position start+i."""
        self.rows, self.drafts, self.noise, self.start, self.iteration = rows, tokens.tolist(), noise, start, iteration
        self.draft_probs = draft_probs.detach().float().numpy() if isinstance(draft_probs, Tensor) else None  # None: one-hot, or none
        self.by_answer = seeded or draft_probs is None
        self.has_draft_probs, self.seeded = draft_probs is not None, seeded
        self._ratios: dict[int, float] = {}
        size = len(self.drafts)
        a = 0
        while a < size and rows.row(a).sound and self._accepts(a):
            a += 1
        row = rows.row(a)
        self.settled = a, self._after(a) if row.sound else -1
        self.answers, self.fresh, self.drawn = (HostDraws(draw, size + 1) for draw in (self._answer, self._fresh, self._draw))

    def _u(self, stream: int, i: int) -> float:
        return self.noise.number(stream, self.start + i, self.iteration)

    def _accepts(self, i: int) -> bool:
        if self.by_answer:
            return self._answer(i) == self.drafts[i]
        return self._u(ACCEPT, i) < self._ratio(i)

    def _ratio(self, i: int) -> float:
        if i not in self._ratios:
            chance = self._row(i).probability(self.drafts[i])
            self._ratios[i] = chance if self.draft_probs is None else chance / float(self.draft_probs[i, self.drafts[i]])
        return self._ratios[i]

    def _row(self, i: int) -> HostRow:
        row = self.rows.row(i)
        check_pair(i, 0 if row.sound else -1)
        return row

    def _answer(self, i: int) -> int:
        return self._row(i).answer(self.noise, self.start + i)

    def _fresh(self, i: int) -> int:
        row = self._row(i)
        return row.draw(row.p, self._u(DRAW, i))

    def _draw(self, i: int) -> int:
        row = self._row(i)
        if i == len(self.drafts) or not self.has_draft_probs:
            return row.draw(row.p, self._u(RESIDUAL, i))
        return row.draw(row.residual(self.drafts[i], None if self.draft_probs is None else self.draft_probs[i]), self._u(RESIDUAL, i))

    def _after(self, a: int) -> int:
        """The token after `a` accepted drafts."""
        if self.seeded:
            return self._answer(a)
        return self._fresh(a) if a == len(self.drafts) else self._draw(a)

    @cached_property
    def accepted(self) -> Tensor:
        """bool [m]"""
        return torch.tensor([self._accepts(i) for i in range(len(self.drafts))], dtype=torch.bool)

    @cached_property
    def ratios(self) -> Tensor | None:
        """p/q [m]; None without distributions"""
        return torch.tensor([self._ratio(i) for i in range(len(self.drafts))]) if self.has_draft_probs else None

    @property
    def recorded(self) -> Recorded:
        """As in `Verdict`, up to the first refusal."""
        a = self.settled[0]
        rows = [self.rows.row(i) for i in range(a + 1)]
        chances = [row.probability(token) for row, token in zip(rows, self.drafts, strict=False)]
        ratios = chances if self.draft_probs is None else [self._ratio(i) for i in range(min(a + 1, len(self.drafts)))]
        rows[-1].p  # noqa: B018 (its numbers come with it)
        return [row.entropy for row in rows], chances, [row.peak for row in rows], ratios


def best_along(logits: Tensor, allowed: Sequence[AllowedIds], grammar: Grammar, state: Any) -> Tensor:
    """The most probable tokens int64 [N] of logits float32 [N, V] for a chain, each under the grammar after the earlier ones.

    allowed : the ids that each mask of the grammar leaves
    """
    tokens: list[int] = []
    for row in logits.detach().numpy():
        possible = allowed[grammar.mask_index(state)]
        tokens.append(int(ids_of(row[possible].argmax(), possible)))
        state = grammar.next(state, tokens[-1])
    return torch.tensor(tokens)


def ids_of(places: np.ndarray, allowed: AllowedIds | None) -> np.ndarray:
    """The ids of places among the allowed ones."""
    if isinstance(allowed, slice):
        return places + allowed.start if allowed.start else places
    return places if allowed is None else allowed[places]


def allowed_by(masks: Tensor) -> list[AllowedIds]:
    """The ids that each of the masks bool [M, V] leaves: a slice, which copies nothing, where they follow each other."""
    return [as_slice(mask) for mask in masks.numpy()]


def as_slice(mask: np.ndarray) -> AllowedIds:
    """The ids where a mask bool [V] is True, as a slice if they follow each other."""
    first = int(mask.argmax())
    last = first + np.count_nonzero(mask)
    return slice(first, last) if last > first and mask[first:last].all() else mask.nonzero()[0]

"""Drafting at a smaller scale: the same model generates a smaller picture, and the resampler turns it into distributions of fine tokens.

The coarse tokens are drawn with noise of their own. If they used the noise of positions, which the fine picture also uses, the
distributions made from them would depend on the draws that are verified against them. They are drawn in a Jacobi window: a pass draws
every token of the window with its position's noise, and those whose window held the right tokens before them are plain decoding's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Sequence
from engine.decoding.wavefront import WHOLE, lead, predict
from engine.errors import NotSupported
from engine.layout import fine_rows
from engine.noise import Noise
from engine.noise.kernel import mix
from engine.sampling import draw_gumbel

WINDOW = 8  # tokens that a pass over the small picture draws
SHARPNESS = 4.0  # exponent for drafts in a window: an unlikely draft harms its neighbours more than its own acceptance gains


class CoarsePicture:
    """A coarser picture drafted for a sequence: its tokens so far, row by row, and the number of passes."""

    def __init__(self, sequence: Sequence, noise: Noise, size: int, training_free: bool = False):
        """size: the coarser picture's, one of the sequence's scales; training_free: use the resampler without trained networks."""
        self.noise = Noise(mix(noise.root), sequence.vocabulary, sequence.device, noise.dtype)
        self.size, self.fine = size, sequence.layout
        self.resampler = sequence.resampler.training_free if training_free else sequence.resampler
        self.sequence = sequence.at_scale(size)
        self.layout = self.sequence.layout
        self.tokens: list[int] = []
        self._guesses: list[int] = []  # of the tokens after them, from the last pass
        self.passes = 0

    def draft(self, stop: int, window: float = WHOLE) -> list[int]:
        """Draws tokens down to the row before `stop`; returns the new ones, row by row.

        window : the number of tokens in the row above with which a row may begin (see wavefront.py); WHOLE: plain decoding's tokens
        """
        begin, columns = len(self.tokens), self.layout.columns
        if (enough := lead(window, columns)) < columns:
            self._next(1)
            self._wavefront(stop, enough)
        while (left := stop * columns - len(self.tokens)) > 0:
            self._next(min(left, WINDOW))
        return self.tokens[begin:]

    def _next(self, count: int) -> None:
        """Draws the next token, and up to `count` if the guesses are right; first feeds the tokens that the sequence has not read yet."""
        waiting, start = self.tokens[self.sequence.length :], len(self.tokens)
        guesses = [*self._guesses, *self.tokens[-1:] * count][: count - 1]
        nodes = [*waiting, *guesses]
        rows = self.sequence.forward(Draft(torch.tensor(nodes, device=self.sequence.device)) if nodes else NO_DRAFT)
        scores = rows.scores[len(waiting) :]
        drawn = draw_gumbel(scores, self.noise.gumbel(start, len(scores))).tolist()
        right = next((i for i, pair in enumerate(zip(guesses, drawn, strict=False)) if pair[0] != pair[1]), len(guesses))
        self.sequence.commit(list(range(len(waiting) + right)), drawn[right])
        self.tokens += drawn[: right + 1]
        self._guesses = drawn[right + 1 :]
        self.passes += 1

    def _wavefront(self, stop: int, enough: int) -> None:
        """Completes the current row and all later rows before `stop` in parallel, then discards their cache: the next pass feeds these
        tokens again, each in its full context."""
        columns, start = self.layout.columns, self.sequence.length
        first = (start - 1) // columns
        rows = [self.tokens[first * columns :], *([] for _ in range(first + 1, stop))]
        while sum(map(len, rows)) < len(rows) * columns:
            active = [i for i, row in enumerate(rows) if len(row) < columns and (row or len(rows[i - 1]) >= enough)]
            positions = [(first + i) * columns + len(rows[i]) for i in active]
            predicted, index = predict(self.sequence, positions, rows[active[-1] - 1][-1:])
            tokens = draw_gumbel(predicted.scores[index], torch.cat([self.noise.gumbel(position, 1) for position in positions])).tolist()
            self.sequence.commit_at(positions, tokens)
            for i, token in zip(active, tokens, strict=True):
                rows[i].append(token)
            self.passes += 1
        self.tokens[first * columns :] = [token for row in rows for token in row]
        self.sequence.rewind(start)

    def follow(self, picture: Tensor, first: int, stop: int) -> None:
        """Replaces rows first..stop-1 by the down-sampled finer picture, int64 [limit]; discards the cache from the first difference on."""
        begin = first * self.layout.columns
        new = self.resampler.down(picture, self.fine, self.layout, first, stop).tolist()
        same = next((i for i, pair in enumerate(zip(new, self.tokens[begin:], strict=True)) if pair[0] != pair[1]), None)
        if same is not None:
            self.sequence.rewind(min(self.sequence.length, begin + same))
            self.tokens[begin:] = new

    def probs(self, first: int, stop: int) -> Tensor:
        """Distributions [N, V] of the finer tokens that lie in rows first..stop-1."""
        tokens = torch.tensor(self.tokens[: stop * self.layout.columns], device=self.sequence.device)
        return self.resampler.up(tokens, self.layout, self.fine, first, stop).to(self.noise.dtype)

    def close(self) -> None:
        """Frees the cache."""
        self.sequence.close()


def sharpen(probs: Tensor) -> Tensor:
    """Distributions [N, V] to the power of SHARPNESS, normalised."""
    return torch.softmax(SHARPNESS * probs.clamp(min=1e-12).log(), -1)


class EnlargedPicture:
    """Distributions of the tokens of a sequence, from the same picture at the model's smallest size.

    The small picture is generated one row at a time, when the first token under that row is requested. Before that, the fine tokens so far,
    drafts included, are down-sampled and replace the small rows above, so that it continues the real picture. A
    distribution depends only on tokens before its own positions, as verification requires. It is sharpened and never changes later.
    """

    def __init__(self, sequence: Sequence, noise: Noise):
        """Raises NotSupported if the sequence has no smaller size."""
        self.sequence = sequence
        self.coarser = CoarsePicture(sequence, noise, scales_of(sequence, "init = up-sampled")[0])
        self.row_probs: list[Tensor] = []  # [N, V] by small row
        self._counted = 0

    def probs(self, position: int, tokens: Tensor) -> Tensor:
        """The distribution [V] of a position. tokens : int64 [k], the drafts directly after the committed tokens"""
        coarse, fine = self.coarser.layout, self.sequence.layout
        row = position // fine.columns * coarse.rows // fine.rows
        while len(self.row_probs) <= row:
            self._next(tokens)
        return self.row_probs[row][position - fine_rows(coarse, fine, row, row + 1)[0] * fine.columns]

    def _next(self, tokens: Tensor) -> None:
        """Adds one row of the small picture."""
        coarse, fine, row = self.coarser.layout, self.sequence.layout, len(self.row_probs)
        known = torch.cat([torch.tensor(self.sequence.tokens, dtype=torch.int64, device=tokens.device), tokens])
        if row and len(known) >= fine_rows(coarse, fine, row, row + 1)[0] * fine.columns:
            self.coarser.follow(known, row - 1, row)
        self.coarser.draft(row + 1)
        self.row_probs.append(sharpen(self.coarser.probs(row, row + 1)))

    def take_pass_count(self) -> int:
        """The number of passes at the smaller size since the last call."""
        passes, self._counted = self.coarser.passes - self._counted, self.coarser.passes
        return passes

    def close(self) -> None:
        """Frees the cache."""
        self.coarser.close()


def scales_of(sequence: Sequence, wanted: str) -> tuple[int, ...]:
    """The smaller sizes of a sequence's model, ascending; raises NotSupported if there is none.

    wanted : the method or setting that needs smaller sizes, for the message
    """
    if not sequence.scales:
        raise NotSupported(
            f"{wanted} drafts at a smaller size, and this model has none below this one. Choose a larger size or another method or init."
        )
    return sequence.scales

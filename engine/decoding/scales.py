"""The same picture at a smaller scale, for methods that draft there: plain decoding by the same model, and what it says of finer tokens.

The coarse tokens are drawn with noise of their own (the drafter's stream). Were they drawn with the noise of positions, which the finer
picture uses too, a law made of them would know something of the draws that are verified against it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Sequence
from engine.decoding.wavefront import WHOLE, lead, predict
from engine.errors import NotSupported
from engine.layout import fine_rows
from engine.noise import DRAFTER, Noise
from engine.sampling import draw

SHARPNESS = 4.0  # of drafts in a window: an unlikely one misleads those beside it, which costs more than its own acceptance gains


class Coarser:
    """A coarser picture beside a sequence: its tokens so far, row by row, and the passes it took."""

    def __init__(self, sequence: Sequence, noise: Noise, size: int, training_free: bool = False):
        """size: of the coarser picture, one of the sequence's scales; training_free: what lies between the scales is no trained network."""
        self.noise, self.size, self.fine = noise, size, sequence.layout
        self.resampler = sequence.resampler.training_free if training_free else sequence.resampler
        self.sequence = sequence.at_scale(size)
        self.layout = self.sequence.layout
        self.tokens: list[int] = []
        self.passes = 0

    def draft(self, stop: int, iteration: int, window: float = WHOLE) -> list[int]:
        """Draws tokens down to the row before `stop`; returns the new ones, row by row.

        window : how many tokens the row above needs before a row begins (see wavefront.py); WHOLE: plain decoding
        """
        begin, columns = len(self.tokens), self.layout.columns
        self._next(iteration)
        if lead(window, columns) < columns:
            self._wavefront(stop, lead(window, columns), iteration)
        while len(self.tokens) < stop * columns:
            self._next(iteration)
        return self.tokens[begin:]

    def _next(self, iteration: int) -> None:
        """Draws one token behind all others, of which those that the sequence has not seen yet are fed."""
        waiting = self.tokens[self.sequence.length :]
        draft = Draft(torch.tensor(waiting, device=self.sequence.device)) if waiting else NO_DRAFT
        p = self.sequence.forward(draft).p[len(waiting) :]
        token = draw(p, self.noise.uniform(DRAFTER, len(self.tokens), 1, iteration)).item()
        self.sequence.commit(list(range(len(waiting))), token)
        self.tokens.append(token)
        self.passes += 1

    def _wavefront(self, stop: int, enough: int, iteration: int) -> None:
        """Finishes the row that has begun and all others before `stop` side by side, then takes their cache back: what comes next shall see
        each token in its whole context, so they are fed again with it."""
        columns, start = self.layout.columns, self.sequence.length
        first = (start - 1) // columns
        rows = [self.tokens[first * columns :], *([] for _ in range(first + 1, stop))]
        while sum(map(len, rows)) < len(rows) * columns:
            active = [i for i, row in enumerate(rows) if len(row) < columns and (row or len(rows[i - 1]) >= enough)]
            positions = [(first + i) * columns + len(rows[i]) for i in active]
            found, index = predict(self.sequence, positions, rows[active[-1] - 1][-1:])
            uniforms = [self.noise.uniform(DRAFTER, position, 1, iteration) for position in positions]
            tokens = draw(found.p[index], torch.cat(uniforms)).tolist()
            self.sequence.commit_at(positions, tokens)
            for i, token in zip(active, tokens, strict=True):
                rows[i].append(token)
            self.passes += 1
        self.tokens[first * columns :] = [token for row in rows for token in row]
        self.sequence.rewind(start)

    def follow(self, picture: Tensor, first: int, stop: int) -> None:
        """Rows first..stop-1 become those of the finer picture int64 [limit]; where they differ, the drafter's cache goes back."""
        begin = first * self.layout.columns
        new = self.resampler.down(picture, self.fine, self.layout, first, stop).tolist()
        same = next((i for i, pair in enumerate(zip(new, self.tokens[begin:], strict=True)) if pair[0] != pair[1]), None)
        if same is not None:
            self.sequence.rewind(min(self.sequence.length, begin + same))
            self.tokens[begin:] = new

    def laws(self, first: int, stop: int) -> Tensor:
        """Laws [N, V] of the finer tokens that lie in rows first..stop-1."""
        tokens = torch.tensor(self.tokens[: stop * self.layout.columns], device=self.sequence.device)
        return self.resampler.up(tokens, self.layout, self.fine, first, stop).to(self.noise.dtype)

    def close(self) -> None:
        """Frees the cache."""
        self.sequence.close()


def sharper(laws: Tensor) -> Tensor:
    """Laws [N, V] to the power of SHARPNESS, normalised."""
    return torch.softmax(SHARPNESS * laws.clamp(min=1e-12).log(), -1)


class Enlarged:
    """Laws of the tokens of a sequence, from its picture at the model's smallest size.

    The small picture is drawn a row at a time, when the first token under that row is asked for; what is there by then, drafts included,
    first takes the place of the small rows above. So it goes on with what was really drawn, and a law looks at nothing but tokens before
    those that it is for, which is what verification needs. A law that was given stays. Laws are sharpened.
    """

    def __init__(self, sequence: Sequence, noise: Noise):
        """Raises NotSupported where the sequence has no smaller size."""
        self.sequence = sequence
        self.coarser = Coarser(sequence, noise, scales_of(sequence, "init = up-sampled")[0])
        self.laws: list[Tensor] = []  # [N, V] by small row
        self._counted = 0

    def law(self, position: int, tokens: Tensor, iteration: int) -> Tensor:
        """The law [V] of a position; tokens : int64 [k], the drafts right behind the committed tokens."""
        coarse, fine = self.coarser.layout, self.sequence.layout
        row = position // fine.columns * coarse.rows // fine.rows
        while len(self.laws) <= row:
            self._next(tokens, iteration)
        return self.laws[row][position - fine_rows(coarse, fine, row, row + 1)[0] * fine.columns]

    def _next(self, tokens: Tensor, iteration: int) -> None:
        """A row more of the small picture."""
        coarse, fine, row = self.coarser.layout, self.sequence.layout, len(self.laws)
        known = torch.cat([torch.tensor(self.sequence.tokens, dtype=torch.int64, device=tokens.device), tokens])
        if row and len(known) >= fine_rows(coarse, fine, row, row + 1)[0] * fine.columns:
            self.coarser.follow(known, row - 1, row)
        self.coarser.draft(row + 1, iteration)
        self.laws.append(sharper(self.coarser.laws(row, row + 1)))

    def counted(self) -> int:
        """The passes at the smaller size since the last call."""
        found, self._counted = self.coarser.passes - self._counted, self.coarser.passes
        return found

    def close(self) -> None:
        """Frees the cache."""
        self.coarser.close()


def scales_of(sequence: Sequence, wanted: str) -> tuple[int, ...]:
    """The smaller sizes of a sequence's model, ascending; raises NotSupported where there is none.

    wanted: what asks for them, as the beginning of the sentence
    """
    if not sequence.scales:
        raise NotSupported(
            f"{wanted} drafts at a smaller size, and this model has none below this one. Choose a larger size or another way."
        )
    return sequence.scales

"""The window of the Jacobi methods: its knobs, and tokens for empty slots, each with the distribution it was drawn from."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import Knob, Rows, Sequence
from engine.decoding.scales import EnlargedPicture
from engine.noise import INITIAL, Noise
from engine.sampling import draw, draw_gumbel

WINDOW = Knob("window", "W", 16, 1, 256, 1, "log", "Tokens per pass: the pending token and the drafts after it.")
INIT = Knob(
    "init", "", "sample left", choices=("random", "repeat left", "repeat above", "sample left", "sample above", "up-sampled"),
    help="How new window slots are filled: uniformly, with a neighbour's token, from a neighbour's distribution, or by "
    "up-sampling the same picture, generated at the model's smallest size one row ahead, or written first by the model itself.",
    label="First guesses",
    words={
        "repeat left": "copied from the left", "repeat above": "copied from above", "sample left": "drawn as on the left",
        "sample above": "drawn as above", "up-sampled": "from a small picture",
    },
)  # fmt: skip


class Initializer:
    """Fills window slots. Keeps the newest passes, because "sample" draws from the distribution of a neighbouring position."""

    def __init__(self, sequence: Sequence, noise: Noise):
        self.sequence, self.noise = sequence, noise
        self.passes: list[tuple[int, int, Rows]] = []  # first position, one past the last, rows; newest first
        self.enlarged: EnlargedPicture | None = None  # the picture at a smaller size, created on first use

    def observe(self, start: int, rows: Rows) -> None:
        """Keeps a pass whose row i is the distribution of position start+i. Older passes are kept only for positions that newer ones lack,
        and only as far back as a neighbour can be, to save memory."""
        back, end, older = start - self.sequence.layout.reach, start + rows.count, []
        for each in self.passes:
            first, last, rows_before = each
            if first < start and last > back:
                older.append(each if last <= start or last > end else (first, start, rows_before))
        self.passes = [(start, end, rows), *older]

    def fill(
        self, tokens: Tensor, draft_probs: Tensor | None, size: int, init: str, iteration: int, seeded: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Extends a window to `size` tokens; returns tokens [size] and distributions [size, V] (of new slots only if `draft_probs` is
        None).

        tokens : int64 [k], at positions length .. length+k-1; draft_probs : [k, V], or None if the method keeps none
        seeded : draw by Gumbel-argmax with the position's noise, so that the draft can agree with `match seed`
        Each new token comes with the distribution it was drawn from.
        """
        count = tokens.shape[0]  # `len` of a tensor is a slow Python function
        start, missing = self.sequence.length + count, size - count
        if missing <= 0:
            return tokens, draft_probs
        new = self._initial_probs(start, missing, tokens, init, iteration)
        if seeded:
            new_tokens = draw_gumbel(new.log(), self.noise.gumbel(start, missing))
        else:
            new_tokens = draw(new, self.noise.uniform(INITIAL, start, missing, iteration))
        new = new.expand(missing, -1)
        return torch.cat([tokens, new_tokens]), new if draft_probs is None else torch.cat([draft_probs, new])

    def _initial_probs(self, start: int, missing: int, tokens: Tensor, init: str, iteration: int) -> Tensor:
        """The distributions of the empty slots [missing, V], or [1, V] if all of them have the same."""
        if init == "sample left" and all(self.sequence.layout.left(position) is not None for position in range(start, start + missing)):
            # the newest token's distribution: nearer neighbours are empty themselves
            return self._probs_of_slot(start, start, tokens, init, iteration)[None]
        return torch.stack([self._probs_of_slot(position, start, tokens, init, iteration) for position in range(start, start + missing)])

    def _probs_of_slot(self, position: int, start: int, tokens: Tensor, init: str, iteration: int) -> Tensor:
        """The distribution [V] of one empty slot; uniform where there is no neighbour."""
        layout, v = self.sequence.layout, self.sequence.vocabulary
        neighbour = layout.above(position) if init.endswith("above") else layout.left(position)
        if init == "up-sampled" and not layout.small:
            self.enlarged = self.enlarged or EnlargedPicture(self.sequence, self.noise)
            return self.enlarged.probs(position, tokens)
        if init == "up-sampled":  # the token below it in the small picture; in the small picture itself, a draw as on the left
            under = layout.under(position)
            neighbour, init = (neighbour, "sample left") if under is None else (under, init)
        if init == "random" or neighbour is None or start == 0:
            return torch.full((v,), 1.0 / v, device=self.sequence.device, dtype=self.noise.dtype)
        known = min(neighbour, start - 1)  # if the neighbour is itself empty, use the newest token
        if init.startswith("sample"):
            return self._newest_probs(known)
        n = self.sequence.length
        token = tokens[known - n] if known >= n else self.sequence.tokens[known]
        row = torch.zeros(v, device=self.sequence.device, dtype=self.noise.dtype)
        row[token] = 1.0
        return row

    def take_pass_count(self) -> int:
        """The number of passes at a smaller size since the last call."""
        return self.enlarged.take_pass_count() if self.enlarged else 0

    def close(self) -> None:
        """Frees the cache of the smaller picture."""
        if self.enlarged:
            self.enlarged.close()

    def _newest_probs(self, position: int) -> Tensor:
        """The newest distribution of a position; uniform if it was never computed or is no longer kept."""
        for first, end, rows in self.passes:
            if first <= position < end:
                return rows.probs(position - first, position - first + 1)[0]
        v = self.sequence.vocabulary
        return torch.full((v,), 1.0 / v, device=self.sequence.device, dtype=self.noise.dtype)

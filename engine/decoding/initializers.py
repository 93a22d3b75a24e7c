"""The window that the Jacobi family shares: its knobs, and how empty slots are filled, each with the law it was drawn from."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import Knob, Rows, Sequence
from engine.decoding.scales import Enlarged
from engine.noise import INITIAL, Noise
from engine.sampling import draw, draw_gumbel

WINDOW = Knob("window", "W", 16, 1, 256, 1, "log", "Tokens in a pass: the pending one and the drafts behind it.")
INIT = Knob(
    "init", "", "sample left", choices=("random", "repeat left", "repeat above", "sample left", "sample above", "up-sampled"),
    help="How new window slots are filled: uniformly, with a neighbour's token, by a draw from a neighbour's law, or by a draw from what "
    "the same picture at the model's smallest size, drawn a row ahead, says of them.",
)  # fmt: skip


class Initializer:
    """Fills window slots and remembers the newest passes, because "sample" draws from the law of a neighbouring position."""

    def __init__(self, sequence: Sequence, noise: Noise):
        self.sequence, self.noise = sequence, noise
        self.passes: list[tuple[int, int, Rows]] = []  # first position, one past the last, rows; newest first
        self.enlarged: Enlarged | None = None  # the picture at a smaller size, once somebody asks for it

    def saw(self, start: int, rows: Rows) -> None:
        """Remembers a pass whose row i is the law of position start+i."""
        count = rows.logits.shape[1]
        back = start - self.sequence.layout.reach
        self.passes = [(start, start + count, rows), *(x for x in self.passes if x[1] > back and x[0] < start)]

    def fill(self, tokens: Tensor, laws: Tensor | None, size: int, init: str, iteration: int, seeded: bool) -> tuple[Tensor, Tensor | None]:
        """Extends a window to `size` tokens; each new one comes with its true law.

        tokens : int64 [k], at positions length .. length+k-1; laws : [k, V], or None where the method keeps none.
        seeded : draw by Gumbel-argmax under the position's own noise, so that `match seed` can agree with the draft.
        Returns tokens [size] and the laws [size, V] (of the new slots only, if laws is None).
        """
        start, missing = self.sequence.length + len(tokens), size - len(tokens)
        if missing <= 0:
            return tokens, laws
        new = torch.stack([self._law(position, start, tokens, init, iteration) for position in range(start, size + self.sequence.length)])
        if seeded:
            drawn = draw_gumbel(new.log(), self.noise.gumbel(start, missing))
        else:
            drawn = draw(new, self.noise.uniform(INITIAL, start, missing, iteration))
        return torch.cat([tokens, drawn]), new if laws is None else torch.cat([laws, new])

    def _law(self, position: int, start: int, tokens: Tensor, init: str, iteration: int) -> Tensor:
        """The law [V] of one empty slot; uniform where there is no neighbour."""
        layout, v = self.sequence.layout, self.sequence.vocabulary
        if init == "up-sampled":
            self.enlarged = self.enlarged or Enlarged(self.sequence, self.noise)
            return self.enlarged.law(position, tokens, iteration)
        neighbour = layout.above(position) if init.endswith("above") else layout.left(position)
        if init == "random" or neighbour is None or start == 0:
            return torch.full((v,), 1.0 / v, device=self.sequence.device, dtype=self.noise.dtype)
        known = min(neighbour, start - 1)  # a neighbour that is itself empty: the newest token instead
        if init.startswith("sample"):
            return self._seen(known)
        n = self.sequence.length
        token = tokens[known - n] if known >= n else self.sequence.tokens[known]
        row = torch.zeros(v, device=self.sequence.device, dtype=self.noise.dtype)
        row[token] = 1.0
        return row

    def counted(self) -> int:
        """The passes at a smaller size since the last call."""
        return self.enlarged.counted() if self.enlarged else 0

    def close(self) -> None:
        """Frees the cache of the smaller picture."""
        if self.enlarged:
            self.enlarged.close()

    def _seen(self, position: int) -> Tensor:
        """The newest law of a position; uniform if it was never computed or is forgotten."""
        for first, end, rows in self.passes:
            if first <= position < end:
                return rows.law(position - first, position - first + 1)[0]
        v = self.sequence.vocabulary
        return torch.full((v,), 1.0 / v, device=self.sequence.device, dtype=self.noise.dtype)

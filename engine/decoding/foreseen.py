"""Window slots filled by row and column heads.

Paper: SSD, Xiang et al., arXiv 2606.20543. The heads are engine/drafters/spatial_heads.py.
"""

from __future__ import annotations

from torch import Tensor

from engine.core import Knobs, Rows, Sequence
from engine.decoding.initializers import Initializer
from engine.drafters.spatial_heads import SpatialGuess
from engine.noise import Noise

BOTH = "rows and columns"  # the directions that heads read; or one of the two


class HeadInitializer(Initializer):
    """Fills window slots from the heads. `knobs.foresee` selects the directions that they read."""

    def __init__(self, sequence: Sequence, noise: Noise, heads: SpatialGuess, knobs: Knobs):
        super().__init__(sequence, noise)
        self.heads, self.knobs = heads, knobs

    def observe(self, start: int, rows: Rows) -> None:
        """Keeps a pass and gives it to the heads."""
        super().observe(start, rows)
        self.heads.observe(start, rows)

    def _initial_probs(self, start: int, missing: int, tokens: Tensor, init: str, iteration: int) -> Tensor:
        """The distributions of the empty slots [missing, V]; uniform before the first pass."""
        if not self.sequence.length:
            return super()._initial_probs(start, missing, tokens, init, iteration)
        slots = range(start, start + missing)
        return predicted_probs(self.heads, self.sequence, slots, tokens, self.knobs.foresee).to(self.noise.dtype)


def predicted_probs(heads: SpatialGuess, sequence: Sequence, slots: range, drafts: Tensor, foresee: str) -> Tensor:
    """The distributions [N, V] that the heads predict for slots. drafts : int64 [k], the tokens after the committed ones"""
    rows = foresee != "columns" or slots.start < sequence.layout.reach
    return sequence.probs_after(heads.guess(slots, drafts, rows, foresee != "rows"), [])

"""Draws of a chain of drafts under every mask of a grammar at once.

A device draws for every position and every mask, so that the host reads all tokens in one transfer, with the verdict of the pass, and
follows the path that the grammar allows. A draft's own distribution is the one under the mask on that path.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.core import Sequence
from engine.sampling import draw, draw_gumbel


@dataclass
class MaskedDraws:
    """Draws for k positions under M masks.

    tokens : int64 [k, M]; probs : [k, M, V], None: the tokens were chosen; on_host : the tokens, once they were read
    """

    tokens: Tensor
    probs: Tensor | None
    on_host: list[list[int]] = field(default_factory=list)

    def take(self, numbers: list[int]) -> None:
        """Takes the tokens that were read, in order."""
        masks = self.tokens.shape[1]
        self.on_host = [numbers[i : i + masks] for i in range(0, len(numbers), masks)]

    def follow(self, sequence: Sequence, path: list[int], first: int, stop: int) -> tuple[list[int], Tensor | None]:
        """The draws of positions first..stop-1 after a hypothetical path: tokens and distributions [stop - first, V], None if chosen."""
        if not self.on_host:
            self.on_host = self.tokens.tolist()
        masks, path = [], list(path)
        for row in self.on_host[first:stop]:
            masks.append(sequence.mask_index(path))
            path.append(row[masks[-1]])
        tokens = path[len(path) - len(masks) :]
        if self.probs is None:
            return tokens, None
        rows = [self.probs[first + i, mask] for i, mask in enumerate(masks)]
        return tokens, torch.stack(rows) if rows else self.probs[:0, 0]


def draw_under_masks(probs: Tensor, u: Tensor, gumbel: Tensor | None) -> MaskedDraws:
    """One draw for every position and mask from distributions [k, M, V]. u : [k] in (0, 1); gumbel : [k, V] instead of u, or None"""
    if gumbel is not None:
        return MaskedDraws(draw_gumbel(probs.log(), gumbel[:, None]), probs)
    tokens = draw(probs.flatten(0, 1), u[:, None].expand(-1, probs.shape[1]).flatten())
    return MaskedDraws(tokens.view(probs.shape[:2]), probs)

"""Batches for the networks that look at clouds: most of the time goes into drawing clouds, so each is used several times.

A group of clouds is drawn and turned into features, then shuffled and used PASSES times before the next group is drawn. The groups are
large, and no cloud ever comes back, so a network does not learn them by heart. A batch is a function of the step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

GROUP, CHUNK, PASSES, BATCH = 2048, 64, 4, 128
STEPS = GROUP * PASSES // BATCH  # for each group


class Dataset:
    """`draw(number, count)` gives features [count, ...] and answers [count], a function of the number alone."""

    def __init__(self, draw: Callable[[int, int], tuple[Tensor, Tensor]]):
        self.draw = draw
        self._group = -1
        self._features, self._answers = torch.empty(0), torch.empty(0)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Returns features [BATCH, ...] and answers [BATCH] of a step."""
        group, place = divmod(step, STEPS)
        if group != self._group:
            drawn = [self.draw(group * (GROUP // CHUNK) + i, CHUNK) for i in range(GROUP // CHUNK)]
            self._features, self._answers = (torch.cat(parts) for parts in zip(*drawn, strict=True))
            self._group = group
        order = torch.cat([torch.randperm(GROUP, generator=torch.Generator().manual_seed(group * PASSES + i)) for i in range(PASSES)])
        mine = order[place * BATCH : (place + 1) * BATCH]
        return self._features[mine], self._answers[mine]

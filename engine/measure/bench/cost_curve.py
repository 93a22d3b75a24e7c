"""The cost of a pass by its number of rows."""

from __future__ import annotations

import time

import numpy as np
import torch

from engine.core import Backbone, Draft, Prompt

WIDTHS = (1, 2, 4, 8, 16, 32, 64)


@torch.inference_mode()
def cost_curve(backbone: Backbone, prompt: str = "a cat", repeats: int = 9) -> dict[int, float]:
    """Returns milliseconds a pass by its number of rows (the pending token and W-1 drafts), the median of `repeats`."""
    sequence = backbone.start(Prompt(prompt))
    found = {}
    for width in WIDTHS:
        draft = Draft(torch.zeros(width - 1, dtype=torch.int64))
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            sequence.forward(draft)
            times.append(time.perf_counter() - start)
        found[width] = round(1000 * float(np.median(times)), 3)
    return found

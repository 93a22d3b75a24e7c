"""The model's distribution at every position of a finished picture: the most probable tokens, and the committed token's probability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.core import Draft
from engine.run import Run

TOP = 5  # tokens per position
LARGEST = 2**27  # maximum probabilities in one pass; larger pictures get no Odds


@dataclass(frozen=True)
class Odds:
    """tokens : int32 [positions, TOP], most probable first; p : float32, likewise; drawn : float32 [positions], probability of the
    committed token"""

    tokens: np.ndarray
    p: np.ndarray
    drawn: np.ndarray


@torch.inference_mode()
def odds(run: Run) -> Odds | None:
    """Odds of a finished run, from one pass over all its tokens. None if the run is not finished, or if the pass would be too large.

    p is the distribution that plain decoding draws from (guided and warped), given the tokens at smaller positions. A method that commits
    in another order drew from a distribution given other tokens.
    """
    count = len(run.tokens)
    if not run.finished or not count or count * run.backbone.vocabulary > LARGEST:
        return None
    ordered = torch.tensor(run.in_order, dtype=torch.int64)
    sequence = run.backbone.start(run.prompt)
    try:
        p = sequence.forward(Draft(ordered[:-1])).p
        top = p.topk(min(TOP, p.shape[-1]), -1)
        drawn = p.gather(1, ordered.to(p.device)[:, None]).squeeze(1)
        return Odds(top.indices.cpu().numpy().astype(np.int32), top.values.float().cpu().numpy(), drawn.float().cpu().numpy())
    finally:
        sequence.close()

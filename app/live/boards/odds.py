"""The model's distribution at every place of a finished picture: the most probable tokens, and the probability of the drawn one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from engine.core import Draft
from engine.run import Run

TOP = 5  # tokens of a place
LARGEST = 2**27  # numbers of a pass's distributions; a longer picture has none


@dataclass(frozen=True)
class Odds:
    """tokens : int32 [positions, TOP], most probable first; p : float32, theirs; drawn : float32 [positions], of the committed token"""

    tokens: np.ndarray
    p: np.ndarray
    drawn: np.ndarray


@torch.inference_mode()
def odds(run: Run) -> Odds | None:
    """One pass over all tokens of a finished run. None if the run is not finished, or if the pass would be too large.

    p is the distribution that plain decoding draws from (guided and warped) after the tokens at smaller positions. A method that commits in
    another order has drawn from a distribution that saw other tokens.
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

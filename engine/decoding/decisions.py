"""Records of the distributions that decided the committed tokens of a pass, for the lens of the studio and `trace.npz`.

They are made between the passes, outside the clock of a run, from distributions that exist anyway.
Drafts after the first refusal are left out: nothing was decided about them, and a later pass examines their positions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.trace import DecisionTrace

CANDIDATES = 16  # per token
FIRST = 2.0  # above every probability: sorts before all other candidates


def decisions(
    p: Tensor, last: int | None, drafts: Tensor | None = None, q: Tensor | None = None, coins: Tensor | None = None
) -> DecisionTrace:  # fmt: skip
    """The decisions on k committed tokens. All tensors are on the host.

    p : [k, V], the model's distributions; last : the token after the accepted drafts, None if the sequence was cut before it
    drafts : int64 [m], m <= k; q : [c, V], c <= m, the distributions they were drawn from, None = not known
    coins : float64 [m]
    """
    p, q = p.numpy(), np.empty((0, p.shape[-1]), np.float32) if q is None else q.numpy()  # numpy starts a small operation faster
    k, m, c = len(p), 0 if drafts is None else len(drafts), len(q)
    key, draft = np.concatenate([np.maximum(p[:c], q), p[c:]]), np.full(k, -1, np.int32)
    coin, mass = np.full((2, k), np.nan, np.float32)
    mass[:c] = np.maximum(p[:c] - q, 0).sum(-1)
    if m:
        draft[:m] = drafts.numpy()
        key[np.arange(m), draft[:m]] = FIRST
    if last is not None:
        key[k - 1, last] = FIRST
    if coins is not None:
        coin[:m] = coins.numpy()
    tokens = torch.from_numpy(key).topk(min(CANDIDATES, key.shape[-1]), -1).indices.numpy()
    rows, under_q = np.arange(k)[:, None], np.full(tokens.shape, np.nan, np.float32)
    under_q[:c] = q[rows[:c], tokens[:c]]
    return DecisionTrace(tokens.astype(np.int32), p[rows, tokens].astype(np.float32), under_q, draft, coin, mass)

"""Records of the distributions that decided the committed tokens of a pass, for the lens of the studio and `trace.npz`.

They are made between the passes, outside the clock of a run, from distributions that exist anyway, without a read by the host.
Drafts after the first refusal are left out: nothing was decided about them, and a later pass examines their positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.trace import DecisionTrace

CANDIDATES = 16  # per token
FIRST = 2.0  # above every probability: sorts before all other candidates


def decisions(
    p: Tensor, last: int | None, drafts: Tensor | None = None, q: Tensor | None = None, coins: Tensor | None = None
) -> DecisionTrace:  # fmt: skip
    """The decisions on k committed tokens.

    p : [k, V], the model's distributions; last : the token after the accepted drafts, None if the sequence was cut before it
    drafts : int64 [m], m <= k; q : [c, V], c <= m, the distributions they were drawn from, None = not known
    coins : float64 [m] on the host
    """
    k, m, c = len(p), 0 if drafts is None else len(drafts), 0 if q is None else len(q)
    key = torch.maximum(p, q) if c == k else p.clone()
    if 0 < c < k:
        torch.maximum(key[:c], q, out=key[:c])
    if m:
        drafts = drafts.to(p.device)
        key[:m].scatter_(1, drafts[:, None], FIRST)
    if last is not None:
        key[k - 1, last] = FIRST
    tokens = key.topk(min(CANDIDATES, p.shape[-1]), -1).indices
    draft, coin, mass = tokens.new_full((k,), -1, dtype=torch.int32), torch.full((k,), torch.nan), p.new_full((k,), torch.nan)
    under_q = p.new_full(tokens.shape, torch.nan)
    if m:
        draft[:m] = drafts
    if c:
        under_q[:c], mass[:c] = q.gather(1, tokens[:c]), (p[:c] - q).clamp_(min=0).sum(-1)
    if coins is not None:
        coin[:m] = coins
    return DecisionTrace(tokens.int(), p.gather(1, tokens).float(), under_q.float(), draft, coin, mass.float())

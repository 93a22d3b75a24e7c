"""A pass of a wavefront: the next token of every row that grows, each row some tokens behind the row above (ZipAR, arXiv 2412.04062)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Rows, Sequence

WHOLE = 256  # the window that waits for the whole row above, whatever its length


def lead(window: float, columns: int) -> int:
    """How many tokens the row above needs before a row may begin, 1..columns."""
    return columns if window >= WHOLE else min(columns, int(window))


def predict(sequence: Sequence, positions: list[int], newest_above: list[int]) -> tuple[Rows, Tensor]:
    """One pass that predicts `positions`, ascending, at most one a row of the picture. Returns its rows, and which of them predicts which
    position, int64 [N].

    Behind most of them the token to the left is pending. The row that begins may have none: there a placeholder stands, which no other
    sees and which is never committed.

    newest_above : the newest token of the row above the one that begins, [1]; looked at only if one does
    """
    inputs = sequence.pending
    before = [position - 1 for position in positions]
    held = [position for position in before if position not in inputs]
    draft = NO_DRAFT
    if held:
        draft = Draft(torch.tensor(newest_above), parents=torch.full((len(held),), -1), positions=torch.tensor(held))
    rows = sequence.forward(draft)
    index = [[*inputs, *held].index(position) for position in before]
    return rows, torch.tensor(index, device=sequence.device)

"""A pass of a wavefront: the next token of every active row; each row lags some tokens behind the row above (ZipAR, arXiv 2412.04062)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Draft, Rows, Sequence

WHOLE = 256  # the window that waits for the whole row above, whatever its length


def lead(window: float, columns: int) -> int:
    """The number of tokens that the row above needs before a row may begin, 1..columns."""
    return columns if window >= WHOLE else min(columns, int(window))


def predict(sequence: Sequence, positions: list[int], newest_above: list[int]) -> tuple[Rows, Tensor]:
    """One pass that predicts `positions`, ascending, at most one per row of the picture. Returns its rows, and for each position the index
    of the row that predicts it, int64 [N].

    Most positions follow a pending token to their left. A row that begins may have none: then a placeholder is the input, which no
    other token attends to and which is never committed.

    newest_above : the newest token of the row above a beginning row, [1]; used only if a row begins
    """
    inputs = sequence.pending
    before = [position - 1 for position in positions]
    placeholders = [position for position in before if position not in inputs]
    draft = NO_DRAFT
    if placeholders:
        draft = Draft(torch.tensor(newest_above), parents=torch.full((len(placeholders),), -1), positions=torch.tensor(placeholders))
    rows = sequence.forward(draft)
    index = [[*inputs, *placeholders].index(position) for position in before]
    return rows, torch.tensor(index, device=sequence.device)

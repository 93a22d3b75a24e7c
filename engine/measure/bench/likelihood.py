"""The log probability of a finished picture under the model, in one pass: what inexact decoding costs."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import Backbone, Draft, Prompt


@torch.inference_mode()
def log_probabilities(backbone: Backbone, prompt: Prompt, tokens: list[int], positions: list[int]) -> Tensor:
    """Returns log p of every token given all tokens at smaller positions, [N] in order of position, in nats.

    tokens, positions : as a Run holds them, in any order; together the first N positions. p is the sampling distribution (guided and
    warped), so a token that plain decoding could never draw has -inf.
    """
    ordered = [token for _, token in sorted(zip(positions, tokens, strict=True))]
    assert sorted(positions) == list(range(len(ordered))), "the tokens leave a gap"
    sequence = backbone.start(prompt)
    try:
        rows = sequence.forward(Draft(torch.tensor(ordered[:-1], dtype=torch.int64)))
        chosen = torch.tensor(ordered, device=sequence.device)[:, None]
        return torch.log_softmax(rows.scores, -1).gather(1, chosen).squeeze(1)
    finally:
        sequence.close()

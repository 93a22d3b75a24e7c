"""Log probability of a finished picture under the model, in one pass: it shows the cost of inexact decoding."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import Backbone, Draft, Prompt


@torch.inference_mode()
def log_probabilities(backbone: Backbone, prompt: Prompt, tokens: list[int], positions: list[int]) -> Tensor:
    """Returns log p of every token conditioned on all tokens at smaller positions, [N] in order of position, in nats.

    tokens, positions : of a Run, in any order; they cover the first N positions. p is the sampling distribution (guided and
    warped), so a token that plain decoding could never draw has -inf.
    """
    ordered = torch.tensor(in_order(tokens, positions), dtype=torch.int64)
    sequence = backbone.start(prompt)
    try:
        log_probs = torch.log_softmax(sequence.forward(Draft(ordered[:-1])).scores, -1)
    finally:
        sequence.close()
    return log_probs.gather(1, ordered.to(log_probs.device)[:, None]).squeeze(1)


def in_order(tokens: list[int], positions: list[int]) -> list[int]:
    """Returns the tokens in order of their positions, which must be 0 to N - 1."""
    assert sorted(positions) == list(range(len(tokens))), "the tokens leave a gap"
    return [token for _, token in sorted(zip(positions, tokens, strict=True))]

"""How probable a model finds a finished picture: the price of decoding that is not exact, in one pass."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import Backbone, Draft, Prompt


@torch.inference_mode()
def log_probabilities(backbone: Backbone, prompt: Prompt, tokens: list[int], positions: list[int]) -> Tensor:
    """log p of every token given all tokens at smaller positions, [N] in order of position, in nats; their mean is the meter.

    tokens, positions : as a Run holds them, in any order, together the first N positions. The law is the one that is sampled from (guided
    and warped), so a token that plain decoding could never draw has -inf.
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

"""First guesses from a small picture that the model has written before (GLM-Image), on pictogram at two sizes.

Pictogram does not write a small picture first, so it gets one: the whole picture of plain decoding, down-sampled to half the size. Under
match seed every method writes that same picture, so the guesses come from a small picture that agrees with it, as a model's own would.

    python -m research.bench.small_first
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch

from engine import generate, load, methods
from engine.core import Backbone, Prompt
from engine.decoding import initializers
from engine.layout import Raster

TEXTS = (
    "a red apple on a blue background", "two cats on a green background", "a rocket on a black background",
    "a sad face on a yellow background", "three stars", "a house and a tree",
)  # fmt: skip
SIDE, WINDOWS = 256, (16, 32, 64)


@dataclass(frozen=True)
class Below:
    """The small picture's distributions in place of those of `EnlargedPicture`. tokens : int64 [rows * columns] of `small`"""

    tokens: torch.Tensor
    small: Raster
    large: Raster
    vocabulary: int

    def probs(self, position: int, drafts: torch.Tensor, iteration: int) -> torch.Tensor:
        """The token at the same place, one-hot [V]."""
        row, column = self.large.place(position)
        at = row * self.small.rows // self.large.rows * self.small.columns + column * self.small.columns // self.large.columns
        return torch.nn.functional.one_hot(self.tokens[at], self.vocabulary).to(torch.float32)

    def take_pass_count(self) -> int:
        """No pass: a model that writes the small picture has written it."""
        return 0

    def close(self) -> None:
        """Has no cache."""


@torch.inference_mode()
def tokens_per_pass(backbone: Backbone, prompt: Prompt) -> dict[tuple[int, str], float]:
    """Tokens per pass of sjdpp under match seed, by window and first guesses."""
    plain = generate(backbone, methods.METHODS["ar"], prompt).finish()
    sequence, out = backbone.start(prompt), {}
    large = sequence.layout
    small = Raster(large.rows // 2, large.columns // 2)
    tokens = sequence.resampler.down(torch.tensor(plain.in_order), large, small, 0, small.rows)
    own = initializers.EnlargedPicture
    for window in WINDOWS:
        for init in ("sample left", "repeat above", "up-sampled"):
            initializers.EnlargedPicture = lambda *_: Below(tokens, small, large, backbone.vocabulary)
            try:
                knobs = {"window": window, "init": init, "verify": "match seed"}
                run = generate(backbone, methods.METHODS["sjdpp"], prompt, knobs).finish()
            finally:
                initializers.EnlargedPicture = own
            assert run.tokens == plain.tokens
            out[window, init] = len(run.tokens) / run.totals["forwards"]
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    backbone = load("pictogram")
    results = [tokens_per_pass(backbone, Prompt(text=text, seed=seed, size=SIDE)) for seed, text in enumerate(TEXTS)]
    for key in results[0]:
        values = [each[key] for each in results]
        print(f"window {key[0]:2d}, {key[1]:12s} {median(values):5.2f} tokens per pass ({min(values):.2f} to {max(values):.2f})")

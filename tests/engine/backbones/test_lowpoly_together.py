"""Decoding several clouds at once gives the tokens of `ar` one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.backbones import lowpoly
from engine.backbones.lowpoly_together import decode_together
from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.run import generate
from tests.research.train import tiny_folders


@pytest.mark.parametrize("grammar", [True, False])
def test_the_tokens_are_those_of_plain_decoding(grammar: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_folders.ship(tmp_path, monkeypatch)
    loaded = lowpoly.load()
    backbone = lowpoly.Lowpoly(loaded.model, loaded.card, loaded.folder, grammar)
    clouds = torch.rand(5, 300, 6, generator=torch.Generator().manual_seed(0)) * 1.9 - 0.95
    sampling = Sampling(0.9, 50, 0.95, temperature_last=True)
    sizes = (4, 24, 8, 2, 6) if grammar else (None, None)
    prompts = [
        Prompt(points=cloud, seed=i, size=size, about=None if i % 2 else 300, sampling=sampling)
        for i, (cloud, size) in enumerate(zip(clouds[: len(sizes)], sizes, strict=True))
    ]
    together = decode_together(backbone, prompts)
    alone = [generate(backbone, METHODS["ar"], prompt).finish().tokens for prompt in prompts]
    assert together == alone
    assert len({len(tokens) for tokens in alone}) > 1 or not grammar  # they end at different places, so rows are moved together

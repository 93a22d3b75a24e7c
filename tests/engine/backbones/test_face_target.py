"""The number of faces that a prompt of a mesh aims at: what the model reads, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from math import log2

import pytest
import torch

from engine.backbones.lowpoly import Lowpoly
from engine.core import Prompt
from engine.errors import BadPrompt, NotSupported
from engine.networks.mesh_decoder import MeshModel
from tests.engine.backbones import tiny

CLOUD = torch.rand(300, 6, generator=torch.Generator().manual_seed(0)) * 1.9 - 0.95


@pytest.mark.parametrize(
    ("size", "about", "level"), [(None, None, 0.0), (None, 300, log2(300) - 4), (64, None, 2.0), (64, 300, log2(300) - 4), (9, 20, 1.0)]
)
def test_the_model_reads_the_target_else_the_limit(size: int | None, about: int | None, level: float) -> None:
    low, prompt = tiny.lowpoly(), Prompt(points=CLOUD, size=size, about=about)
    with torch.inference_mode():
        expected = low.model.read(low.read_points(prompt)[None], torch.tensor([level])).condition[0]
        sequence = low.start(prompt)
    assert torch.equal(sequence.condition, expected)
    assert sequence.grammar.rules.budget == size  # a target is not a limit


def test_an_impossible_target_is_refused() -> None:
    low = tiny.lowpoly()
    untrained = Lowpoly(MeshModel(replace(low.model.settings, budgets=0)), {"families": []})
    for model, about, error, sentence in (
        (low, 0, BadPrompt, "A target of 0 faces is out of range"),
        (low, 10_001, BadPrompt, "Choose 1 to 10,000"),
        (untrained, 300, NotSupported, "not trained to aim at a number of faces"),
    ):
        with pytest.raises(error, match=sentence):
            model.start(Prompt(points=CLOUD, about=about))

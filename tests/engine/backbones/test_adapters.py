"""Every adapter against the loop of its own class, and its refusals: one table of adapters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.core import Draft, Prompt, Sampling
from engine.errors import BadPrompt
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny, tiny_checkpoints, tiny_originals
from tests.engine.backbones.adapters import ADAPTERS, SIDE, TEXTS
from tests.engine.refusals import refuses

GREEDY_CASES = [(name, text, guidance) for name, each in ADAPTERS.items() for text in TEXTS for guidance in each.guidances]
MAKERS = {name: each.backbone for name, each in ADAPTERS.items()} | {
    "llamagen of classes": tiny_originals.llamagen, "llamagen of texts": lambda: tiny_originals.llamagen(True),
    "bpt": tiny_originals.bpt_backbone,
}  # fmt: skip
REFUSED = {name: [Prompt(), Prompt(text="  "), Prompt(text="a", size=77)] for name in ADAPTERS} | {
    "llamagen of classes": [Prompt(), Prompt(label=12), Prompt(label=1, size=77), *map(Prompt, ("a dog", "-1", "9" * 5000))],
    "llamagen of texts": [Prompt(text=""), Prompt(text="  "), Prompt(text="a long prompt")],
    "bpt": [Prompt(text="a chair")],
}
REFUSED["janus"].append(Prompt(text="x" * 99))


@pytest.mark.parametrize(("name", "text", "guidance"), GREEDY_CASES)
def test_greedy_tokens_are_those_of_the_class(name: str, text: str, guidance: float) -> None:
    """With guidance, the negative prompt and row ends, which have no pass."""
    prompt = Prompt(text=text, sampling=Sampling(temperature=0.0, guidance=guidance))
    run = generate(ADAPTERS[name].backbone(), METHODS["ar"], prompt).finish()
    assert run.tokens == ADAPTERS[name].own_tokens(text, guidance)
    assert len(set(run.tokens)) > 2  # a model that repeats one token would prove nothing
    assert run.totals["forwards"] == len(run.tokens) >= SIDE * SIDE


@pytest.mark.parametrize("name", list(ADAPTERS))
def test_prompts_and_guidance_matter(name: str) -> None:
    """Otherwise the comparison above could not fail."""
    guidances = ADAPTERS[name].guidances
    ends = {guidances[0], guidances[-1]}
    outputs = {tuple(ADAPTERS[name].own_tokens(text, guidance)) for text in TEXTS for guidance in ends}
    assert len(outputs) == len(TEXTS) * len(ends)


@pytest.mark.parametrize(("name", "prompt"), [(name, prompt) for name, prompts in REFUSED.items() for prompt in prompts])
def test_bad_prompts_are_refused(name: str, prompt: Prompt) -> None:
    with refuses(BadPrompt):
        MAKERS[name]().start(prompt)


def janus_picture(codes: list[int]) -> Tensor:
    """By the class of Janus, [H, W, 3]."""
    return tiny.janus_model().decode_image_tokens(torch.tensor([codes]))[0]


def emu3_picture(codes: list[int]) -> Tensor:
    """By the class of Emu3, with row ends and the tokens after the last."""
    ids = torch.tensor(tiny_checkpoints.code_ids())[codes].view(4, 4)
    whole = torch.cat([torch.cat([ids, torch.full((4, 1), tiny_checkpoints.ROW)], 1).flatten(), torch.zeros(3, dtype=torch.int64)])
    return tiny_checkpoints.emu3_model().decode_image_tokens(image_tokens=whole[None], height=4, width=4)[0].permute(1, 2, 0)


@pytest.mark.parametrize(("name", "own"), [("janus", janus_picture), ("emu3", emu3_picture)])
def test_whole_pictures_are_those_of_the_class(name: str, own: Callable[[list[int]], Tensor]) -> None:
    codes = list(range(16))
    picture = ADAPTERS[name].backbone().render(codes, codes, True)
    assert np.abs(picture - (own(codes).clamp(-1, 1) + 1).numpy() * 127.5).max() <= 0.51
    assert picture.std() > 1


@pytest.mark.parametrize(("name", "model"), [("emu3", tiny_checkpoints.emu3_model), ("emu35", tiny_checkpoints.emu35_model)])
@torch.inference_mode()
def test_logits_are_those_of_the_class(name: str, model) -> None:
    """Row by row after a chain that crosses row ends, for both prompts."""
    backbone = ADAPTERS[name].backbone()
    chain = [(5 * i + 2) % tiny_checkpoints.CODES for i in range(10)]
    logits = backbone.start(Prompt(text="red apple")).forward(Draft(torch.tensor(chain))).logits
    first = tiny_checkpoints.FIRST_CODE
    codes = tiny_checkpoints.code_ids() if name == "emu3" else list(range(first, first + tiny_checkpoints.CODES))
    ids, end = [codes[code] for code in chain], tiny_checkpoints.ROW
    flat = [*ids[:4], end, *ids[4:8], end, *ids[8:]]
    rows = [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12]  # of the codes; the last of a row is replaced by its end
    for branch, prompt in enumerate(backbone.rows("red apple", backbone.layout)):
        expected = model()(torch.tensor([prompt + flat])).logits[0, len(prompt) - 1 :][:, codes]
        torch.testing.assert_close(logits[branch], expected[rows], atol=1e-5, rtol=0)

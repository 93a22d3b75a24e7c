"""The Emu3 adapter against transformers' own loop, on a tiny random model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.backbones.emu3 import NEGATIVE
from engine.core import NO_DRAFT, Draft, Prompt, Sampling
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny_checkpoints as tiny

SIDE = 4
PROMPTS = ("red apple", "a", "two cats on the green table")


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """A whole model, with the halves that the adapter drops."""
    return tiny.emu3_model()


def own_tokens(model: torch.nn.Module, text: str, guidance: float) -> list[int]:
    """The codes of transformers' loop: rows of codes, each closed by a row end."""
    layout = tiny.emu3().layout
    ids, negative = (torch.tensor([tiny.read(words, layout)]) for words in (text, NEGATIVE))
    start, codes = ids.shape[1], sorted(tiny.code_ids())

    def legal(batch: int, sequence: torch.Tensor) -> list[int]:
        return [tiny.ROW] if (len(sequence) - start) % (SIDE + 1) == SIDE else codes

    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=SIDE * (SIDE + 1), guidance_scale=guidance,
        negative_prompt_ids=negative, negative_prompt_attention_mask=torch.ones_like(negative), prefix_allowed_tokens_fn=legal,
        eos_token_id=None,
    )[0, start:]  # fmt: skip
    rows = found.view(SIDE, SIDE + 1)
    assert (rows[:, -1] == tiny.ROW).all()
    code_of = {i: code for code, i in enumerate(tiny.code_ids())}
    return [code_of[i] for i in rows[:, :-1].flatten().tolist()]


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("guidance", [1.5, 3.0])
def test_greedy_tokens_are_those_of_the_class(model: torch.nn.Module, text: str, guidance: float) -> None:
    """With a negative prompt that is longer (or shorter), row ends and a head over all ids."""
    sampling = Sampling(temperature=0.0, guidance=guidance)
    run = generate(tiny.emu3(), METHODS["ar"], Prompt(text=text, sampling=sampling)).finish()
    assert run.tokens == own_tokens(model, text, guidance)
    assert len(set(run.tokens)) > 4
    assert run.totals["forwards"] == SIDE * SIDE  # row ends have no pass of their own


def test_prompts_and_guidance_matter(model: torch.nn.Module) -> None:
    """Otherwise the comparison above could not fail."""
    assert len({tuple(own_tokens(model, text, guidance)) for text in PROMPTS for guidance in (1.5, 3.0)}) == 6


def test_logits_are_those_of_the_class(model: torch.nn.Module) -> None:
    """Row by row after a chain that crosses row ends, for both prompts."""
    backbone = tiny.emu3()
    chain = [(5 * i + 2) % tiny.CODES for i in range(10)]
    with torch.inference_mode():
        found = backbone.start(Prompt(text="red apple")).forward(Draft(torch.tensor(chain))).logits
    ids = [tiny.code_ids()[code] for code in chain]
    flat = [*ids[:4], tiny.ROW, *ids[4:8], tiny.ROW, *ids[8:]]
    rows = [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12]  # of the codes, where the last of a row gives way to its end
    for branch, text in enumerate(("red apple", NEGATIVE)):
        prompt = tiny.read(text, backbone.layout)
        expected = model(torch.tensor([prompt + flat])).logits[0, len(prompt) - 1 :][:, tiny.code_ids()]
        torch.testing.assert_close(found[branch], expected[rows], atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["jacobi", "sjd", "sjdpp"])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str) -> None:
    prompt = Prompt(text="red apple", seed=7, sampling=Sampling(1.0, 12, 0.95, 3.0))
    plain = generate(tiny.emu3(), METHODS["ar"], prompt).finish()
    run = generate(tiny.emu3(), METHODS[method], prompt, {"window": 6, "verify": "match seed"}).finish()
    assert run.tokens == plain.tokens
    assert run.totals["forwards"] <= plain.totals["forwards"]


def test_whole_pictures_are_those_of_the_class(model: torch.nn.Module) -> None:
    codes = list(range(16))
    ids = torch.tensor(tiny.code_ids())[codes].view(4, 4)
    whole = torch.cat([torch.cat([ids, torch.full((4, 1), tiny.ROW)], 1).flatten(), torch.zeros(3, dtype=torch.int64)])
    expected = model.decode_image_tokens(image_tokens=whole[None], height=4, width=4)[0].permute(1, 2, 0)
    picture = tiny.emu3().render(codes, codes, True)
    assert np.abs(picture - (expected.clamp(-1, 1) + 1).numpy() * 127.5).max() <= 0.51
    assert picture.std() > 1


def test_a_row_end_costs_a_row_and_no_pass() -> None:
    """The token before it brings it along, in a chain and alone, and its place in the cache is kept with it."""
    with torch.inference_mode():
        sequence = tiny.emu3().start(Prompt(text="red"))
        for token in (1, 2, 3):
            sequence.forward(NO_DRAFT)
            sequence.commit([], token)
        sequence.forward(Draft(torch.tensor([4, 5, 6])))
        sequence.commit([0, 1, 2], 7)
    assert sequence.slab.kept == sequence.prefix + 6
    assert sequence.slab.below.kept == sequence.prefix + 7

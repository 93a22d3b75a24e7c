"""The adapter of GLM-Image's autoregressive half: against transformers' own generate, its two pictures, its results for the diffusion
half, and the folders it must refuse."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from engine import generate, methods
from engine.backbones import glm_image
from engine.core import Prompt, Sampling
from engine.errors import MissingWeights, NotSupported
from research.exactness.comparison import compare
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import Mutant
from research.exactness.toy import Toy, enumerate_distribution
from tests.engine.backbones import tiny_glm_image as tiny
from tests.engine.refusals import refuses


def test_places_are_those_of_the_class() -> None:
    """Three axes, for the real sizes: words, 16x16 tokens, 32x32 tokens."""
    model = tiny.model().model
    ids = torch.tensor([[40, 41, 42, 43, tiny.START]])
    prompt, _ = model.get_rope_index(ids, image_grid_thw=torch.tensor([[1, 32, 32], [1, 16, 16]]))
    expected = torch.cat([prompt[:, 0], model._cached_decode_position_ids[0, :, :-1]], 1)
    slots = torch.arange(expected.shape[1])[None]
    assert torch.equal(glm_image.place(slots, torch.tensor([[5]]), glm_image.grids(16, 32))[:, 0], expected)
    assert expected.shape == (3, 5 + 256 + 1024)


def test_the_map_shows_similar_tokens_in_similar_colours() -> None:
    backbone = tiny.glm_image()
    layout = backbone.layout
    assert (layout.rows, layout.columns, layout.factor) == (5, 4, 32)
    picture = backbone.render(list(range(20)), list(range(20)), True)
    assert picture.shape == (160, 128, 3) and picture.std() > 20
    assert (backbone.render(list(range(20)), list(range(20)), False) == picture).all()
    colours, book = backbone.preview.colours[:, 0, 0], backbone.codebook()
    far, near = torch.cdist(book, book), torch.cdist(colours, colours)
    assert torch.corrcoef(torch.stack([far.flatten(), near.flatten()]))[0, 1] > 0.5
    whole = glm_image.layout_of(1024, 16)
    assert (whole.rows, whole.columns) == (8 + 32, 32) and glm_image.layout_of(2048, 16).rows == 4 + 64


# --- two pictures -----------------------------------------------------------------------------------------------------------

PROMPT = Prompt(text="red apple", seed=5)
WAYS = {
    "plain": ("ar", {}),
    "guesses from the small picture": ("sjdpp", {"init": "up-sampled", "verify": "match seed", "window": 6}),
    "wavefront": ("zipar_verified", {"verify": "match seed"}),
    "wavefront that waits": ("zipar", {"window": 256}),
    "tree": ("lookup", {"verify": "match seed"}),
}


def start(way: str, prompt: Prompt = PROMPT, **more: bool):
    """A run of the tiny model."""
    name, knobs = WAYS[way]
    method, preset = methods.find(name)
    return generate(tiny.glm_image(), method, prompt, {**preset, **knobs}, **more)


def test_neighbours_are_those_of_the_rotary_places() -> None:
    layout, places = glm_image.layout_of(1024, 16), glm_image.grids(16, 32)[1:].T.tolist()
    rows, start = [(row, column, 0) for row, column in places[:256]], 16
    rows += [(row - start, column - start, 1) for row, column in places[256:]]
    at = {place: position for position, place in enumerate(rows)}
    for position, (row, column, large) in enumerate(rows):
        assert layout.left(position) == at.get((row, column - 1, large))
        assert layout.above(position) == at.get((row - 1, column, large))
        assert layout.under(position) == (at[row // 2, column // 2, 0] if large else None)
        assert layout.starts[layout.row_of(position)] == at[row, 0, large]
    assert layout.widths == [16] * 16 + [32] * 32 and layout.starts[-1] == 1280


@pytest.mark.parametrize("way", list(WAYS)[1:])
def test_every_way_gives_the_tokens_of_plain_decoding(way: str) -> None:
    for seed in range(3):
        prompt = Prompt(text="red apple", seed=seed, sampling=Sampling(1.0, 2))
        run = start(way, prompt).finish()
        assert run.exact and run.in_order == start("plain", prompt).finish().tokens


@cache
def distribution() -> dict[tuple[int, ...], float]:
    """The probability of every picture of 2 x 2, then 2 x 2 tokens of two codes."""
    backbone = tiny.glm_image(2, 2)
    texts = SimpleNamespace(start=lambda prompt: backbone.start(replace(prompt, text="red apple")))
    with torch.inference_mode():
        return enumerate_distribution(texts, Sampling(1.0))


@pytest.mark.parametrize("mutant", [None, "small picture: said to be uniform"])
def test_guesses_from_the_small_picture_keep_the_distribution(mutant: str | None) -> None:
    backbone, method = tiny.glm_image(2, 2), methods.METHODS["sjdpp"]  # 2 x 2 tokens, then 2 x 2, of two codes
    sampling, counts, count = Sampling(1.0), Counter(), 600
    wrong = Mutant(mutant, MUTANTS[mutant]()) if mutant else None
    with wrong.in_force() if wrong else nullcontext():
        for seed in range(count):
            prompt = Prompt(text="red apple", seed=seed, sampling=sampling)
            counts[tuple(generate(backbone, method, prompt, {"init": "up-sampled", "window": 2}).finish().tokens)] += 1
    assert compare(counts, distribution()).verdict == ("not exact" if mutant else "exact")


# --- for the diffusion half -------------------------------------------------------------------------------------------------


def test_prior_token_ids_are_those_of_the_pipeline() -> None:
    """GlmImagePipeline takes the tokens after the small picture and enlarges their grid twice, by the nearest token."""
    run = start("guesses from the small picture")
    ids = run.prior_token_ids
    whole = torch.tensor(run.tokens)[4:].view(1, 1, 4, 4).float()
    assert ids.dtype == torch.int64 and torch.equal(ids, F.interpolate(whole, scale_factor=2, mode="nearest").long().view(1, -1))
    with refuses(NotSupported, "toy draws its own results"):
        _ = generate(Toy(), methods.METHODS["ar"], Prompt()).prior_token_ids
    run = start("plain")
    next(run)
    run.stop()
    with refuses(NotSupported, "1 of 20 tokens"):
        _ = run.prior_token_ids


@pytest.mark.parametrize("way", WAYS)
def test_hidden_states_are_those_of_generate(way: str) -> None:
    """Of the rows that predict the tokens, whatever the method drafts."""
    run = start(way, Prompt(text="red apple", sampling=Sampling(0)), hidden=True)
    ids, grids = torch.tensor([tiny.read("red apple", 4)]), torch.tensor([[1, 4, 4], [1, 2, 2]])
    output = tiny.model().generate(
        ids, attention_mask=torch.ones_like(ids), image_grid_thw=grids, do_sample=False, max_new_tokens=20, eos_token_id=None,
        prefix_allowed_tokens_fn=lambda batch, ids: list(range(tiny.CODES)), return_dict_in_generate=True, output_hidden_states=True,
    )  # fmt: skip
    theirs = torch.cat([step[-1][:, -1:] for step in output.hidden_states], 1)
    states = run.hidden_states
    assert run.in_order == output.sequences[0, ids.shape[1] :].tolist()
    torch.testing.assert_close(states, theirs, atol=2e-5, rtol=0)
    for refused in (start(way), generate(Toy(), methods.METHODS["ar"], Prompt(), hidden=True)):
        with refuses(NotSupported, "hidden=True"):
            _ = refused.hidden_states


# --- files ------------------------------------------------------------------------------------------------------------------


def test_the_tokenizer_may_lie_beside_the_weights(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "vision_language_encoder")
    shutil.move(folder / "processor", tmp_path / "processor")
    glm_image.load(str(folder), dtype="float32")
    shutil.rmtree(tmp_path / "processor")
    with refuses(MissingWeights, "tokenizer"):
        glm_image.load(str(folder), dtype="float32")

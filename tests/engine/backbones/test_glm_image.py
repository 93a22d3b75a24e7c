"""The adapter of GLM-Image's autoregressive half: against transformers' own generate, and the folders it must refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from engine.backbones import glm_image
from engine.errors import MissingWeights
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


# --- files ------------------------------------------------------------------------------------------------------------------


def test_the_tokenizer_may_lie_beside_the_weights(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "vision_language_encoder")
    shutil.move(folder / "processor", tmp_path / "processor")
    glm_image.load(str(folder), dtype="float32")
    shutil.rmtree(tmp_path / "processor")
    with refuses(MissingWeights, "tokenizer"):
        glm_image.load(str(folder), dtype="float32")

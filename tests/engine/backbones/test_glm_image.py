"""The adapter of GLM-Image's autoregressive half: against transformers' own generate, and the folders it must refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backbones import glm_image
from engine.backbones import load as load_backbone
from engine.core import Prompt, Sampling
from engine.errors import BadPrompt, ForetokenError, MissingWeights, NotSupported
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny_glm_image as tiny

PROMPTS = ("red apple", "a", "two cats on the table")
TOKENS = tiny.SMALL**2 + tiny.COLUMNS**2


def own_tokens(text: str) -> list[int]:
    """What transformers' generate makes of a prompt, among the codes."""
    ids = torch.tensor([tiny.read(text, tiny.COLUMNS)])
    grids = torch.tensor([[1, tiny.COLUMNS, tiny.COLUMNS], [1, tiny.SMALL, tiny.SMALL]])
    found = tiny.model().generate(
        ids, attention_mask=torch.ones_like(ids), image_grid_thw=grids, do_sample=False, max_new_tokens=TOKENS,
        prefix_allowed_tokens_fn=lambda batch, sentence: list(range(tiny.CODES)),
    )  # fmt: skip
    return found[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("text", PROMPTS)
def test_greedy_tokens_are_those_of_the_class(text: str) -> None:
    run = generate(tiny.glm_image(), METHODS["ar"], Prompt(text=text, sampling=Sampling(temperature=0.0))).finish()
    assert run.tokens == own_tokens(text)
    assert len(run.tokens) == TOKENS and len(set(run.tokens)) > 4


def test_places_are_those_of_the_class() -> None:
    """Three axes, for the real sizes: words, 16x16 tokens, 32x32 tokens."""
    model = tiny.model().model
    ids = torch.tensor([[40, 41, 42, 43, tiny.START]])
    prompt, _ = model.get_rope_index(ids, image_grid_thw=torch.tensor([[1, 32, 32], [1, 16, 16]]))
    expected = torch.cat([prompt[:, 0], model._cached_decode_position_ids[0, :, :-1]], 1)
    assert torch.equal(glm_image.places(5, 16, 32), expected)
    assert expected.shape == (3, 5 + 256 + 1024)


@pytest.mark.parametrize("method", ["sjd", "sjdpp", "lookup"])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str) -> None:
    prompt = Prompt(text="red apple", seed=4, sampling=Sampling(1.0, 12, 0.95))
    plain = generate(tiny.glm_image(), METHODS["ar"], prompt).finish()
    knobs = {"verify": "match seed"} | ({"window": 6} if method != "lookup" else {})
    assert generate(tiny.glm_image(), METHODS[method], prompt, knobs).finish().tokens == plain.tokens


def test_the_map_shows_similar_tokens_in_similar_colours() -> None:
    found = tiny.glm_image()
    layout = found.layout
    assert (layout.rows, layout.columns, layout.factor) == (5, 4, 32)
    picture = found.render(list(range(20)), list(range(20)), True)
    assert picture.shape == (160, 128, 3) and picture.std() > 20
    assert (found.render(list(range(20)), list(range(20)), False) == picture).all()
    colours, book = found.preview.colours[:, 0, 0], found.codebook()
    far, near = torch.cdist(book, book), torch.cdist(colours, colours)
    assert torch.corrcoef(torch.stack([far.flatten(), near.flatten()]))[0, 1] > 0.5
    whole = glm_image.layout_of(1024, 16)
    assert (whole.rows, whole.columns) == (8 + 32, 32) and glm_image.layout_of(2048, 16).rows == 4 + 64


@pytest.mark.parametrize("prompt", [Prompt(), Prompt(text=" "), Prompt(text="a", size=77)])
def test_bad_prompts_are_refused(prompt: Prompt) -> None:
    with pytest.raises(BadPrompt) as caught:
        tiny.glm_image().start(prompt)
    one_message(caught.value)


# --- files ------------------------------------------------------------------------------------------------------------------


def one_message(error: ForetokenError) -> None:
    """Asserts that a message is a line a person can read."""
    text = str(error)
    assert "\n" not in text and text.endswith(".") and 20 < len(text) < 600, text


def refused(folder: Path, kind: type[ForetokenError] = MissingWeights) -> str:
    """The sentence that a folder is refused with."""
    with pytest.raises(kind) as caught:
        glm_image.load(str(folder), dtype="float32")
    one_message(caught.value)
    return str(caught.value)


def test_a_folder_loads_with_its_settings(tmp_path: Path) -> None:
    found = load_backbone(tiny.save(tmp_path), dtype="float32")
    assert found.name == "glm_image" and found.card["licence"] == "MIT" and found.sizes == [1024, 2048]
    assert found.sampling == Sampling(temperature=0.9, top_p=0.75)
    first = tiny.FIRST_WORD
    assert found.read("red apple", 32) == [first + i for i in (2, 3, 4, 0, 9, 9, 1, 0, 8, 8, 1)] + [tiny.START]


def test_the_tokenizer_may_lie_beside_the_weights(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "vision_language_encoder")
    shutil.move(folder / "processor", tmp_path / "processor")
    glm_image.load(str(folder), dtype="float32")
    shutil.rmtree(tmp_path / "processor")
    assert "tokenizer" in refused(folder)


def test_a_tokenizer_without_its_marks_is_refused(tmp_path: Path) -> None:
    path = tiny.save(tmp_path) / "processor" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in settings.items() if "bos_token" not in name}))
    assert "The tokenizer has no " in refused(tmp_path)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    path = tiny.save(tmp_path) / "model.safetensors"
    tensors = load_file(path)
    save_file({name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}, path, {"format": "pt"})
    assert "lm_head.weight" in refused(tmp_path)
    path.write_bytes(path.read_bytes()[:3000])
    refused(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "glm4"}')
    assert "glm4" in refused(tmp_path, NotSupported)
    with pytest.raises(MissingWeights) as caught:
        glm_image.load(None)
    one_message(caught.value)


def test_too_little_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glm_image.memory, "free", lambda device: 10**5)
    assert refused(tiny.save(tmp_path), ForetokenError).startswith("glm_image needs ")

"""The recipe of pictogram's tokenizer: it learns, ships weights with its numbers, and continues from shipped ones; tiny, in seconds."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch

from engine.backbones import pictogram
from engine.networks.vq import PictureTokenizer
from research.train import loop
from research.train import pictogram_tokenizer as recipe
from research.train.pictogram_tokenizer import TokenizerOptions
from research.worlds import emoji_scenes
from tests.engine.font import NEEDS_FONT

pytestmark = NEEDS_FONT


@pytest.fixture
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the recipe reads and writes; its tokenizers are tiny."""
    monkeypatch.setattr(pictogram, "FOLDER", tmp_path / "pictogram")
    monkeypatch.setattr(pictogram.load_tokenizer, "__defaults__", (tmp_path / "pictogram",))
    monkeypatch.setattr(recipe, "PictureTokenizer", partial(PictureTokenizer, decoder=8, blocks=1))
    monkeypatch.setattr(recipe, "HELD_OUT_SEEDS", range(2))
    monkeypatch.setitem(recipe.PRESETS, "cpu", {"batch": 2, "minutes": 0.05, "rate": 1e-3, "lessons": "first"})
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    return tmp_path / "pictogram"


def test_it_learns_ships_and_goes_on(shipped_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.main(TokenizerOptions(fresh=True))
    first = pictogram.read_card(shipped_folder)["tokenizer"]
    assert first["lessons"] == "first" and {"psnr_64", "psnr_128", "psnr_256", "psnr_preview_128"} <= first["held_out"].keys()
    (loop.CHECKPOINTS / "pictogram-tokenizer.pt").unlink()
    recipe.main(TokenizerOptions(lessons="world"))
    assert pictogram.read_card(shipped_folder)["tokenizer"] == first and "learned the lessons 'first'" in capsys.readouterr().out
    recipe.main(TokenizerOptions(lessons="world", export=True))
    again = pictogram.read_card(shipped_folder)["tokenizer"]
    assert again["steps"] > first["steps"] and again["lessons"] == "world"


def test_decoders_learn_while_the_tokens_stay(shipped_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe.main(TokenizerOptions(fresh=True))
    before, pictures = pictogram.load_tokenizer(), torch.rand(2, 3, 64, 64) * 2 - 1
    recipe.main(TokenizerOptions(decoders=True))
    recipe.main(TokenizerOptions(decoders=True))
    recipe.main(TokenizerOptions(decoders=True, export=True))
    after = pictogram.load_tokenizer()
    assert torch.equal(before.encode(pictures), after.encode(pictures))
    assert not torch.equal(before.decode(before.encode(pictures)), after.decode(after.encode(pictures)))
    assert capsys.readouterr().out.count("pictogram-tokenizer-decoders: resumed") == 2
    recipe.main(TokenizerOptions(fresh=True))
    recipe.main(TokenizerOptions(export=True))  # another encoder: the old decoders' training is useless for it
    recipe.main(TokenizerOptions(decoders=True))
    assert "pictogram-tokenizer-decoders: the checkpoint belongs to other weights" in capsys.readouterr().out


def test_lessons_decide_what_is_drawn() -> None:
    first, world = (recipe.batch(3, 2, "cpu", lessons) for lessons in (emoji_scenes.FIRST, emoji_scenes.WORLD))
    assert first.shape == world.shape and not torch.equal(first, world)


def test_every_step_has_as_many_pixels_and_windows_hold_objects() -> None:
    lessons = emoji_scenes.LESSONS["common"]
    sizes = {tuple(recipe.batch(step, 4, "cpu", lessons).shape) for step in range(24)}
    assert {s[0] * s[2] * s[3] for s in sizes} == {4 * 128**2} and len(sizes) == 2
    scene = next(s for s in (emoji_scenes.make_scene(seed, lessons) for seed in range(100)) if len(s.boxes) == 1)
    picture = emoji_scenes.render(scene, 128)
    plain = emoji_scenes.render(replace(scene, boxes=()), 128)
    changed = (picture != plain).any(-1)
    for seed in range(8):
        window = recipe.crop_object(scene, picture, 64, Random(seed))
        places = [(y, x) for y in range(0, 65, 8) for x in range(0, 65, 8) if (picture[y : y + 64, x : x + 64] == window).all()]
        assert any(changed[y : y + 64, x : x + 64].sum() > 0.6 * changed.sum() for y, x in places)

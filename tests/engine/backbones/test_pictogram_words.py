"""Pictogram's reading of a user's words: emoji, synonyms, and prompts without a known object."""

from __future__ import annotations

import pytest
import torch

from engine.core import NO_DRAFT, Prompt
from engine.errors import BadPrompt
from engine.words.reading import split
from tests.engine.backbones import tiny


def test_emoji_and_synonyms_are_the_words_that_they_mean() -> None:
    model = tiny.pictogram()
    assert model._readable_words(Prompt("two cats on a 🍎")) == model._readable_words(Prompt("two kitties on a apple"))
    assert model._readable_words(Prompt("🍎")) == model._readable_words(Prompt("apple")) == model._readable_words(Prompt("Apple!"))
    assert model._readable_words(Prompt("🐱🐱")) == model._readable_words(Prompt("two cats"))
    assert model._readable_words(Prompt("a crimson 🍎")) == model._readable_words(Prompt("a red apple"))
    assert split("🐶🐱, 🧿") == ["dog", "cat", "🧿"]


def test_unknown_words_have_near_ones_or_none() -> None:
    assert tiny.pictogram().unknown_words("a pear, aple, zzz, cute 🧿") == {
        "pear": ["apple"],
        "aple": ["apple"],
        "zzz": [],
        "cute": [],
        "🧿": [],
    }


def test_a_prompt_without_a_known_object_is_said() -> None:
    model = tiny.pictogram()
    assert model.objects_in("two cats on a apple") == ("cat", "apple") and model.warning("two cats on a apple") == ""
    assert model.warning("a cute flying pear on a zorb") == model.warning("on green")
    assert model.warning("on green") == "pictogram does not know anything in this prompt and will draw an empty background."
    with pytest.raises(BadPrompt, match="knows no word of this prompt: 'pear' \\(nearest: apple\\), '🧿'"):
        model.start(Prompt("pear 🧿"))


def test_a_caption_without_a_background_gets_one_from_its_seed() -> None:
    """Looks need a background, so the seed chooses one if the caption names none."""
    model = tiny.with_looks()
    words = model._readable_words(Prompt("two red cats"))
    assert len({model._with_background(words, seed) for seed in range(200)}) > 15 and model._with_background(
        words, 3
    ) == model._with_background(words, 3)
    with_place = model._readable_words(Prompt("two red cats on red"))
    assert model._with_background(with_place, 3) == with_place
    assert tiny.pictogram()._with_background(words, 3) == words
    one, two, three = (model.looks_of(model._with_background(words, seed), 8)[0] for seed in (3, 3, 4))
    assert torch.equal(one, two) and not torch.equal(one, three)


def test_a_seed_says_which_background_it_took() -> None:
    model, prompt = tiny.with_looks(), Prompt("two red cats", seed=3)
    assert model.added_words(prompt).split() == list(model._with_background(model._readable_words(prompt), 3)[3:]) != []
    assert len({model.added_words(Prompt("two red cats", seed=seed)) for seed in range(50)}) > 10
    assert model.added_words(Prompt("two red cats on red", seed=3)) == "" == tiny.pictogram().added_words(prompt)


@torch.inference_mode()  # as in a run: the model's cached looks may come from one
def test_a_look_tells_in_a_run() -> None:
    model = tiny.with_looks()
    same, other = (model.start(Prompt(text, seed=3)).forward(NO_DRAFT).logits for text in ("cat on red", "apple on red"))
    assert not torch.allclose(same[0], other[0]) and torch.allclose(same[1], other[1])

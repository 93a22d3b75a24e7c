"""How pictogram reads a user's words: emoji, synonyms, and prompts without a known object."""

from __future__ import annotations

import pytest

from engine.backbones.pictogram import split_words
from engine.core import Prompt
from engine.errors import BadPrompt
from tests.engine.backbones import tiny


def test_emoji_and_synonyms_are_the_words_that_they_mean() -> None:
    model = tiny.pictogram()
    assert model._said(Prompt("two cats on a 🍎")) == model._said(Prompt("two kitties on a apple"))
    assert model._said(Prompt("🍎")) == model._said(Prompt("apple")) == model._said(Prompt("Apple!"))
    assert model._said(Prompt("🐱🐱")) == model._said(Prompt("two cats"))
    assert model._said(Prompt("a crimson 🍎")) == model._said(Prompt("a red apple"))
    assert split_words("🐶🐱, 🧿") == ["dog", "cat", "🧿"]


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
    assert model.warning("on green") == "pictogram knows no object of this prompt and draws a background without any."
    with pytest.raises(BadPrompt, match="knows no word of this prompt: 'pear' \\(nearest: apple\\), '🧿'"):
        model.start(Prompt("pear 🧿"))

"""The reading of a prompt: corrections, objects, and what cannot be drawn."""

from __future__ import annotations

import pytest

from engine.backbones import load
from engine.backbones.pictogram import Pictogram
from engine.words.reading import misspelled


@pytest.fixture(scope="module")
def pictogram() -> Pictogram:
    return load("pictogram")


SIX = ["pictogram counts to six, so 'nine' is left out."]
CASES = [  # (prompt, its text as drawn or None, objects, begin of the description, begins of the remarks, words that it ignores)
    ("two foxes on snow", None, {"fox": 2}, "Draws two foxes; background: snow.", [], []),
    ("3 apples and 2 bananas", None, {"apple": 3, "banana": 2}, "Draws three apples, two bananas;", [], []),
    ("a pink elefant in the dessert", "a pink elephant in the dessert", {"elephant": 1}, "Draws a pink elephant;", [], ["dessert"]),
    ("two Pengiuns", "two penguins", {"penguin": 2}, "Draws two penguins;", [], []),
    ("nine ducks on a pond", None, {"duck": 0}, "Draws some ducks;", SIX, ["pond"]),
    ("a house without a tree", None, {"house": 1}, "Draws a house, no tree;", [], []),
    ("never a blue banana", None, {"banana": 1}, "Draws a blue banana;", ["pictogram does not understand 'never'"], []),
    ("a blue car at night", None, {"car": 1}, "Draws a blue car; background: night sky.", [], []),
    (
        "a red apple, a green frog and a gray elephant",
        None,
        {"apple": 1, "frog": 1, "elephant": 1},
        "Draws a red apple, a green frog, an elephant; ",
        [],
        [],
    ),
    (
        "a yellow banana and a black cat",
        None,
        {"banana": 1, "cat": 1},
        "Draws a yellow banana, a cat;",
        ["'black' does not change the cat: objects can be red, orange, "],
        [],
    ),
    ("foxes on snow", None, {"fox": 0}, "Draws some foxes;", [], []),
    ("Pikachu", None, {}, "", ["pictogram does not know anything in this prompt"], ["pikachu"]),
    ("sunset", None, {}, "", ["pictogram does not know anything in this prompt"], []),
    ("", None, {}, "", [], []),
]


@pytest.mark.parametrize(("prompt", "drawn", "objects", "description", "remarks", "ignored"), CASES)
def test_a_prompt_is_understood(pictogram, prompt, drawn, objects, description, remarks, ignored) -> None:
    got = pictogram.understand(prompt)
    assert (got.text, got.objects, list(got.ignored)) == (drawn or prompt, objects, ignored)
    assert got.description.startswith(description) and bool(description) == bool(got.description)
    assert [text.startswith(begin) for text, begin in zip(got.remarks, remarks, strict=True)] == [True] * len(remarks)


def test_a_correction_can_be_refused(pictogram) -> None:
    got = pictogram.understand("an elefant", kept={"elefant"})
    assert got.text == "an elefant" and not got.corrected and got.instead == {"elefant": ["elephant"]}


def test_a_place_without_its_phrase_is_offered_one(pictogram) -> None:
    assert pictogram.understand("a cat sunset").instead == {"sunset": ["at sunset"]}
    assert pictogram.understand("a cat at sunset").instead == {}


@pytest.mark.parametrize("word", ["gato", "mona", "portrait", "dessert", "york", "astronaut", "cyberpunk", "cst"])
def test_other_words_are_not_taken_for_misspelled_ones(pictogram, word) -> None:
    assert misspelled(word, pictogram.words) == ""

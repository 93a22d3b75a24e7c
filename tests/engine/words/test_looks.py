"""Objects named by a caption, and their looks."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backbones.looks import read_looks
from engine.backbones.pictogram import FOLDER
from engine.errors import MissingFont
from engine.networks.weights import read_card
from engine.words.looks import (
    MOST,
    Look,
    anonymize,
    look_pixels,
    looks_of_words,
    place_of,
    random_background,
    recolour,
    with_numbers,
)
from engine.words.reading import split
from engine.words.world import HUES, PLACES, PLAIN, font_path
from research.worlds.emoji_scenes import (
    COMMON_WORLD,
    SPOKEN,
    caption,
    held_out_scenes,
    looks_of_scene,
    object_picture,
    render,
    trained_scenes,
)


def _has_font() -> bool:
    try:
        return font_path().exists()
    except MissingFont:
        return False


def test_a_caption_names_the_looks_of_its_scene() -> None:
    worlds = COMMON_WORLD, SPOKEN
    scenes = [scene for world in worlds for scene in (*trained_scenes(77, 800, lessons=world), *held_out_scenes(200, world))]
    for seed, scene in enumerate(scenes):
        looks = looks_of_scene(scene)
        assert looks_of_words(split(caption(scene, seed))) == looks
        assert {(look.name, look.side) for look in looks} == {(name, side) for name, _, _, _, side in scene.boxes}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a dragon over a castle", [Look("dragon", "", 48), Look("castle", "", 48)]),
        ("a cat", [Look("cat", "", 64)]),
        ("a small green car on a red background", [Look("car", "green", 32)]),
        ("a red car and a red apple", [Look("car", "", 48), Look("apple", "red", 48)]),
        ("a large blue banana", [Look("banana", "blue", 64)]),
        ("six purple cats", [Look("cat", "purple", 32)]),
        ("two violet dogs", [Look("dog", "purple", 48)]),
        ("two cats under a green balloon", [Look("cat", "", 48), Look("balloon", "green", 48)]),
        ("three little pigs in the snow", [Look("pig", "", 48)]),
        ("an ice cream beside a teddy bear", [Look("ice cream", "", 48), Look("teddy", "", 48)]),
        ("a moon under the stars", [Look("moon", "", 64)]),
        ("a moon above a star", [Look("moon", "", 48), Look("star", "", 48)]),
        ("something blue", []),
        ("", []),
    ],
)
def test_what_a_text_names(text: str, named: list[Look]) -> None:
    assert looks_of_words(split(text)) == tuple(named)


@pytest.mark.parametrize(
    ("text", "numbered"),
    [
        ("horses in a field", {"two horses in a field", "three horses in a field"}),
        ("big blue horses", {"two big blue horses", "three big blue horses"}),
        ("cats and two small dogs", {"two cats and two small dogs"}),
        ("3 cats on 2 red cars", {"3 cats on 2 red cars"}),
        ("a sheep under the stars", {"a sheep under the stars"}),
    ],
)
def test_a_plural_without_a_number_gets_one_from_the_seed(text: str, numbered: set[str]) -> None:
    assert {" ".join(with_numbers(split(text), seed)) for seed in range(20)} == numbered


@pytest.mark.skipif(not _has_font(), reason="the font Noto Color Emoji is not installed")
@pytest.mark.parametrize("name", ["banana", "cat", "apple", "elephant", "ghost", "car", "frog", "tree"])
def test_an_object_in_a_colour_has_it_and_keeps_its_shape(name: str) -> None:
    own = object_picture(name)
    for colour, hue in HUES.items():
        other = recolour(own, colour)
        assert other.getchannel("A").tobytes() == own.getchannel("A").tobytes()
        hues, saturation, _ = (np.asarray(part).astype(int) for part in other.convert("RGB").convert("HSV").split())
        seen = (np.asarray(own.getchannel("A")) > 127) & (saturation > 70)
        away = abs((hues[seen] * 360 / 256 - hue + 180) % 360 - 180)
        assert np.median(away) < 30, (colour, np.median(away))
    assert sum(recolour(own, colour) is own for colour in HUES) <= 2, "few colours are an object's own"


def test_a_text_may_name_more_than_is_read() -> None:
    looks = looks_of_words(split("a cat, a dog, a fox, a pig and a bear"))
    assert [look.name for look in looks] == ["cat", "dog", "fox", "pig"][:MOST]


def test_a_caption_says_the_background_of_its_scene() -> None:
    for seed, scene in enumerate(trained_scenes(5, 800, lessons=COMMON_WORLD)):
        assert place_of(split(caption(scene, seed))) == scene.background
        assert place_of(split(caption(scene, seed, placed=False))) == ""


def test_a_seed_chooses_a_background() -> None:
    places = [place_of(random_background(seed)) for seed in range(400)]
    assert set(places) == {*PLAIN, *PLACES} and places[:9] == [place_of(random_background(seed)) for seed in range(9)]
    assert 0.38 < sum(name in PLAIN for name in places) / len(places) < 0.52


@pytest.mark.parametrize(("name", "hidden"), [("banana", "yellow"), ("snowman", "snow"), ("ghost", "white"), ("tree", "green")])
def test_no_seed_chooses_a_background_of_the_object_s_colour(name: str, hidden: str) -> None:
    looks = read_looks(FOLDER, read_card(FOLDER)["looks"])
    places = [place_of(random_background(seed, [name], [looks.pictures[name]])) for seed in range(200)]
    assert hidden not in places and len(set(places)) > 12
    assert hidden in [place_of(random_background(seed, [name])) for seed in range(200)]
    assert place_of(random_background(7, ["banana"])) != place_of(random_background(7, ["cat"]))  # the same seed, other objects


@pytest.mark.skipif(not _has_font(), reason="the font Noto Color Emoji is not installed")
@pytest.mark.parametrize("along", [8, 16, 32])
def test_a_look_is_drawn_as_in_a_scene(along: int) -> None:
    """On a plain background the pixels of a scene's first object are nearly those of its look, which comes from a smaller picture."""
    seen = 0
    for scene in trained_scenes(3, 60, {"single": 1.0}, COMMON_WORLD):
        if scene.background not in PLAIN:
            continue
        (look,), (_, _, left, top, side) = looks_of_scene(scene), scene.boxes[0]
        x, y, width = (v * along // 16 for v in (left, top, side))
        own = render(scene, 8 * along)[y : y + width, x : x + width].astype(int)
        picture = object_picture(look.name)
        picture = recolour(picture, look.colour) if look.colour else picture
        picture = look_pixels(picture, look.side, along, scene.background)
        assert picture.shape == own.shape and np.abs(picture - own).mean() < 3
        seen += 1
    assert seen > 5


@pytest.mark.parametrize(
    ("text", "known", "read"),
    [
        ("two cats under a ferris wheel", (), "two things under a thing"),
        ("two cats under a ferris wheel", ("cats", "wheel"), "two cats under a thing"),
        ("a moon under the stars", ("moon",), "a moon under the stars"),
        ("a hedgehog on a blue background", ("a", "on"), "a thing on a blue background"),
    ],
)
def test_what_has_no_name_is_a_thing(text: str, known: tuple[str, ...], read: str) -> None:
    assert " ".join(anonymize(split(text), known)) == read

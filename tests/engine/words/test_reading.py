"""Reading of prompts: words of the same meaning, nearest things, typing errors, emoji, and the names of objects."""

from __future__ import annotations

import random

import pytest

from engine.words.emoji_names import OTHERS, name_of, spell
from engine.words.emoji_objects import COMMON, KINDS, OBJECTS, TAUGHT
from engine.words.meanings import NEAR, OTHER, PHRASES, READ_AS
from engine.words.reading import nearest, read, split
from research.worlds import emoji_scenes as world

FIRST, COMMON_WORDS = (frozenset(world.vocabulary(lessons)) for lessons in (world.FIRST, world.COMMON_WORLD))


@pytest.mark.parametrize("lessons", world.LESSONS)
def test_captions_are_read_as_they_were_taught(lessons: str) -> None:
    taught = world.LESSONS[lessons]
    known = frozenset(world.vocabulary(taught))
    for seed in range(1500):
        scene = world.make_scene(seed, taught)
        text = world.caption(scene, seed)
        reading = read(text, known)
        assert list(reading.words) == world.words_of(text) and not reading.unknown, text
        assert {group.name for group in scene.groups} <= set(reading.objects), text
        assert all(g.count == 1 or world.COUNTS[g.count] in text or str(g.count) in text for g in scene.groups), text


@pytest.mark.parametrize(
    ("text", "words", "left_out"),
    [
        ("a cat and no dog", "a cat", ("dog",)),
        ("no dog, a cat", "a cat", ("dog",)),
        ("a cat without a big red hat on snow", "a cat on snow", ("hat",)),
        ("no cats or dogs, a horse in a field", "a horse in a field", ("cat", "dog")),
        ("not a dog but a kitty", "a cat", ("dog",)),
        ("a girl with no glasses", "a girl", ("glasses",)),
        ("no apples", "", ("apple",)),
        ("a cow without background", "a cow background", ()),
        ("a cat and a dog", "a cat and a dog", ()),
    ],
)
def test_excluded_objects_are_not_read(text: str, words: str, left_out: tuple[str, ...]) -> None:
    reading = read(text, COMMON_WORDS)
    assert (" ".join(reading.words), reading.left_out) == (words, left_out) and "no" not in reading.unknown


def test_words_of_the_same_meaning_are_read_silently() -> None:
    assert read("two kitties beside an automobile", COMMON_WORDS).words == ("two", "cats", "beside", "an", "car")
    assert read("a gigantic crimson sun underneath a cloud", FIRST).words == ("a", "huge", "red", "sun", "below", "a", "cloud")
    assert read("three soccer balls and a pine tree", FIRST).words == ("three", "footballs", "and", "a", "pine")
    assert read("fish underwater", COMMON_WORDS).words == ("fish", "under", "water")
    assert read("two oranges and a grape", COMMON_WORDS).objects == ("tangerine", "grapes")
    assert read("a banana next to an orange", COMMON_WORDS).objects == ("banana", "tangerine")
    assert read("an orange on an orange background", COMMON_WORDS).objects == ("tangerine",)
    assert read("an orange, an orange cat", COMMON_WORDS).objects == ("tangerine", "cat")
    assert read("the dog's house", FIRST).words == ("the", "dog", "house")
    assert read("two wolfs", COMMON_WORDS).words == ("two", "wolves")
    assert read("a couch", FIRST).unknown == {"couch": []}  # not read as a sofa by a model that knows none


def test_unknown_words_are_answered_by_meaning() -> None:
    assert nearest("kangaroo", COMMON_WORDS) == ["rabbit", "mouse"]
    assert nearest("dragonfly", COMMON_WORDS) == ["bee", "butterfly", "spider"]
    assert nearest("sofas", FIRST | {"chair", "bed"}) == ["chair", "bed"]
    assert nearest("dragon", FIRST | {"dinosaur", "lizard"}) == ["dinosaur", "lizard", "frog"]
    assert nearest("kittens", {"cat"}) == ["cat"]
    assert nearest("seat", COMMON_WORDS)[:2] == ["chair", "sofa"]
    assert nearest("zebra", FIRST) == ["dog", "cat", "fox"]  # nothing near: others of its kind
    for word in ("sofa", "hammer", "person"):  # nothing near, and one thing is no better than another
        assert nearest(word, FIRST) == []


def test_slips_of_known_words_are_caught_and_nothing_else() -> None:
    slips = {"aple": "apple", "strawbery": "strawberry", "pengiun": "penguin", "cts": "cats", "baloon": "balloon", "hosue": "house",
             "muhsroom": "mushroom", "rokcet": "rocket"}  # fmt: skip
    assert {slip: nearest(slip, FIRST) for slip in slips} == {slip: [word] for slip, word in slips.items()}
    assert nearest("girafe", COMMON_WORDS) == ["giraffe"] and nearest("girafe", FIRST) == nearest("giraffe", FIRST)
    for word in ("of", "cute", "far", "flying", "xqzt", "blorf", "happy", "7", "🧿"):
        assert nearest(word, FIRST) == [], word


def test_two_words_that_are_one_thing_are_not_read_as_the_last() -> None:
    reading = read("a hot dog and a fire truck", COMMON_WORDS)
    assert set(reading.unknown) == {"hot dog", "fire truck"} and not reading.objects
    assert reading.unknown["fire truck"][0] == "truck"
    assert read("an ice cream and a sad face", COMMON_WORDS).objects == ("ice cream", "sad face")
    assert read("hot dog", world.vocabulary(world.WORLD)).objects == ("hot dog",)


def test_objects_are_those_that_are_known() -> None:
    assert read("a dragon over a castle", FIRST).objects == ()
    assert read("a dragon over a castle", COMMON_WORDS).objects == ("dragon", "castle")
    assert read("puppies, a dog and two tulips", COMMON_WORDS).objects == ("dog", "flower")
    assert read("", FIRST) == read(" ,.! ", FIRST) and not read("", FIRST).words


def test_any_text_can_be_read() -> None:
    r = random.Random(0)
    for _ in range(300):
        text = "".join(chr(r.choice([r.randrange(32, 127), r.randrange(0x2000, 0x3000), r.randrange(0x1F000, 0x1FB00), 0x200D, 0xFE0F]))
                       for _ in range(r.randrange(30)))  # fmt: skip
        reading = read(text, FIRST)
        assert set(reading.words) <= FIRST and not set(reading.unknown) & FIRST
        assert all(set(" ".join(near).split()) <= FIRST for near in reading.unknown.values())


# --- emoji ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("🐶🐱", "dog cat"),
        ("🐶 and 🐱 on 🏖️", "dog and cat on beach"),
        ("🐶🐶🐶", "three dogs"),
        ("🚗🚗🌳", "two cars tree"),
        ("❤️❤", "two hearts"),  # with and without the selector
        ("👋🏿👩🏽", "hand woman"),  # skin tones
        ("👨‍👩‍👧", "man woman girl"),
        ("👩🏽‍🚀", "astronaut"),
        ("🐈‍⬛ 🐻‍❄️ 👨‍🦰", "cat bear man"),
        ("2️⃣🎈", "2 balloon"),
        ("a 🍦.", "a ice cream"),
        ("🧿", "🧿"),
        ("🇩🇪🧿🧿", "🇩🇪 🧿 🧿"),
        ("no emoji, café 7", "no emoji café 7"),
    ],
)  # fmt: skip
def test_emoji_are_read_as_their_names(text: str, words: str) -> None:
    assert " ".join(split(text)) == words


def test_emoji_of_the_world_have_its_names() -> None:
    for name, spelling in OBJECTS.items():
        assert name_of(spelling.split(" ")[0]) == name
    assert read("🧿 on 🌊", COMMON_WORDS).unknown.keys() == {"🧿", "wave"}
    assert spell("plain text") == "plain text"


# --- the tables -------------------------------------------------------------------------------------------------------


def test_the_tables_hold_together() -> None:
    sayable = {*OBJECTS, *world.vocabulary(world.WORLD)}
    assert all(target in sayable or set(target.split()) <= sayable for target in (*READ_AS, *PHRASES.values()))
    read_as = [word for words in READ_AS.values() for word in words.split()]
    assert len(read_as) == len(set(read_as))
    taught = set(world.vocabulary(world.COMMON_WORLD))
    nouns = {noun for lines in NEAR.values() for line in lines for noun in line.partition("|")[2].split()}
    assert len(nouns - taught) >= 600 and not nouns & OTHER
    assert sum(bool(nearest(noun, taught)) for noun in nouns - taught) >= 0.95 * len(nouns - taught)
    for lines in NEAR.values():
        assert all(line.count("|") == 1 for line in lines)


def test_common_objects_are_many_and_hold_the_first() -> None:
    assert 120 <= len(COMMON) == len(set(COMMON)) and set(TAUGHT) <= set(COMMON) <= set(OBJECTS)
    assert sum(map(len, KINDS.values())) == len(OBJECTS)  # no name in two kinds
    assert set(OTHERS) & set(OBJECTS)  # other emoji of objects that the world has

"""The reading of a prompt by a model with a limited vocabulary, in words for the person who types it: corrections, objects, remarks on
what it cannot draw."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from engine.words.emoji_objects import article, plural
from engine.words.looks import NUMBER_OF_WORD, groups_of_words, is_plural, place_of
from engine.words.reading import misspelled, read, split
from engine.words.world import COUNTS, HUES, PLACES, PLAIN, words_of

NEGATIONS = {
    "no", "not", "without", "never", "none", "nothing", "neither", "nor", "except", "excluding", "exclude", "avoid",
    "omit", "negative", "minus", "sans", "cannot", "don", "doesn", "didn", "isn", "aren",
    "wasn", "weren", "shouldn", "dont", "doesnt", "isnt", "arent",
}  # fmt: skip
NUMBERS = {"five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "twenty", "dozen", "hundred", "thousand"}
PLACE_WORDS = {words_of(phrase)[-1]: phrase.strip(" ,") for phrases in PLACES.values() for phrase in reversed(phrases) if "," not in phrase}
PLURAL = 0  # in the place of a number: a plural without one


def corrections(text: str, known: Container[str], kept: Container[str] = ()) -> dict[str, str]:
    """The misspelled words of a text, with the known ones that are meant. kept : words to leave as they are"""
    return {word: right for word in read(text, known).unknown if word not in kept and (right := misspelled(word, known))}


def correct(text: str, right: Mapping[str, str]) -> str:
    """The text with some words replaced."""
    return re.sub(r"[^\W_]+", lambda match: right.get(match.group().lower(), match.group()), text)


def requested(words: Sequence[str]) -> dict[str, int]:
    """Number of each object that the words name; PLURAL for a plural without a number."""
    counts: dict[str, int] = {}
    for group, named in groups_of_words(words):
        is_bare = group.count == 1 and is_plural(named)
        counts[group.name] = PLURAL if is_bare else counts.get(group.name, 0) + group.count
    return counts


def description(words: Sequence[str], left_out: Sequence[str] = ()) -> str:
    """A sentence about the request: "Draws two foxes, no dog; background: snow."; "" if they name no object.

    left_out : objects that are excluded
    """
    things = []
    for group, named in groups_of_words(words):
        one = " ".join(filter(None, (group.size, group.colour, group.name)))
        many = COUNTS[group.count] if group.count > 1 else "some" if is_plural(named) else ""
        things.append(f"{many} {plural(one)}" if many else f"{article(one)} {one}")
    things += [f"no {name}" for name in left_out if things]
    return f"Draws {', '.join(things)}; background: {place_of(words) or 'the seed chooses it'}." if things else ""


def remarks(
    name: str, text: str, known: Container[str], own_colours: Container[tuple[str, str]] | None = None
) -> tuple[list[str], set[str]]:
    """(sentences on what a text asks for and a model of this name cannot draw, the unknown words that they are about).

    own_colours : (object, colour) that an object has anyway, None = unknown
    """
    reading = read(text, known)
    words, unknown = reading.words, [word for word in split(text) if word in reading.unknown]
    most = max((count for word, count in NUMBER_OF_WORD.items() if word in known), default=1)
    many = [word for word in unknown if word in NUMBERS or (word.isdecimal() and int(word) > most)]
    lost = [word for word in unknown if word in NEGATIONS]
    sentences = [f"{name} counts to {COUNTS[most]}, so '{many[0]}' is left out."] if many else []
    sentences += [f"{name} does not understand {', '.join(map(repr, lost))}, so it may draw what the prompt excludes."] if lost else []
    for group, named in groups_of_words(words):
        colour = next((word for word in named if word in {*PLAIN, *HUES}), "")
        if colour not in HUES and colour and own_colours is not None and (group.name, colour) not in own_colours:
            sentences.append(f"'{colour}' does not change the {group.name}: objects can be {', '.join(HUES)}.")
    return sentences, {*many, *lost}


def places(words: Sequence[str]) -> dict[str, list[str]]:
    """Words that name a background only in a phrase, which is missing: {"sunset": ["at sunset"]}."""
    return {} if place_of(words) else {word: [PLACE_WORDS[word]] for word in words if word in PLACE_WORDS}

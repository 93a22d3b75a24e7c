"""Vocabulary of a model, as groups of words to click."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from engine.core import Backbone
from engine.words.emoji_objects import KINDS, OBJECTS, article, plural
from engine.words.world import COUNTS, PLACES, PLAIN, RELATIONS, SIZE_WORDS, words_of

FEWEST = 3  # minimum number of objects in a group


def groups(backbone: Backbone) -> list[dict[str, Any]]:
    """Groups of items, most useful first; [] for a model that accepts any word.

    kind : "object", "count", "size", "relation" or "place"; each item has the text on the button and the text for the prompt; objects
    also have a plural
    """
    known = backbone.words
    if not known:
        return []
    sections, rest = [], []
    for name, members in KINDS.items():
        items = [thing(each) for each in members if sayable(each, known)]
        if len(items) >= FEWEST:
            sections.append(group(name, "object", items))
        else:
            rest += items
    sections += [group("more", "object", rest)] if rest else []
    counts = [word for word in COUNTS[2:] if word in known]
    sizes = [word[0] for size, word in SIZE_WORDS.items() if size and word[0] in known]
    relations = [word for word in RELATIONS if sayable(word, known)]
    places = [(name, phrases[0]) for name, phrases in PLACES.items() if sayable(phrases[0], known)]
    colours = [(f"{colour} background", f" on {article(colour)} {colour} background") for colour in PLAIN if colour in known]
    sections += [
        group("how many", "count", [item(word, word) for word in counts]),
        group("how large", "size", [item(word, word) for word in sizes]),
        group("where", "relation", [item(word, word) for word in relations]),
        group("in front of", "place", [item(*each) for each in (*places, *colours)]),
    ]
    return [each for each in sections if each["items"]]


def group(name: str, kind: str, items: list[dict[str, str]]) -> dict[str, Any]:
    """A heading with its items."""
    return {"name": name[:1].upper() + name[1:], "kind": kind, "items": items}


def thing(name: str) -> dict[str, str]:
    """Item of an object, with its emoji."""
    return item(f"{OBJECTS[name].split()[0]} {name}", name) | {"plural": plural(name), "article": article(name)}


def item(shown: str, written: str) -> dict[str, str]:
    """Item of a word. shown : on the button; written : into the prompt"""
    return {"shown": shown, "written": written}


def sayable(text: str, known: Container[str]) -> bool:
    """True if a model knows every word of a text."""
    return all(word in known for word in words_of(text))

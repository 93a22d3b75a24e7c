"""What a model with a limited vocabulary can draw, as groups of words that a person can click."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from engine.core import Backbone
from engine.words.emoji_objects import KINDS, OBJECTS, plural
from engine.words.world import COUNTS, PLACES, PLAIN, RELATIONS, SIZE_WORDS, words_of

FEWEST = 3  # objects that a group of its own has


def groups(backbone: Backbone) -> list[dict[str, Any]]:
    """Groups of items, most wanted first; [] for a model that accepts any word.

    kind : "object", "count", "size", "relation" or "place"; each item has the text that is shown and the one that is written, and an
    object also its plural
    """
    known = backbone.words
    if not known:
        return []
    found, rest = [], []
    for name, members in KINDS.items():
        items = [thing(each) for each in members if sayable(each, known)]
        if len(items) >= FEWEST:
            found.append(group(name, "object", items))
        else:
            rest += items
    found += [group("more", "object", rest)] if rest else []
    counts = [said for said in COUNTS[2:] if said in known]
    sizes = [said[0] for size, said in SIZE_WORDS.items() if size and said[0] in known]
    relations = [said for said in RELATIONS if sayable(said, known)]
    places = [(name, phrases[0]) for name, phrases in PLACES.items() if sayable(phrases[0], known)]
    colours = [(f"{colour} background", f" on {article(colour)} {colour} background") for colour in PLAIN if colour in known]
    found += [
        group("how many", "count", [item(said, said) for said in counts]),
        group("how large", "size", [item(said, said) for said in sizes]),
        group("where", "relation", [item(said, said) for said in relations]),
        group("in front of", "place", [item(*each) for each in (*places, *colours)]),
    ]
    return [each for each in found if each["items"]]


def group(name: str, kind: str, items: list[dict[str, str]]) -> dict[str, Any]:
    """One heading with its items."""
    return {"name": name[:1].upper() + name[1:], "kind": kind, "items": items}


def thing(name: str) -> dict[str, str]:
    """An object, with its emoji."""
    return item(f"{OBJECTS[name].split()[0]} {name}", name) | {"plural": plural(name), "article": article(name)}


def item(shown: str, written: str) -> dict[str, str]:
    """A word to click."""
    return {"shown": shown, "written": written}


def article(word: str) -> str:
    """ "a" or "an"."""
    return "an" if word[0] in "aeiou" and word not in ("unicorn", "ufo") else "a"


def sayable(text: str, known: Container[str]) -> bool:
    """Whether a model knows every word of a text."""
    return all(word in known for word in words_of(text))

"""What a caption names, as the decoder reads it: the look of each named object, at the size that it will have.

A decoder that reads the tokens of a dragon before it draws a dragon copies them; one that only reads the word has to know every object by
heart. So a new object needs a new look and no new training. Two thirds of an object's tokens hold a piece of its rim, which is another
token before another background. So a look is read before the background that the caption says, and before white and black, which together
tell what shows through.
"""

from __future__ import annotations

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from engine.words.emoji_objects import OBJECTS, names_of, plural
from engine.words.world import (
    CANVAS,
    COLOUR_SYNONYMS,
    COLOURED,
    COUNTS,
    EVEN_SIDES,
    HUES,
    MASTER,
    PLACES,
    PLAIN,
    PLAIN_SHARE,
    SIZE_WORDS,
    THING,
    ObjectGroup,
    background,
    words_of,
)

MOST = 3  # looks that a decoder reads
TILE = 128  # pixels along the side of a look's picture
SIZE_OF_WORD = {word: size for size, words in SIZE_WORDS.items() for word in words if word}
SEVERAL = frozenset(word for count, word in enumerate(COUNTS) if count > 1) | {str(count) for count in range(2, len(COUNTS))}


@dataclass(frozen=True)
class Look:
    """An object in a colour ("" for its own) at a size: pixels on the canvas of 128."""

    name: str
    colour: str
    side: int

    def tokens(self, along: int) -> int:
        """Tokens along its side in a picture with `along` tokens along its side."""
        return self.side * along // CANVAS


def look_of(group: ObjectGroup, alone: bool) -> Look:
    """The look of a group; alone: the caption names one object and nothing else. Then it is large unless the caption says otherwise."""
    own = COLOURED.get(group.name)
    colour = group.colour if own and group.colour != own else ""
    size = group.size or ("large" if alone else "")
    return Look(group.name, colour, EVEN_SIDES[size if group.count == 1 else ""])


def looks_of_words(words: Sequence[str]) -> tuple[Look, ...]:
    """The looks that words name, in their order, at most MOST."""
    named, before = [], []
    for part, name in _parts(words):
        if not name:
            before += part if len(part) == 1 else []
            continue
        colour = next((word for word in reversed(before) if word in HUES), "")
        size = next((SIZE_OF_WORD[word] for word in reversed(before) if word in SIZE_OF_WORD), "")
        named.append(ObjectGroup(name, 2 if SEVERAL.intersection(before) else 1, size, colour))
        before = []
    alone = len(named) == 1 and named[0].count == 1
    return tuple(look_of(group, alone) for group in named[:MOST])


def anonymous(words: Sequence[str], known: Container[str] = ()) -> list[str]:
    """The words with THING, or its plural, for each object that has a word which is not known."""
    found = []
    for part, name in _parts(words):
        is_strange = name and any(word not in known for word in part)
        found += [THING if " ".join(part) in names_of(name) else plural(THING)] if is_strange else part
    return found


def _parts(words: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """The words in order, those of an object's name, or of a phrase that only seems to name one, together; with the object, or ""."""
    i = 0
    while i < len(words):
        place = next((place for place in MISLEADING if list(words[i : i + len(place)]) == place), [])
        both = NAMES.get(" ".join(words[i : i + 2]), "")
        count = len(place) or (2 if both and i + 1 < len(words) else 1)
        yield list(words[i : i + count]), "" if place else both or NAMES.get(words[i], "")
        i += count


NAMES = {form: name for name in reversed(OBJECTS) for said in names_of(name) for form in (plural(said), said)}
MISLEADING = [words for said in PLACES.values() for words in map(words_of, said) if NAMES.keys() & set(words)]  # "under the stars"


def place_of(words: Sequence[str]) -> str:
    """The background that a caption says, "" if it says none."""
    said = [name for phrase, name in PHRASES.items() if _holds(words, phrase)]
    return said[0] if said else ""


def random_background(seed: int) -> list[str]:
    """The words for a background, drawn as the scenes of lessons draw it."""
    r = random.Random(seed)
    name = r.choice(list(PLAIN)) if r.random() < PLAIN_SHARE else r.choice(list(PLACES))
    return words_of(PLACES[name][0] if name in PLACES else f"on a {name} background")


def _holds(words: Sequence[str], phrase: tuple[str, ...]) -> bool:
    return any(tuple(words[i : i + len(phrase)]) == phrase for i in range(len(words) - len(phrase) + 1))


def _phrases() -> dict[tuple[str, ...], str]:
    """The words of each phrase for a background, with its name, the longest first: one may hold another."""
    found = {tuple(words_of(phrase)): name for name, phrases in PLACES.items() for phrase in phrases}
    for name in PLAIN:
        for colour in COLOUR_SYNONYMS.get(name, [name]):
            found |= {(colour, "background"): name, ("on", colour): name}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


PHRASES = _phrases()


@lru_cache(maxsize=len(PLAIN) + len(PLACES))
def _behind(place: str) -> Image.Image:
    """A background as an object in the middle of a picture sees it, MASTER pixels a side."""
    return Image.fromarray(background(place, 0)).convert("RGBA")


def look_pixels(picture: Image.Image, side: int, along: int, place: str) -> np.ndarray:
    """A look before a background, as in a picture with `along` tokens along its side, uint8 [8n, 8n, 3].

    picture : RGBA, TILE pixels a side; side : of the object, in pixels on the canvas
    """
    large, pixels = side * (MASTER // CANVAS), along * 8
    corner = (MASTER - large) // 2 // 32 * 32  # on the lattice
    whole = _behind(place).copy()
    whole.alpha_composite(picture.resize((large, large), Image.LANCZOS), (corner, corner))
    first, last = (v * pixels // MASTER for v in (corner, corner + large))
    return np.asarray(whole.convert("RGB").resize((pixels, pixels), Image.BOX))[first:last, first:last]

"""What a caption names, as the decoder reads it: the look of each named object, at the size that it will have.

A decoder that reads the tokens of a dragon before it draws a dragon copies them; one that only reads the word has to know every object by
heart. So a new object needs a new look and no new training. The look is drawn alone before white and before black, so that it tells what
shows through at its rim; the decoder has to know how that mixes with another background.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from engine.data.emoji_objects import OBJECTS, names_of, plural
from engine.data.emoji_scenes import (
    CANVAS,
    COLOURED,
    COUNTS,
    EVEN_SIDES,
    HUES,
    MASTER,
    PLACES,
    PLAIN,
    SIZE_WORDS,
    THING,
    Group,
    Scene,
    sprite,
    words_of,
)

MOST = 3  # looks that a decoder reads
SAID = {word: size for size, words in SIZE_WORDS.items() for word in words if word}
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


def look_of(group: Group, alone: bool) -> Look:
    """The look of a group; alone: the caption names one object and nothing else. Then it is large unless the caption says otherwise."""
    own = COLOURED.get(group.name)
    colour = group.colour if own and group.colour != own else ""
    size = group.size or ("large" if alone else "")
    return Look(group.name, colour, EVEN_SIDES[size if group.count == 1 else ""])


def looks_of_scene(scene: Scene) -> tuple[Look, ...]:
    """The looks of a scene's groups, in the order of its caption."""
    alone = len(scene.groups) == 1 and scene.groups[0].count == 1
    return tuple(look_of(group, alone) for group in scene.groups)


def looks_of_words(words: Sequence[str]) -> tuple[Look, ...]:
    """The looks that words name, in their order, at most MOST."""
    named, before = [], []
    for part, name in _parts(words):
        if not name:
            before += part if len(part) == 1 else []
            continue
        colour = next((word for word in reversed(before) if word in HUES), "")
        size = next((SAID[word] for word in reversed(before) if word in SAID), "")
        named.append(Group(name, 2 if SEVERAL.intersection(before) else 1, size, colour))
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


def drawn(look: Look, pixels: int, background: str = "white") -> np.ndarray:
    """The look before a plain background as in a picture of `pixels`, uint8 [n, n, 3]."""
    large = look.side * (MASTER // CANVAS)
    picture = Image.new("RGBA", (large, large), (*PLAIN[background], 255))
    picture.alpha_composite(sprite(look.name, look.colour, large))
    side = look.side * pixels // CANVAS
    return np.asarray(picture.convert("RGB").resize((side, side), Image.BOX))

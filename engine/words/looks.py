"""Looks, which a decoder reads before it draws: a picture of each object named in the caption, at its final size.

A decoder that first reads the tokens of a dragon can copy them; one that reads only the word must have learned the object. So a new object
needs a new look but no training. Two thirds of an object's tokens contain part of its outline and depend on the background. So a look is
read in front of the caption's background, and in front of white and of black, which together reveal its transparency.
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

MOST = 3  # maximum number of looks that a decoder reads
TILE = 128  # pixels along the side of a look's picture
SMALL = 32  # pixels along the side of a look whose colours are compared with a background's
LUMA = np.array([0.30, 0.59, 0.11], np.float32)  # weights of red, green and blue
PART = 0.3  # share of the pixels that have the colour of an object
CALLED = {  # hues, saturations and values (each from, to; 0..1) that a colour's name may mean
    "red": (-0.07, 0.06, 0.45, 1, 0.3, 1), "orange": (0.0, 0.13, 0.45, 1, 0.5, 1), "yellow": (0.08, 0.19, 0.35, 1, 0.6, 1),
    "green": (0.17, 0.48, 0.2, 1, 0.15, 1), "blue": (0.5, 0.72, 0.2, 1, 0.2, 1), "purple": (0.68, 0.9, 0.15, 1, 0.2, 1),
    "pink": (-0.2, 0.08, 0.12, 0.65, 0.7, 1), "white": (0, 1, 0, 0.2, 0.75, 1), "gray": (0, 1, 0, 0.3, 0.25, 0.85),
    "black": (0, 1, 0, 1, 0, 0.35), "brown": (-0.03, 0.14, 0.2, 1, 0.15, 0.7), "turquoise": (0.42, 0.56, 0.2, 1, 0.3, 1),
}  # fmt: skip
DISTINCT, CLEAR = 35.0, 0.6  # difference (0..255) of a distinct pixel, and share of such pixels in a clear object
GRAY = 0.3  # share of saturated pixels below which a picture is tinted instead of turned
TINT = 130  # saturation of a tinted picture, of 255
SIMILAR_HUE, SAME_HUE = 36, 14  # of 256: belongs to the same part; no change for the eye
SIZE_OF_WORD = {word: size for size, words in SIZE_WORDS.items() for word in words if word}
HUE_OF_WORD = {word: name for name in HUES for word in COLOUR_SYNONYMS.get(name, [name])}
NUMBER_OF_WORD = {form: count for count, word in enumerate(COUNTS) if count > 1 for form in (word, str(count))}
SQUARE = 4  # objects of a kind that are drawn at the usual size; more are small


@dataclass(frozen=True)
class Look:
    """An object in a colour ("" for its own) at a size in pixels of the 128-pixel canvas."""

    name: str
    colour: str
    side: int

    def tokens(self, along: int) -> int:
        """Tokens along its side in a picture with `along` tokens along its side."""
        return self.side * along // CANVAS


def look_of(group: ObjectGroup, alone: bool) -> Look:
    """The look of a group. A single object that is `alone` in its caption is large unless the caption gives its size."""
    colour = "" if group.colour == COLOURED.get(group.name) else group.colour
    size = group.size or ("large" if alone else "")
    return Look(group.name, colour, EVEN_SIDES[size if group.count == 1 else "small" if group.count > SQUARE else ""])


def looks_of_words(words: Sequence[str]) -> tuple[Look, ...]:
    """The first looks named by the words, in order, at most MOST."""
    named = [group for group, _ in groups_of_words(words)]
    alone = len(named) == 1 and named[0].count == 1
    return tuple(look_of(group, alone) for group in named[:MOST])


def groups_of_words(words: Sequence[str]) -> Iterator[tuple[ObjectGroup, list[str]]]:
    """The objects named by the words, in order, each with its words, of which the last name it. A count is 1 unless a number gives it."""
    before: list[str] = []
    for part, name in _parts(words):
        if not name:
            before += part if len(part) == 1 else []
            continue
        count = next((NUMBER_OF_WORD[word] for word in reversed(before) if word in NUMBER_OF_WORD), 1)
        colour = next((HUE_OF_WORD[word] for word in reversed(before) if word in HUE_OF_WORD), "")
        size = next((SIZE_OF_WORD[word] for word in reversed(before) if word in SIZE_OF_WORD), "")
        yield ObjectGroup(name, count, size, colour), [*before, *part]
        before = []


def is_plural(named: Sequence[str]) -> bool:
    """True if the last words name several objects, such as "big horses"; False for "sheep"."""
    return SINGULARS.isdisjoint((named[-1], " ".join(named[-2:])))


def with_numbers(words: Sequence[str], seed: int) -> list[str]:
    """The words with a number before each plural that has none: "horses in a field" becomes "two horses in a field", or three, by the
    seed."""
    parts = list(_parts(words))
    most = 3 if sum(bool(name) for _, name in parts) == 1 else 2
    numbered: list[str] = []
    for part, name in parts:
        if name and is_plural(part):
            before = len(numbered)
            while before and numbered[before - 1] in ADJECTIVES:
                before -= 1
            if not before or numbered[before - 1] not in NUMBER_OF_WORD:
                numbered.insert(before, COUNTS[random.Random(seed).randint(2, most)])
        numbered += part
    return numbered


def anonymize(words: Sequence[str], known: Container[str] = ()) -> list[str]:
    """The words, with THING or its plural for each object whose name has an unknown word."""
    out = []
    for part, name in _parts(words):
        is_strange = name and any(word not in known for word in part)
        out += [THING if " ".join(part) in names_of(name) else plural(THING)] if is_strange else part
    return out


def _parts(words: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Split the words into names of objects, phrases that only seem to name one, and single words; each with its object, or ""."""
    i = 0
    while i < len(words):
        place = next((place for place in MISLEADING if list(words[i : i + len(place)]) == place), [])
        both = NAMES.get(" ".join(words[i : i + 2]), "")
        count = len(place) or (2 if both and i + 1 < len(words) else 1)
        yield list(words[i : i + count]), "" if place else both or NAMES.get(words[i], "")
        i += count


ADJECTIVES = SIZE_OF_WORD.keys() | HUE_OF_WORD.keys()
SINGULARS = frozenset(term for name in OBJECTS for term in names_of(name))
NAMES = {form: name for name in reversed(OBJECTS) for term in names_of(name) for form in (plural(term), term)}
MISLEADING = [words for phrases in PLACES.values() for words in map(words_of, phrases) if NAMES.keys() & set(words)]  # "under the stars"


def place_of(words: Sequence[str]) -> str:
    """The background named in a caption; "" if none."""
    places = [name for phrase, name in PHRASES.items() if _holds(words, phrase)]
    return places[0] if places else ""


def random_background(seed: int, objects: Sequence[str] = (), pictures: Sequence[Image.Image] = ()) -> list[str]:
    """The words for a random background, with the probabilities of the training scenes, chosen by the seed and the names of the objects.

    pictures : of the objects, RGBA; a background on which one of them could hardly be seen is not chosen, unless all are such
    """
    r = random.Random(f"{seed} {' '.join(objects)}")
    small = [small_look(picture) for picture in pictures]
    clear = [name for name in (*PLAIN, *PLACES) if all(contrast(each, name) >= CLEAR for each in small)]
    plain, places = ([name for name in each if name in clear] or list(each) for each in (PLAIN, PLACES))
    name = r.choice(plain if r.random() < PLAIN_SHARE else places)
    return words_of(PLACES[name][0] if name in PLACES else f"on a {name} background")


def small_look(picture: Image.Image) -> np.ndarray:
    """A look's picture for `contrast`, float32 [SMALL, SMALL, 4]."""
    return np.asarray(picture.resize((SMALL, SMALL), Image.BOX), np.float32)


def contrast(small: np.ndarray, place: str) -> float:
    """The share of an object's pixels, float32 [SMALL, SMALL, 4], RGBA, that differ from a background's by at least DISTINCT.
    The channels are weighted as in luma, in which blue counts little: yellow is hard to see on white."""
    opaque = small[..., 3] > 127
    apart = np.abs(small[..., :3] - _small_background(place)) @ LUMA
    return float((apart >= DISTINCT)[opaque].mean()) if opaque.any() else 1.0


def has_colour(small: np.ndarray, colour: str) -> bool:
    """True if a large part of an object's pixels, as in `contrast`, may be called by this colour."""
    picture = Image.fromarray(small[..., :3].astype(np.uint8)).convert("HSV")
    hue, saturation, value = np.moveaxis(np.asarray(picture, np.float32)[small[..., 3] > 127] / 255, -1, 0)
    low, high, grey, vivid, dark, bright = CALLED[colour]
    named = ((hue - low) % 1 <= high - low) & (saturation >= grey) & (saturation <= vivid) & (value >= dark) & (value <= bright)
    return float(named.mean()) > PART


@lru_cache(maxsize=len(PLAIN) + len(PLACES))
def _small_background(place: str) -> np.ndarray:
    """A background, float32 [SMALL, SMALL, 3]."""
    return np.asarray(_background_picture(place).convert("RGB").resize((SMALL, SMALL), Image.BOX), np.float32)


def _holds(words: Sequence[str], phrase: tuple[str, ...]) -> bool:
    return any(tuple(words[i : i + len(phrase)]) == phrase for i in range(len(words) - len(phrase) + 1))


def _phrases() -> dict[tuple[str, ...], str]:
    """Maps the words of each phrase for a background to its name, longest first, because one may contain another."""
    names = {tuple(words_of(phrase)): name for name, phrases in PLACES.items() for phrase in phrases}
    for name in PLAIN:
        for colour in COLOUR_SYNONYMS.get(name, [name]):
            names |= {(colour, "background"): name, ("on", colour): name}
    return dict(sorted(names.items(), key=lambda pair: -len(pair[0])))


PHRASES = _phrases()


def recolour(picture: Image.Image, colour: str) -> Image.Image:
    """An RGBA picture in another colour: the hues near the commonest one turn by the angle from it to the colour's, so that shading,
    white parts and parts in other colours remain; a gray picture is tinted. A picture that has the colour is returned as it is."""
    hue, saturation, value = (np.asarray(part).astype(np.int32) for part in picture.convert("RGB").convert("HSV").split())
    visible = np.asarray(picture.getchannel("A")) > 127
    strong = visible & (saturation > 70) & (value > 40)
    target = round(HUES[colour] / 360 * 256)
    if strong.sum() < GRAY * visible.sum():
        tinted = visible & (value > 60)
        saturation = np.where(tinted, np.maximum(saturation, TINT), saturation)
        turned = np.where(tinted, target, hue)
    else:
        shares = np.bincount(hue[strong] // 8, minlength=32)
        commonest = int((shares + np.roll(shares, 1)).argmax()) * 8  # between two bins of 8
        angle = (target - commonest + 128) % 256 - 128
        if abs(angle) <= SAME_HUE:
            return picture
        near = abs((hue - commonest + 128) % 256 - 128) <= SIMILAR_HUE
        turned = np.where(near & (saturation > 30), hue + angle, hue) % 256
        if colour == "yellow":  # dark yellow is brown
            value = np.where(strong, np.minimum(255, value * 5 // 4), value)
    recoloured = Image.merge("HSV", [Image.fromarray(part.astype(np.uint8)) for part in (turned, saturation, value)]).convert("RGB")
    recoloured.putalpha(picture.getchannel("A"))
    return recoloured


@lru_cache(maxsize=len(PLAIN) + len(PLACES))
def _background_picture(place: str) -> Image.Image:
    """A background as a square RGBA picture of MASTER pixels per side."""
    return Image.fromarray(background(place, 0)).convert("RGBA")


def look_pixels(picture: Image.Image, side: int, along: int, place: str) -> np.ndarray:
    """A look in front of a background, at the scale of a picture with `along` tokens per side, uint8 [8n, 8n, 3].

    picture : RGBA, TILE pixels per side; side : of the object, in pixels on the canvas
    """
    large, pixels = side * (MASTER // CANVAS), along * 8
    corner = (MASTER - large) // 2 // 32 * 32  # rounded down to the token lattice
    whole = _background_picture(place).copy()
    whole.alpha_composite(picture.resize((large, large), Image.LANCZOS), (corner, corner))
    first, last = (v * pixels // MASTER for v in (corner, corner + large))
    return np.asarray(whole.convert("RGB").resize((pixels, pixels), Image.BOX))[first:last, first:last]

"""The world that pictogram learns: scenes of emoji on backgrounds, with captions from a small grammar.

A scene is a pure function of a seed. Objects come from the open Noto Color Emoji font, so the font is needed to train and to
test scenes, never to generate pictures. Places lie on a lattice of 16 pixels (at 128 pixels), which is the tokenizer's lattice at 64
pixels, and sizes are multiples of 8. That makes the world learnable for a small model: the same object at the same size is nearly the
same block of tokens at every place and every scale. Only objects that are close together may be off the lattice. One scene is rendered
at 256 pixels and box-filtered to 128 and 64, so its three sizes agree.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from engine.errors import MissingFont
from engine.words.emoji_objects import COMMON, OBJECTS, PAIRS, TAUGHT, names_of, plural

FONT_PATHS = (
    Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"),
    Path("/usr/share/fonts/noto/NotoColorEmoji.ttf"),
    Path("/usr/share/fonts/google-noto-emoji/NotoColorEmoji.ttf"),
    Path("/usr/share/fonts/google-noto-color-emoji-fonts/NotoColorEmoji.ttf"),
)
FONT_NAME = "Noto Color Emoji 2.042 (Debian package fonts-noto-color-emoji)"
CANVAS = 128  # lattice units are pixels of this canvas
LATTICE = 16  # of places; a token of the 64-pixel picture
MASTER = 256  # every scene is drawn at this size first

# Objects that also exist in other colours (hue of their saturated pixels, degrees); the first colour is the font's own. The list is
# short, because each colour is one more object for the model to learn.
HUES = {"red": 2, "yellow": 48, "green": 120, "blue": 215}
COLOURED = {"car": "red", "balloon": "red", "book": "red", "cap": "blue", "shirt": "blue"}

PLAIN = {
    "red": (214, 64, 60), "orange": (240, 150, 60), "yellow": (247, 214, 90), "green": (92, 176, 96),
    "blue": (86, 138, 222), "purple": (150, 104, 200), "pink": (244, 168, 192), "white": (246, 246, 244),
    "gray": (150, 152, 156), "black": (34, 34, 40), "brown": (140, 98, 68), "turquoise": (84, 190, 190),
}  # fmt: skip
COLOUR_SYNONYMS = {"gray": ["gray", "grey"], "purple": ["purple", "violet"], "turquoise": ["turquoise", "teal"]}

# Landscapes and skies, with their phrases in captions.
PLACES: dict[str, list[str]] = {
    "night sky": [", night sky", " in the night sky", " at night", " under the stars"],
    "sunset sky": [", sunset sky", " at sunset", " in the evening"],
    "cloudy sky": [", cloudy sky", " in a cloudy sky", " among clouds"],
    "blue sky": [", clear sky", " in the sky", " in a clear sky"],
    "meadow": [" on a meadow", " on the grass", " in a field"],
    "beach": [" on a beach", " on the beach", " by the sea"],
    "desert": [" in the desert", " in a desert", " on sand"],
    "snow": [" in the snow", " on snow", " in winter"],
    "underwater": [" under water", " in the sea", " in the ocean"],
    "space": [" in space", ", outer space", " in outer space"],
    "night meadow": [" on a meadow at night", " on the grass at night", " in a field at night"],
    "room": [" in a room", " on a wooden floor", " indoors"],
}

PLAIN_SHARE = 0.45  # of scenes
ANY = "any colour"  # a plain background with a random colour from the texture seed; never in a caption, for training only

COUNTS = ("", "one", "two", "three", "four", "five")
KINDS = {"single": 0.42, "several": 0.2, "pair": 0.3, "triple": 0.08}  # the probability of each kind of scene
SIDES = {"small": 40, "": 48, "large": 64}  # pixels on the canvas; only three, because each size is one more object for the model to learn
EVEN_SIDES = {"small": 32, "": 48, "large": 64}  # of lessons that are even: a small object is as large as a large one of half the picture
SIZE_WORDS = {"small": ["small", "little", "tiny"], "large": ["large", "big", "huge"], "": [""]}
RELATIONS = {
    "above": ["above", "over"],
    "below": ["below", "under", "beneath"],
    "left of": ["left of", "to the left of"],
    "right of": ["right of", "to the right of"],
    "beside": ["and", "beside", "next to", "with", "near"],
    "on": ["on", "on top of"],
    "behind": ["behind"],
}
STYLES = {  # how all objects of a scene are drawn, and the phrases for it, after the objects of a caption
    "": [""],
    "flat": [", flat", " in flat colours", ", flat style"],
    "outlined": [", outlined", " with outlines", " with dark outlines"],
    "soft shadow": [" with a soft shadow", ", soft shadow", " with soft shadows"],
}
THING = "thing"  # the word for an object that a model knows by its look only (see looks.py)
STYLED = 0.25  # the share of styled scenes in a world that has styles
HELD_OUT = 10  # one combination in this many is never trained


@dataclass(frozen=True)
class Dataset:
    """What scenes are made of: objects, counts (drawn as often as they are listed), relations and styles.

    even : objects without a word for their size are as large in company as alone, and several of them stand in a square, so that a model
        has fewer sizes of each object to learn
    """

    objects: tuple[str, ...] = tuple(OBJECTS)
    several: tuple[int, ...] = (2, 2, 3, 3, 4, 5)
    relations: tuple[str, ...] = tuple(RELATIONS)
    styles: tuple[str, ...] = tuple(STYLES)
    even: bool = False


WORLD = Dataset()  # everything; the tokenizer is trained on it
FIRST = Dataset(TAUGHT, (2, 2, 3, 3, 4), ("above", "below", "left of", "right of", "beside"), ("",))  # can be trained on a CPU
COMMON_WORLD = replace(FIRST, objects=COMMON, even=True)  # the common nouns, with the captions of FIRST
LESSONS = {"first": FIRST, "common": COMMON_WORLD, "world": WORLD}


@dataclass(frozen=True)
class Group:
    """One to five equal objects. `size` is "", "small" or "large"; `colour` is "" for the font's own."""

    name: str
    count: int = 1
    size: str = ""
    colour: str = ""


Boxes = tuple[tuple[str, str, int, int, int], ...]  # object, colour, left, top, side in pixels of the canvas


@dataclass(frozen=True)
class Scene:
    """Groups, their relation, a background, a style and the boxes (object, colour, left, top, side) on the 128-pixel canvas, drawn in this
    order, so that later boxes cover earlier ones."""

    groups: tuple[Group, ...]
    relation: str
    background: str
    boxes: Boxes
    texture: int  # seed of stars, clouds, grass
    style: str = ""

    @property
    def combination(self) -> str:
        """The content of the scene: counts, colours and names of the groups, their relation, the background, and the style if any."""
        style = [self.style] if self.style else []
        return "|".join([f"{g.count} {g.colour} {g.name}" for g in self.groups] + [self.relation, self.background, *style])

    @property
    def held_out(self) -> bool:
        """True for a combination that is never trained (a tenth of all, decided by a checksum)."""
        return zlib.crc32(self.combination.encode()) % HELD_OUT == 0


def backgrounds() -> list[str]:
    """Every background: the plain colours, then the places."""
    return [*PLAIN, *PLACES]


# --- making a scene ---------------------------------------------------------------------------------------------------


def make_scene(seed: int, lessons: Dataset = WORLD, kinds: dict[str, float] = KINDS) -> Scene:
    """The scene of a seed, made from `lessons`; `kinds` gives the probability of each kind of scene."""
    names = lessons.objects
    r = random.Random(seed)
    kind = r.choices(list(kinds), list(kinds.values()))[0]
    background = r.choice(list(PLAIN)) if r.random() < PLAIN_SHARE else r.choice(list(PLACES))
    if kind == "single":
        groups, relation = (_group(r, names, 1, sized=0.4),), ""
    elif kind == "several":
        groups, relation = (_group(r, names, r.choice(lessons.several), sized=0),), ""
    elif kind == "pair":
        first = _group(r, names, 2 if r.random() < 0.15 else 1, 0.2)
        second = _group(r, names, 1, 0.2 if first.count == 1 else 0)
        groups, relation = (first, second), r.choice(lessons.relations)
    else:
        groups, relation = tuple(_group(r, names, 1, 0) for _ in range(3)), "beside"
    if len({g.name for g in groups}) < len(groups):
        return make_scene(seed + 1_000_003, lessons, kinds)
    boxes, texture = _place(groups, relation, r, lessons.even), r.getrandbits(31)
    style = r.choice([x for x in lessons.styles if x]) if len(lessons.styles) > 1 and r.random() < STYLED else ""
    return Scene(groups, relation, background, boxes, texture, style)


def _group(r: random.Random, names: Sequence[str], count: int, sized: float) -> Group:
    name = r.choice(names)
    size = r.choice(["small", "large"]) if r.random() < sized else ""
    colour = r.choice(list(HUES)) if name in COLOURED and r.random() < 0.6 else ""
    return Group(name, count, size, "" if COLOURED.get(name) == colour else colour)


def _lattice(r: random.Random, low: int, high: int) -> int:
    """A multiple of the lattice between low and high, both included."""
    return r.randrange(-(-low // LATTICE), high // LATTICE + 1) * LATTICE


def _place(groups: tuple[Group, ...], relation: str, r: random.Random, even: bool) -> Boxes:
    sides = EVEN_SIDES if even else SIDES
    if len(groups) == 1:
        return _alone(groups[0], r, sides, even)
    if len(groups) == 3:
        if even:
            return _square([(g.name, g.colour) for g in groups], r)
        left, top = _lattice(r, 0, 8), _lattice(r, 32, 56)
        return tuple((g.name, g.colour, left + 40 * i, top, 40) for i, g in enumerate(groups))
    lines = [_line(g, sides, relation, even) for g in groups]
    if relation == "on":
        return _stacked(lines, r)
    if relation == "behind":
        return _overlapping(lines, r)
    if relation in ("above", "below"):
        return _apart(lines, 0 if relation == "above" else 1, 1, 48, r)
    return _apart(lines, 1 if relation == "right of" else 0, 0, 56, r)


@dataclass(frozen=True)
class Line:
    """One object, or two equal ones in a line: side by side, or one above the other (`down`), `side` pixels each."""

    group: Group
    side: int
    down: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        """Width and height."""
        long = self.group.count * self.side
        return (self.side, long) if self.down else (long, self.side)

    def at(self, left: int, top: int) -> list[tuple[str, str, int, int, int]]:
        """The boxes of its objects when its corner is at a place."""
        g, steps = self.group, (i * self.side for i in range(self.group.count))
        return [(g.name, g.colour, left + (0 if self.down else step), top + (step if self.down else 0), self.side) for step in steps]


def _line(g: Group, sides: Mapping[str, int], relation: str, even: bool) -> Line:
    """How a group stands in a pair: two of a kind are small ones side by side or, where the lessons are even, full ones across the pair."""
    if g.count == 1 or not even:
        return Line(g, sides[g.size] if g.count == 1 else sides["small"])
    return Line(g, sides[""], down=relation in ("left of", "right of", "beside"))


def _square(members: Sequence[tuple[str, str]], r: random.Random) -> Boxes:
    """Three or four objects (name, colour) in a square, the third of three in the middle below."""
    left, top = _lattice(r, 0, 16), _lattice(r, 0, 16)
    places = [(0, 0), (64, 0), (32, 64)] if len(members) == 3 else [(0, 0), (64, 0), (0, 64), (64, 64)]
    return tuple((name, colour, left + x, top + y, 48) for (name, colour), (x, y) in zip(members, places, strict=True))


def _alone(g: Group, r: random.Random, sides: Mapping[str, int], even: bool) -> Boxes:
    if g.count == 1:
        unsaid = "large" if even else r.choice(["", "large"]) if not g.size else ""  # without a word for its size it is, or may be, large
        side = sides[g.size or unsaid]
        low, high = max(0, (CANVAS - side) // 2 - 16), min(CANVAS - side, (CANVAS - side) // 2 + 16)
        return ((g.name, g.colour, _lattice(r, low, high), _lattice(r, low, high), side),)
    if g.count == 4 or (even and g.count == 3):
        return _square([(g.name, g.colour)] * g.count, r)
    if g.count == 5:
        left, top = _lattice(r, 0, 8), _lattice(r, 0, 40)
        places = [(0, 0), (40, 0), (80, 0), (16, 48), (64, 48)]
        return tuple((g.name, g.colour, left + x, top + y, 40) for x, y in places)
    side, pitch = (48, 64) if g.count == 2 else (40, 40)
    left, top = _lattice(r, 0, CANVAS - pitch * (g.count - 1) - side), _lattice(r, 24, 56)
    return tuple((g.name, g.colour, left + pitch * i, top, side) for i in range(g.count))


def _apart(lines: Sequence[Line], leading: int, axis: int, low: int, r: random.Random) -> Boxes:
    """Two groups one after the other along an axis (0: left to right, 1: top to bottom), group `leading` first.

    Across the axis both are centred on one line, between `low` and 80 pixels.
    """
    extents = [line.extent for line in lines]
    ahead, behind = extents[leading][axis], extents[1 - leading][axis]
    gap = max(0, CANVAS - ahead - behind)
    start = _lattice(r, 0, min(16, gap))
    end = max(start + ahead, (CANVAS - behind) // LATTICE * LATTICE - _lattice(r, 0, max(0, min(16, gap - start - LATTICE))))
    centre = _lattice(r, low, 80)
    found = []
    for i, line in enumerate(lines):
        across = extents[i][1 - axis]
        place = [0, 0]
        place[axis] = start if i == leading else end
        place[1 - axis] = min(max(0, (centre - across // 2) // LATTICE * LATTICE), CANVAS - across)
        found += line.at(*place)
    return tuple(found)


def _stacked(lines: Sequence[Line], r: random.Random) -> Boxes:
    """The first group standing on the second."""
    (wide, high), (width, height) = (line.extent for line in lines)
    top = _lattice(r, 0, CANVAS - high - height)
    left = _lattice(r, max(0, (wide - width) // 2), CANVAS - max(width, (wide + width) // 2))
    above = min(max(0, left + (width - wide) // 2 // LATTICE * LATTICE), CANVAS - wide)
    return tuple(lines[0].at(above, top) + lines[1].at(left, top + high))


def _overlapping(lines: Sequence[Line], r: random.Random) -> Boxes:
    """The first group half hidden by the second, which stands lower and to one side."""
    (wide, high), (width, height) = (line.extent for line in lines)
    down, aside = high // 2 // LATTICE * LATTICE, wide // 2 // LATTICE * LATTICE
    tall, broad = max(high, down + height), max(wide, aside + width)
    top, left = _lattice(r, 0, CANVAS - tall), _lattice(r, 0, CANVAS - broad)
    if r.random() < 0.5:
        return tuple(lines[0].at(left, top) + lines[1].at(left + aside, top + down))
    end = left + broad
    return tuple(lines[0].at(end - wide, top) + lines[1].at(end - aside - width, top + down))


def lessons_of(card: Mapping[str, Any]) -> Dataset:
    """The lessons that a model was trained on, from its card."""
    return LESSONS[card.get("lessons", "first")]


def trained_scenes(seed: int, count: int, kinds: dict[str, float] = KINDS, lessons: Dataset = FIRST) -> list[Scene]:
    """`count` scenes from seed `seed` on, without held-out combinations."""
    return _first(seed, count, False, kinds, lessons)


def held_out_scenes(count: int, lessons: Dataset = FIRST) -> list[Scene]:
    """The first `count` scenes of a fixed range of seeds whose combination is never trained."""
    return _first(2**40, count, True, KINDS, lessons)


def held_out_pairs(count: int, lessons: Dataset = FIRST) -> list[tuple[Scene, str]]:
    """Held-out scenes, each combination once, with a caption each; for benchmarks and contact sheets."""
    first: dict[str, tuple[Scene, str]] = {}
    for i, scene in enumerate(held_out_scenes(8 * count, lessons)):
        first.setdefault(scene.combination, (scene, caption(scene, i)))
    return list(first.values())[:count]


def held_out_prompts(count: int, lessons: Dataset = FIRST) -> list[str]:
    """The captions of `held_out_pairs`."""
    return [text for _, text in held_out_pairs(count, lessons)]


def _first(seed: int, count: int, held_out: bool, kinds: dict[str, float], lessons: Dataset) -> list[Scene]:
    found: list[Scene] = []
    while len(found) < count:
        scene = make_scene(seed, lessons, kinds)
        seed += 1
        if scene.held_out == held_out:
            found.append(scene)
    return found


# --- captions ---------------------------------------------------------------------------------------------------------


def caption(scene: Scene, seed: int, placed: bool = True) -> str:
    """A caption of a scene; the seed picks synonyms and word order. placed=False leaves out the background."""
    r = random.Random(seed)
    said = [_say(g, r) for g in scene.groups]
    if len(said) == 1:
        text = said[0]
    elif len(said) == 3:
        text = f"{said[0]}, {said[1]} and {said[2]}"
    elif scene.relation == "beside" and r.random() < 0.5:
        text = " and ".join(said)
    else:
        text = f"{said[0]} {r.choice(RELATIONS[scene.relation])} {said[1]}"
    text += r.choice(STYLES[scene.style]) if scene.style else ""
    return text + _say_background(scene.background, r) if placed else text


def _say(g: Group, r: random.Random) -> str:
    name = r.choice(names_of(g.name)) if r.random() < 0.35 else g.name
    colour = g.colour or (COLOURED[g.name] if g.name in COLOURED and r.random() < 0.5 else "")
    adjectives = [w for w in (r.choice(SIZE_WORDS[g.size]), colour) if w]
    if g.count > 1:
        return " ".join([r.choice([COUNTS[g.count], COUNTS[g.count], str(g.count)]), *adjectives, plural(name)])
    words = [*adjectives, name]
    if name in PAIRS:
        return " ".join(words)
    article = "an" if words[0][0] in "aeiou" and words[0] not in ("unicorn", "ufo") else "a"
    return " ".join([r.choice([article, article, "one", "the"]), *words])


def _say_background(background: str, r: random.Random) -> str:
    if background in PLACES:
        return r.choice(PLACES[background])
    colour = r.choice(COLOUR_SYNONYMS.get(background, [background]))
    article = "an" if colour[0] in "aeiou" else "a"
    return r.choice([f" on {article} {colour} background", f" on {article} {colour} background", f" on {colour}"])


def words_of(text: str) -> list[str]:
    """The words of a caption or a prompt, lower case, without punctuation."""
    kept = "".join(c if c.isalnum() else " " for c in text.lower())
    return kept.split()


@lru_cache(maxsize=4)
def vocabulary(lessons: Dataset = FIRST) -> tuple[str, ...]:
    """Every word that a caption of these lessons can contain, sorted."""
    said: list[str] = ["a", "an", "the", "and", "on", "background", "one", "1"]
    said += [word for count in lessons.several for word in (COUNTS[count], str(count))]
    for name in lessons.objects:
        for n in names_of(name):
            said += [n, plural(n)]
    said += [*HUES, *PLAIN, *([THING, plural(THING)] if lessons.even else [])]
    told = [RELATIONS[relation] for relation in lessons.relations] + [STYLES[style] for style in lessons.styles]
    for group in (*COLOUR_SYNONYMS.values(), *PLACES.values(), *SIZE_WORDS.values(), *told):
        said += group
    return tuple(sorted({w for text in said for w in words_of(text)}))


# --- drawing a scene --------------------------------------------------------------------------------------------------


def font_path() -> Path:
    """The path of the emoji font; raises MissingFont with the way to install it."""
    for path in FONT_PATHS:
        if path.exists():
            return path
    raise MissingFont(
        "The font Noto Color Emoji is needed to draw training scenes and was not found. "
        "Install it: apt-get install fonts-noto-color-emoji (Debian, Ubuntu), or your system's package of that name."
    )


@lru_cache(maxsize=4096)
def sprite(name: str, colour: str, side: int, style: str = "") -> Image.Image:
    """One object as RGBA, `side` x `side` pixels, cropped to its ink and centred, drawn in a style."""
    symbol = OBJECTS[name].split(" ")[0]
    picture = Image.new("RGBA", (160, 160))
    font = ImageFont.truetype(str(font_path()), 109)  # the only size of the bitmap font
    ImageDraw.Draw(picture).text((10, 10), symbol, font=font, embedded_color=True)
    picture = picture.crop(picture.getbbox())
    square = Image.new("RGBA", (max(picture.size),) * 2)
    square.paste(picture, tuple((max(picture.size) - s) // 2 for s in picture.size))
    if colour:
        square = _recolour(square, HUES[colour])
    small = square.resize((side, side), Image.LANCZOS)
    return DRAWN[style](small) if style else small


def _flat(picture: Image.Image) -> Image.Image:
    """Five colours and hard edges."""
    ink = picture.getchannel("A").point(lambda a: 255 if a >= 128 else 0)
    flat = picture.convert("RGB").quantize(5, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).convert("RGB")
    flat.putalpha(ink)
    return flat


def _outlined(picture: Image.Image) -> Image.Image:
    """A dark line around the ink."""
    smaller = picture.resize(tuple(round(s * 0.9) for s in picture.size), Image.LANCZOS)
    found = Image.new("RGBA", picture.size)
    found.paste(smaller, tuple((a - b) // 2 for a, b in zip(picture.size, smaller.size, strict=True)))
    line = Image.new("RGBA", picture.size, (38, 34, 46, 255))
    line.putalpha(found.getchannel("A").point(lambda a: 255 if a >= 128 else 0).filter(ImageFilter.MaxFilter(5)))
    return Image.alpha_composite(line, found)


def _shadowed(picture: Image.Image) -> Image.Image:
    """A soft shadow below and to the right."""
    width = picture.width
    smaller = picture.resize((round(width * 0.9),) * 2, Image.LANCZOS)
    found, shadow = Image.new("RGBA", picture.size), Image.new("RGBA", picture.size)
    found.paste(smaller, (0, 0))
    dark = Image.new("RGBA", smaller.size, (20, 20, 30, 255))
    dark.putalpha(smaller.getchannel("A").point(lambda a: a * 0.5))
    shadow.paste(dark, (width - smaller.width,) * 2)
    return Image.alpha_composite(shadow.filter(ImageFilter.GaussianBlur(width / 32)), found)


DRAWN: dict[str, Callable[[Image.Image], Image.Image]] = {"flat": _flat, "outlined": _outlined, "soft shadow": _shadowed}


def _recolour(picture: Image.Image, hue: int) -> Image.Image:
    """Changes the hue of every saturated pixel; shading and white parts stay."""
    alpha = picture.getchannel("A")
    h, s, v = (np.array(c) for c in picture.convert("RGB").convert("HSV").split())
    strong = s > 70
    h = np.where(strong, round(hue / 360 * 255), h).astype(np.uint8)
    bright = np.where(strong & (hue == HUES["yellow"]), np.minimum(255, v * 1.25), v).astype(np.uint8)
    turned = Image.merge("HSV", [Image.fromarray(x) for x in (h, s, bright)]).convert("RGB")
    turned.putalpha(alpha)
    return turned


def render(scene: Scene, pixels: int) -> np.ndarray:
    """The picture of a scene, uint8 [pixels, pixels, 3]; pixels is 64, 128 or 256."""
    picture = Image.fromarray(background(scene.background, scene.texture)).convert("RGBA")
    scale = MASTER // CANVAS
    for name, colour, left, top, side in scene.boxes:
        drawn = sprite(name, colour, side * scale, scene.style)
        picture.alpha_composite(drawn, (left * scale, top * scale))
    small = picture.convert("RGB")
    if pixels != MASTER:
        small = small.resize((pixels, pixels), Image.BOX)
    return np.asarray(small)


def _gradient(*stops: tuple[float, tuple[int, int, int]]) -> np.ndarray:
    """A vertical colour gradient, float32 [MASTER, MASTER, 3]; stops are (height 0..1, colour)."""
    y = np.linspace(0, 1, MASTER)
    at = [s[0] for s in stops]
    rows = np.stack([np.interp(y, at, [s[1][c] for s in stops]) for c in range(3)], -1)
    return np.repeat(rows[:, None, :], MASTER, 1).astype(np.float32)


def _speckle(picture: np.ndarray, r: np.random.Generator, count: int, colour, size: int, top: int, bottom: int) -> None:
    """Small squares of a colour (stars, flakes, pebbles) between two rows."""
    for x, y in zip(r.integers(0, MASTER - size, count), r.integers(top, bottom - size, count), strict=True):
        picture[y : y + size, x : x + size] = colour


def _puffs(picture: np.ndarray, r: np.random.Generator, count: int) -> None:
    """Soft white clouds made of three discs."""
    yy, xx = np.mgrid[0:MASTER, 0:MASTER]
    for _ in range(count):
        cx, cy = r.integers(20, MASTER - 20), r.integers(16, 150)
        for dx, size in ((-22, 13), (0, 20), (22, 14)):
            inside = ((xx - cx - dx) / 1.4) ** 2 + (yy - cy) ** 2 < size**2
            picture[inside] = 0.25 * picture[inside] + 0.75 * np.array((255, 255, 255))


@lru_cache(maxsize=512)
def background(name: str, texture: int) -> np.ndarray:
    """A background, uint8 [MASTER, MASTER, 3]. Each place has 16 variants of its texture, few enough to be learned."""
    r = np.random.default_rng(texture % 16)
    if name == ANY:
        colour = np.random.default_rng(texture).integers(0, 256, 3).astype(np.uint8)
        return np.broadcast_to(colour, (MASTER, MASTER, 3)).copy()
    if name in PLAIN:
        return np.broadcast_to(np.array(PLAIN[name], np.uint8), (MASTER, MASTER, 3)).copy()
    if name == "night sky":
        p = _gradient((0, (14, 18, 52)), (1, (46, 52, 104)))
        _speckle(p, r, 26, (250, 246, 210), 4, 0, MASTER)
    elif name == "sunset sky":
        p = _gradient((0, (84, 70, 140)), (0.5, (226, 110, 110)), (1, (252, 196, 110)))
    elif name == "cloudy sky":
        p = _gradient((0, (98, 160, 230)), (1, (190, 222, 248)))
        _puffs(p, r, 4)
    elif name == "blue sky":
        p = _gradient((0, (92, 158, 232)), (1, (202, 230, 250)))
    elif name == "meadow":
        p = _land((120, 184, 240), (206, 232, 250), (118, 190, 84), (76, 148, 60))
        _speckle(p, r, 22, (240, 240, 140), 4, 168, MASTER)
    elif name == "night meadow":
        p = _land((14, 18, 52), (46, 52, 104), (34, 82, 60), (20, 56, 44))
        _speckle(p, r, 18, (250, 246, 210), 4, 0, 150)
    elif name == "beach":
        p = _land((126, 192, 242), (206, 234, 250), (240, 218, 160), (224, 190, 124))
        p[128:160] = np.array((62, 150, 204))
    elif name == "desert":
        p = _land((246, 206, 140), (252, 232, 190), (228, 172, 96), (204, 140, 72))
    elif name == "snow":
        p = _land((150, 176, 208), (206, 220, 236), (244, 248, 252), (222, 232, 244))
        _speckle(p, r, 30, (255, 255, 255), 4, 0, 160)
    elif name == "underwater":
        p = _gradient((0, (70, 178, 214)), (1, (16, 66, 130)))
        _speckle(p, r, 14, (150, 214, 236), 6, 0, MASTER)
    elif name == "space":
        p = _gradient((0, (10, 8, 20)), (1, (24, 12, 44)))
        _speckle(p, r, 34, (236, 236, 255), 2, 0, MASTER)
        _speckle(p, r, 10, (180, 160, 250), 4, 0, MASTER)
    else:  # room
        p = _land((236, 222, 200), (226, 208, 184), (170, 116, 72), (146, 96, 58))
        for x in range(0, MASTER, 32):
            p[160:, x : x + 2] *= 0.8
    return np.clip(p, 0, 255).astype(np.uint8)


def _land(sky_top, sky_low, ground_high, ground_low) -> np.ndarray:
    """Sky above ground, the horizon at five eighths (row 160 of 256: on the token lattice at every scale)."""
    sky = _gradient((0, sky_top), (0.625, sky_low), (1, sky_low))
    ground = _gradient((0, ground_high), (0.625, ground_high), (1, ground_low))
    sky[160:] = ground[160:]
    return sky

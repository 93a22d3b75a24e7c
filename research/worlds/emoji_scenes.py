"""The world that pictogram learns: scenes of emoji on backgrounds, with captions from a small grammar.

A scene is a pure function of a seed. Objects come from the open Noto Color Emoji font, so the font is needed to train and to
test scenes, never to generate pictures. Places lie on a lattice of 16 pixels (at 128 pixels), which is the tokenizer's lattice at 64
pixels, and sizes are multiples of 8. That makes the world learnable for a small model: the same object at the same size is nearly the
same block of tokens at every place and every scale. Only objects that are close together may be off the lattice. One scene is rendered
at 256 pixels and box-filtered to 128 and 64, so its three sizes agree.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from engine.words.emoji_objects import COMMON, OBJECTS, PAIRS, TAUGHT, names_of, plural
from engine.words.looks import SQUARE, TILE, Look, look_of, recolour
from engine.words.world import (
    CANVAS,
    COLOUR_SYNONYMS,
    COLOURED,
    COUNTS,
    EVEN_SIDES,
    FIRST_HUES,
    HUES,
    MASTER,
    PLACES,
    PLAIN,
    PLAIN_SHARE,
    RELATIONS,
    SIZE_WORDS,
    THING,
    Boxes,
    ObjectGroup,
    Scene,
    background,
    font_path,
    words_of,
)

FONT_NAME = "Noto Color Emoji 2.042 (Debian package fonts-noto-color-emoji)"
LATTICE = 16  # of places; a token of the 64-pixel picture
KINDS = {"single": 0.42, "several": 0.2, "pair": 0.3, "triple": 0.08}  # the probability of each kind of scene
SIDES = {"small": 40, "": 48, "large": 64}  # pixels on the canvas; only three, because each size is one more object for the model to learn
STYLES = {  # how all objects of a scene are drawn, and the phrases for it, after the objects of a caption
    "": [""],
    "flat": [", flat", " in flat colours", ", flat style"],
    "outlined": [", outlined", " with outlines", " with dark outlines"],
    "soft shadow": [" with a soft shadow", ", soft shadow", " with soft shadows"],
}
TINTED = 0.2  # the share of objects in another colour, in a world as people ask for it
STYLED = 0.25  # the share of styled scenes in a world that has styles


@dataclass(frozen=True)
class SceneSettings:
    """Contents of scenes: objects, counts (drawn as often as they are listed), relations and styles.

    tinted : a share of all objects has another colour
    even : objects without a size word are as large in company as alone, and several of them form a square, so that a model has fewer sizes
        of each object to learn
    """

    objects: tuple[str, ...] = tuple(OBJECTS)
    several: tuple[int, ...] = (2, 2, 3, 3, 4, 5)
    relations: tuple[str, ...] = tuple(RELATIONS)
    styles: tuple[str, ...] = tuple(STYLES)
    even: bool = False
    tinted: bool = False


WORLD = SceneSettings()  # everything; the tokenizer is trained on it
FIRST = SceneSettings(TAUGHT, (2, 2, 3, 3, 4), ("above", "below", "left of", "right of", "beside"), ("",))  # can be trained on a CPU
COMMON_WORLD = replace(FIRST, objects=COMMON, even=True)  # the common nouns, with the captions of FIRST
SPOKEN = replace(COMMON_WORLD, several=(2, 2, 3, 3, 4, 4, 5, 6), tinted=True)
LESSONS = {"first": FIRST, "common": COMMON_WORLD, "spoken": SPOKEN, "world": WORLD}


# --- making a scene ---------------------------------------------------------------------------------------------------


def make_scene(seed: int, lessons: SceneSettings = WORLD, kinds: dict[str, float] = KINDS) -> Scene:
    """The scene of a seed, made from `lessons`; `kinds` gives the probability of each kind of scene."""
    r = random.Random(seed)
    group = partial(_group, r, lessons)
    kind = r.choices(list(kinds), list(kinds.values()))[0]
    background = r.choice(list(PLAIN)) if r.random() < PLAIN_SHARE else r.choice(list(PLACES))
    if kind == "single":
        groups, relation = (group(1, 0.4),), ""
    elif kind == "several":
        groups, relation = (group(r.choice(lessons.several), 0),), ""
    elif kind == "pair":
        first = group(2 if r.random() < 0.15 else 1, 0.2)
        second = group(1, 0.2 if first.count == 1 else 0)
        groups, relation = (first, second), r.choice(lessons.relations)
    else:
        groups, relation = tuple(group(1, 0) for _ in range(3)), "beside"
    if len({g.name for g in groups}) < len(groups):
        return make_scene(seed + 1_000_003, lessons, kinds)
    boxes, texture = _place(groups, relation, r, lessons.even), r.getrandbits(31)
    style = r.choice([x for x in lessons.styles if x]) if len(lessons.styles) > 1 and r.random() < STYLED else ""
    return Scene(groups, relation, background, boxes, texture, style)


def _group(r: random.Random, lessons: SceneSettings, count: int, sized: float) -> ObjectGroup:
    name = r.choice(lessons.objects)
    size = r.choice(["small", "large"]) if r.random() < sized else ""
    colour = r.choice(FIRST_HUES) if name in COLOURED and r.random() < 0.6 else ""
    if lessons.tinted and not colour and r.random() < TINTED:
        colour = r.choice(list(HUES))
    return ObjectGroup(name, count, size, "" if COLOURED.get(name) == colour else colour)


def _lattice(r: random.Random, low: int, high: int) -> int:
    """A multiple of the lattice between low and high, both included."""
    return r.randrange(-(-low // LATTICE), high // LATTICE + 1) * LATTICE


def _place(groups: tuple[ObjectGroup, ...], relation: str, r: random.Random, even: bool) -> Boxes:
    sides = EVEN_SIDES if even else SIDES
    if len(groups) == 1:
        return _place_alone(groups[0], r, sides, even)
    if len(groups) == 3:
        if even:
            return _square([(g.name, g.colour) for g in groups], r)
        left, top = _lattice(r, 0, 8), _lattice(r, 32, 56)
        return tuple((g.name, g.colour, left + 40 * i, top, 40) for i, g in enumerate(groups))
    lines = [_line(g, sides, relation, even) for g in groups]
    if relation == "on":
        return _stack(lines, r)
    if relation == "behind":
        return _overlap(lines, r)
    if relation in ("above", "below"):
        return _in_line(lines, 0 if relation == "above" else 1, 1, 48, r)
    return _in_line(lines, 1 if relation == "right of" else 0, 0, 56, r)


@dataclass(frozen=True)
class ObjectLine:
    """One object, or two equal ones in a line: side by side, or one above the other (`down`), `side` pixels each."""

    group: ObjectGroup
    side: int
    down: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        """Width and height."""
        long = self.group.count * self.side
        return (self.side, long) if self.down else (long, self.side)

    def at(self, left: int, top: int) -> list[tuple[str, str, int, int, int]]:
        """The boxes of its objects, with its corner at a place."""
        g, steps = self.group, (i * self.side for i in range(self.group.count))
        return [(g.name, g.colour, left + (0 if self.down else step), top + (step if self.down else 0), self.side) for step in steps]


def _line(g: ObjectGroup, sides: Mapping[str, int], relation: str, even: bool) -> ObjectLine:
    """The line of a group in a pair: two of a kind are small and side by side or, in even lessons, full-size and across the pair."""
    if g.count == 1 or not even:
        return ObjectLine(g, sides[g.size] if g.count == 1 else sides["small"])
    return ObjectLine(g, sides[""], down=relation in ("left of", "right of", "beside"))


def _square(members: Sequence[tuple[str, str]], r: random.Random) -> Boxes:
    """Three or four objects (name, colour) in a square, the third of three in the middle below."""
    left, top = _lattice(r, 0, 16), _lattice(r, 0, 16)
    places = [(0, 0), (64, 0), (32, 64)] if len(members) == 3 else [(0, 0), (64, 0), (0, 64), (64, 64)]
    return tuple((name, colour, left + x, top + y, 48) for (name, colour), (x, y) in zip(members, places, strict=True))


def _place_alone(g: ObjectGroup, r: random.Random, sides: Mapping[str, int], even: bool) -> Boxes:
    if g.count == 1:
        implied = "large" if even else r.choice(["", "large"]) if not g.size else ""  # without a size word it is, or may be, large
        side = sides[g.size or implied]
        low, high = max(0, (CANVAS - side) // 2 - 16), min(CANVAS - side, (CANVAS - side) // 2 + 16)
        return ((g.name, g.colour, _lattice(r, low, high), _lattice(r, low, high), side),)
    if g.count in (3, SQUARE) and (even or g.count == SQUARE):
        return _square([(g.name, g.colour)] * g.count, r)
    if g.count > SQUARE and even:
        top, side = _lattice(r, 0, 32), EVEN_SIDES["small"]
        below = (16, 80) if g.count == 5 else (0, 48, 96)
        return tuple((g.name, g.colour, x, top + y, side) for y, columns in ((0, (0, 48, 96)), (64, below)) for x in columns)
    if g.count == 5:
        left, top = _lattice(r, 0, 8), _lattice(r, 0, 40)
        places = [(0, 0), (40, 0), (80, 0), (16, 48), (64, 48)]
        return tuple((g.name, g.colour, left + x, top + y, 40) for x, y in places)
    side, pitch = (48, 64) if g.count == 2 else (40, 40)
    left, top = _lattice(r, 0, CANVAS - pitch * (g.count - 1) - side), _lattice(r, 24, 56)
    return tuple((g.name, g.colour, left + pitch * i, top, side) for i in range(g.count))


def _in_line(lines: Sequence[ObjectLine], leading: int, axis: int, low: int, r: random.Random) -> Boxes:
    """Two groups one after the other along an axis (0: left to right, 1: top to bottom), group `leading` first.

    Across the axis both are centred on one line, between `low` and 80 pixels.
    """
    extents = [line.extent for line in lines]
    ahead, behind = extents[leading][axis], extents[1 - leading][axis]
    gap = max(0, CANVAS - ahead - behind)
    start = _lattice(r, 0, min(16, gap))
    end = max(start + ahead, (CANVAS - behind) // LATTICE * LATTICE - _lattice(r, 0, max(0, min(16, gap - start - LATTICE))))
    centre = _lattice(r, low, 80)
    boxes = []
    for i, line in enumerate(lines):
        across = extents[i][1 - axis]
        place = [0, 0]
        place[axis] = start if i == leading else end
        place[1 - axis] = min(max(0, (centre - across // 2) // LATTICE * LATTICE), CANVAS - across)
        boxes += line.at(*place)
    return tuple(boxes)


def _stack(lines: Sequence[ObjectLine], r: random.Random) -> Boxes:
    """The first group standing on the second."""
    (wide, high), (width, height) = (line.extent for line in lines)
    top = _lattice(r, 0, CANVAS - high - height)
    left = _lattice(r, max(0, (wide - width) // 2), CANVAS - max(width, (wide + width) // 2))
    above = min(max(0, left + (width - wide) // 2 // LATTICE * LATTICE), CANVAS - wide)
    return tuple(lines[0].at(above, top) + lines[1].at(left, top + high))


def _overlap(lines: Sequence[ObjectLine], r: random.Random) -> Boxes:
    """The first group half hidden by the second, which stands lower and to one side."""
    (wide, high), (width, height) = (line.extent for line in lines)
    down, aside = high // 2 // LATTICE * LATTICE, wide // 2 // LATTICE * LATTICE
    tall, broad = max(high, down + height), max(wide, aside + width)
    top, left = _lattice(r, 0, CANVAS - tall), _lattice(r, 0, CANVAS - broad)
    if r.random() < 0.5:
        return tuple(lines[0].at(left, top) + lines[1].at(left + aside, top + down))
    end = left + broad
    return tuple(lines[0].at(end - wide, top) + lines[1].at(end - aside - width, top + down))


def lessons_of(card: Mapping[str, Any]) -> SceneSettings:
    """The lessons that a model was trained on, from its card."""
    return LESSONS[card.get("lessons", "first")]


def trained_scenes(seed: int, count: int, kinds: dict[str, float] = KINDS, lessons: SceneSettings = FIRST) -> list[Scene]:
    """`count` scenes from seed `seed` on, without held-out combinations."""
    return _take_scenes(seed, count, False, kinds, lessons)


def held_out_scenes(count: int, lessons: SceneSettings = FIRST) -> list[Scene]:
    """The first `count` scenes of a fixed range of seeds whose combination is never trained."""
    return _take_scenes(2**40, count, True, KINDS, lessons)


def held_out_pairs(count: int, lessons: SceneSettings = FIRST) -> list[tuple[Scene, str]]:
    """Held-out scenes, each combination once, with a caption each; for benchmarks and contact sheets."""
    first: dict[str, tuple[Scene, str]] = {}
    for i, scene in enumerate(held_out_scenes(8 * count, lessons)):
        first.setdefault(scene.combination, (scene, caption(scene, i)))
    return list(first.values())[:count]


def held_out_prompts(count: int, lessons: SceneSettings = FIRST) -> list[str]:
    """The captions of `held_out_pairs`."""
    return [text for _, text in held_out_pairs(count, lessons)]


def _take_scenes(seed: int, count: int, held_out: bool, kinds: dict[str, float], lessons: SceneSettings) -> list[Scene]:
    scenes: list[Scene] = []
    while len(scenes) < count:
        scene = make_scene(seed, lessons, kinds)
        seed += 1
        if scene.held_out == held_out:
            scenes.append(scene)
    return scenes


# --- captions ---------------------------------------------------------------------------------------------------------


def caption(scene: Scene, seed: int, placed: bool = True) -> str:
    """A caption of a scene; the seed picks synonyms and word order. placed=False leaves out the background."""
    r = random.Random(seed)
    phrases = [_say(g, r) for g in scene.groups]
    if len(phrases) == 1:
        text = phrases[0]
    elif len(phrases) == 3:
        text = f"{phrases[0]}, {phrases[1]} and {phrases[2]}"
    elif scene.relation == "beside" and r.random() < 0.5:
        text = " and ".join(phrases)
    else:
        text = f"{phrases[0]} {r.choice(RELATIONS[scene.relation])} {phrases[1]}"
    text += r.choice(STYLES[scene.style]) if scene.style else ""
    return text + _say_background(scene.background, r) if placed else text


def _say(g: ObjectGroup, r: random.Random) -> str:
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


@lru_cache(maxsize=4)
def vocabulary(lessons: SceneSettings = FIRST) -> tuple[str, ...]:
    """Every word that a caption of these lessons can contain, sorted."""
    texts: list[str] = ["a", "an", "the", "and", "on", "background", "one", "1"]
    texts += [word for count in lessons.several for word in (COUNTS[count], str(count))]
    for name in lessons.objects:
        for n in names_of(name):
            texts += [n, plural(n)]
    texts += [*FIRST_HUES, *PLAIN, *([THING, plural(THING)] if lessons.even else [])]
    phrases = [RELATIONS[relation] for relation in lessons.relations] + [STYLES[style] for style in lessons.styles]
    for group in (*COLOUR_SYNONYMS.values(), *PLACES.values(), *SIZE_WORDS.values(), *phrases):
        texts += group
    return tuple(sorted({w for text in texts for w in words_of(text)}))


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
        square = recolour(square, colour)
    small = square.resize((side, side), Image.LANCZOS)
    return STYLE_EFFECTS[style](small) if style else small


def _flatten(picture: Image.Image) -> Image.Image:
    """Five colours and hard edges."""
    ink = picture.getchannel("A").point(lambda a: 255 if a >= 128 else 0)
    flat = picture.convert("RGB").quantize(5, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).convert("RGB")
    flat.putalpha(ink)
    return flat


def _outline(picture: Image.Image) -> Image.Image:
    """A dark line around the ink."""
    smaller = picture.resize(tuple(round(s * 0.9) for s in picture.size), Image.LANCZOS)
    centred = Image.new("RGBA", picture.size)
    centred.paste(smaller, tuple((a - b) // 2 for a, b in zip(picture.size, smaller.size, strict=True)))
    line = Image.new("RGBA", picture.size, (38, 34, 46, 255))
    line.putalpha(centred.getchannel("A").point(lambda a: 255 if a >= 128 else 0).filter(ImageFilter.MaxFilter(5)))
    return Image.alpha_composite(line, centred)


def _add_shadow(picture: Image.Image) -> Image.Image:
    """A soft shadow below and to the right."""
    width = picture.width
    smaller = picture.resize((round(width * 0.9),) * 2, Image.LANCZOS)
    placed, shadow = Image.new("RGBA", picture.size), Image.new("RGBA", picture.size)
    placed.paste(smaller, (0, 0))
    dark = Image.new("RGBA", smaller.size, (20, 20, 30, 255))
    dark.putalpha(smaller.getchannel("A").point(lambda a: a * 0.5))
    shadow.paste(dark, (width - smaller.width,) * 2)
    return Image.alpha_composite(shadow.filter(ImageFilter.GaussianBlur(width / 32)), placed)


STYLE_EFFECTS: dict[str, Callable[[Image.Image], Image.Image]] = {"flat": _flatten, "outlined": _outline, "soft shadow": _add_shadow}


def render(scene: Scene, pixels: int) -> np.ndarray:
    """The picture of a scene, uint8 [pixels, pixels, 3]; pixels is 64, 128 or 256."""
    picture = Image.fromarray(background(scene.background, scene.texture)).convert("RGBA")
    scale = MASTER // CANVAS
    for name, colour, left, top, side in scene.boxes:
        object_sprite = sprite(name, colour, side * scale, scene.style)
        picture.alpha_composite(object_sprite, (left * scale, top * scale))
    small = picture.convert("RGB")
    if pixels != MASTER:
        small = small.resize((pixels, pixels), Image.BOX)
    return np.asarray(small)


# --- the looks of a scene ---------------------------------------------------------------------------------------------


def looks_of_scene(scene: Scene) -> tuple[Look, ...]:
    """The looks of a scene's groups, in the order of its caption."""
    alone = len(scene.groups) == 1 and scene.groups[0].count == 1
    return tuple(look_of(group, alone) for group in scene.groups)


def object_picture(name: str) -> Image.Image:
    """The picture of an object, from the font."""
    return sprite(name, "", TILE)

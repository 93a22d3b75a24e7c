"""The world of pictogram: its colours, places, sizes and relations with their words, and its scenes.

Positions are in pixels of a canvas of 128. Only training makes scenes and captions from seeds: research/worlds/emoji_scenes.py.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from engine.errors import MissingFont

FONT_PATHS = (
    Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf"),
    Path("/usr/share/fonts/noto/NotoColorEmoji.ttf"),
    Path("/usr/share/fonts/google-noto-emoji/NotoColorEmoji.ttf"),
    Path("/usr/share/fonts/google-noto-color-emoji-fonts/NotoColorEmoji.ttf"),
)
CANVAS = 128  # lattice units are pixels of this canvas
MASTER = 256  # every scene is first drawn at this size

# Hues in degrees of the colours that an object can have besides its own.
HUES = {"red": 2, "orange": 28, "yellow": 48, "green": 120, "blue": 215, "purple": 275, "pink": 330}
FIRST_HUES = ("red", "yellow", "green", "blue")  # of the objects in COLOURED, which have a colour of the font
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

COUNTS = ("", "one", "two", "three", "four", "five", "six")
EVEN_SIDES = {
    "small": 32,
    "": 48,
    "large": 64,
}  # for curricula with even sizes: a small object is as large as a large one in half the picture
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
THING = "thing"  # the word for an object that a model knows only by its look (see looks.py)
HELD_OUT = 10  # one combination in this many is never used for training


@dataclass(frozen=True)
class ObjectGroup:
    """One to six equal objects. `size` is "", "small" or "large"; `colour` is "" for the font's own."""

    name: str
    count: int = 1
    size: str = ""
    colour: str = ""


Boxes = tuple[tuple[str, str, int, int, int], ...]  # object, colour, left, top, side in pixels of the canvas


@dataclass(frozen=True)
class Scene:
    """Groups, their relation, a background, a style and the boxes (object, colour, left, top, side) on the 128-pixel canvas, drawn in this
    order, so that later boxes cover earlier ones."""

    groups: tuple[ObjectGroup, ...]
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
        """True if the combination is never used for training (a tenth of all, by a checksum)."""
        return zlib.crc32(self.combination.encode()) % HELD_OUT == 0


def backgrounds() -> list[str]:
    """Every background: the plain colours, then the places."""
    return [*PLAIN, *PLACES]


def words_of(text: str) -> list[str]:
    """The words of a caption or a prompt, lower case, without punctuation."""
    letters = "".join(c if c.isalnum() else " " for c in text.lower())
    return letters.split()


def font_path() -> Path:
    """The path of the emoji font; raises MissingFont with installation advice."""
    for path in FONT_PATHS:
        if path.exists():
            return path
    raise MissingFont(
        "The font Noto Color Emoji is needed to draw training scenes and was not found. "
        "Install it: apt-get install fonts-noto-color-emoji (Debian, Ubuntu), or your system's package of that name."
    )


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
    else:  # a room
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

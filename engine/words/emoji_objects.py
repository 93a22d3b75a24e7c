"""The objects of pictogram's world, from emoji_objects.toml: their emoji and names, and the ones that a model is trained on."""

from __future__ import annotations

import tomllib
from pathlib import Path

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
KINDS: dict[str, dict[str, str]] = _TABLES["kinds"]
OBJECTS: dict[str, str] = {name: text for kind in KINDS.values() for name, text in kind.items()}
TAUGHT: tuple[str, ...] = tuple(_TABLES["taught"])
COMMON: tuple[str, ...] = (*TAUGHT, *_TABLES["common"])
IRREGULAR: dict[str, str] = _TABLES["irregular"]
PAIRS: tuple[str, ...] = tuple(_TABLES["pairs"])


def plural(name: str) -> str:
    """The plural of an object's name: "cherry" -> "cherries", "mouse" -> "mice"."""
    if name in IRREGULAR:
        return IRREGULAR[name]
    if name.endswith("y") and name[-2] not in "aeiou":
        return name[:-1] + "ies"
    return name + ("es" if name.endswith(("s", "x", "ch", "sh", "o")) else "s")


def article(word: str) -> str:
    """ "a" or "an"."""
    return "an" if word[0] in "aeiou" and word not in ("unicorn", "ufo") else "a"


def names_of(name: str) -> list[str]:
    """The name and its synonyms."""
    _, _, rest = OBJECTS[name].partition(" ")
    return [name, *(rest.split("|") if rest else [])]

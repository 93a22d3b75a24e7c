"""Replaces the emoji in a text with words: "🐶🐱" -> "dog cat", "🐶🐶" -> "two dogs"."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from itertools import groupby
from pathlib import Path

from engine.words.emoji_objects import OBJECTS, plural

SELECTORS = "\ufe0e\ufe0f"  # variation selectors: text style, picture style
SKIN = "\U0001f3fb-\U0001f3ff"
JOINER = "\u200d"
_BASE = "[\u2600-\u27bf\u2b00-\u2bff\u2300-\u23ff\u3030\u303d\u3297\u3299\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff]"
_ONE = f"{_BASE}[{SELECTORS}{SKIN}\U000e0020-\U000e007f]*"
_FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
EMOJI = re.compile(f"{_FLAG}|{_ONE}(?:{JOINER}{_ONE})*|[0-9#*][{SELECTORS}]*\u20e3")
_DROPPED = re.compile(f"[{SELECTORS}{SKIN}\u20e3\U000e0020-\U000e007f]")

NUMBERS = ("", "", "two", "three", "four", "five")

OTHERS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def strip_variants(emoji: str) -> str:
    """An emoji without skin tone and variation selectors: equal for all its spellings."""
    return _DROPPED.sub("", emoji)


@cache
def _names() -> dict[str, str]:
    """Maps bare emoji to names."""
    names: dict[str, str] = {}
    for name, emoji in OTHERS.items():
        names |= {strip_variants(match): name for match in EMOJI.findall(emoji)}
    return names | {strip_variants(text.split(" ")[0]): name for name, text in OBJECTS.items()}


def name_of(emoji: str) -> str:
    """The name of one emoji, or the emoji itself if it has none. A joined
    family gives the name of each person; other joined emoji give only the first name."""
    whole = strip_variants(emoji)
    if re.fullmatch("[0-9#*]", whole) or whole in _names():
        return _names().get(whole, whole)
    parts = [part for part in whole.split(JOINER) if part in _names()]
    people = [_names()[part] for part in parts if _names()[part] in ("man", "woman", "boy", "girl", "baby")]
    if len(people) > 1 and len(people) == len(whole.split(JOINER)):
        return " ".join(people)
    first = whole.split(JOINER)[0]
    return _names().get(first, whole)


def spell(text: str) -> str:
    """A text with its emoji as words between spaces; repeats of an emoji become a number."""

    def in_words(match: re.Match[str]) -> str:
        words = []
        for name, same in groupby(name_of(one) for one in EMOJI.findall(match.group())):
            count = len(list(same))
            known = name.isascii() and not name.isdigit() and " " not in name
            counted = known and 1 < count < len(NUMBERS)
            words += [f"{NUMBERS[count]} {plural(name)}"] if counted else [name] * count
        return f" {' '.join(words)} "

    return re.sub(f"(?:{EMOJI.pattern})+", in_words, text)

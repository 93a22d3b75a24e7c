"""Reads a prompt with a limited vocabulary: the known words, the objects that they name, and suggestions for the unknown words."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from functools import cache

from engine.words.emoji_names import EMOJI, spell
from engine.words.emoji_objects import IRREGULAR, KINDS, OBJECTS, names_of, plural
from engine.words.meanings import DECEPTIVE, NEAR, OTHER, PHRASES, READ_AS

WORD = re.compile(rf"{EMOJI.pattern}|[^\W_]+")
POSSESSIVE = re.compile(r"['’]s\b")
MOST = 3  # number of suggestions
LOOSE = 6  # minimum letters of a word for two spelling mistakes
NEGATIONS = frozenset({"no", "not", "without"})
JOINING = frozenset({"and", "but", "or", "with"})
FRUIT = "tangerine"  # or an orange, which is also a colour
AFTER_A_THING = JOINING | {
    "",
    "a",
    "above",
    "an",
    "at",
    "behind",
    "below",
    "beside",
    "by",
    "in",
    "is",
    "near",
    "next",
    "on",
    "over",
    "under",
}
FARTHEST = 3  # number of words, such as "a large red", between a negation and the object that it leaves out
SHORTEST = 3  # minimum letters of a word for one mistake
SURE = 5  # minimum letters of a word that is corrected without asking
# kinds of groups whose members resemble each other
WITH_FALLBACK = ("animals", "food", "vehicles", "plants", "buildings", "people", "clothes", "music", "sport")


@dataclass(frozen=True)
class PromptReading:
    """A prompt as a model reads it.

    words   : the known words in order, synonyms replaced
    unknown : the unknown words, each with up to three known objects to suggest
    objects : the objects of the world that are named and known, without repetition
    left_out: objects after "no", "not" or "without", which are not read
    """

    words: tuple[str, ...]
    unknown: dict[str, list[str]]
    objects: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def split(text: str) -> list[str]:
    """Lower-case words without punctuation; emoji are replaced by their names, or remain if they have none."""
    return WORD.findall(POSSESSIVE.sub("", spell(text.lower())))


def read(text: str, known: Container[str]) -> PromptReading:
    """Read a text with a model's vocabulary."""
    tokens, left_out = _leave_out(_named_things(split(text)))
    words: list[str] = []
    unknown: dict[str, list[str]] = {}
    i = 0
    while i < len(tokens):
        both = " ".join(tokens[i : i + 2])
        together = _read_as(both, known) if both in _phrases() and not _is_known_object(both, known) else []
        if together:
            words += together
            i += 2
        elif both in _deceptive_phrases() and not _is_known_object(both, known):
            unknown[both] = nearest(both, known)
            i += 2
        else:
            readings = [tokens[i]] if tokens[i] in known else _read_as(tokens[i], known)
            words += readings
            if not readings:
                unknown[tokens[i]] = nearest(tokens[i], known)
            i += 1
    return PromptReading(tuple(words), unknown, _objects(words), left_out)


def nearest(word: str, known: Container[str]) -> list[str]:
    """Up to three known things nearest to an unknown word, by spelling or else by meaning; none for a word that is not in the list of
    nouns."""
    near = _by_meaning(word, known)
    if near is not None:
        return near
    if word in OTHER or not (other := _noun_like(word, known)):
        return []
    return [other] if other in known else _by_meaning(other, known) or []


def misspelled(word: str, known: Container[str]) -> str:
    """The known noun that an unknown word misspells; "" if it is another word, too short to tell, or too far from each noun."""
    if len(word) < SURE or word in OTHER or _by_meaning(word, known) is not None:
        return ""
    other = _noun_like(word, known)
    return other if other in known else ""


def _noun_like(word: str, known: Container[str]) -> str:
    """The noun or plural with the nearest spelling, preferably a known one; "" if none is near."""
    slips = [(_mistakes(word, other), other) for other in _spellings().get(word[0], ())] if _allowed_mistakes(word) else []
    return min(((n, other not in known, other) for n, other in slips if n <= _allowed_mistakes(word)), default=("", "", ""))[2]


def _named_things(tokens: list[str]) -> list[str]:
    """The words, with "an orange" that is not followed by what it colours as the fruit."""
    pairs = zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False)
    return [FRUIT if word == "orange" and before == "an" and after in AFTER_A_THING else word for before, word, after in pairs]


# --- negation ---------------------------------------------------------------------------------------------------------


def _leave_out(tokens: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """The words without the objects that they exclude ("a cat and no dogs or birds": "a cat"), and these objects."""
    kept: list[str] = []
    left_out: list[str] = []
    i, excluding = 0, False
    while i < len(tokens):
        name, end = _next_object(tokens, i + 1) if tokens[i] in NEGATIONS or (excluding and tokens[i] in ("or", "nor")) else ("", i)
        excluding = bool(name)
        if name:
            left_out.append(name)
            while kept and kept[-1] in JOINING:
                kept.pop()
            i = end
        else:
            kept.append(tokens[i])
            i += 1
    return kept, tuple(left_out)


def _next_object(tokens: list[str], first: int) -> tuple[str, int]:
    """The object that the words from a place on name after at most FARTHEST other words, and the end of its name; "" if there is none."""
    for i in range(first, min(first + FARTHEST + 1, len(tokens))):
        if tokens[i] in JOINING:
            break
        for end in (i + 2, i + 1):
            word = " ".join(tokens[i:end])
            single = next((one for one in _singulars(word) if one in _forms() or one in _synonyms()), None)
            if single and end <= len(tokens):
                return _forms().get(single) or _synonyms()[single], end
    return "", first


# --- meaning ----------------------------------------------------------------------------------------------------------


@cache
def _synonyms() -> dict[str, str]:
    """Maps each synonym to the word that replaces it."""
    return {word: target for target, words in READ_AS.items() for word in words.split()}


@cache
def _phrases() -> dict[str, str]:
    """Phrases and their plurals."""
    return PHRASES | {plural(phrase): plural(target) for phrase, target in PHRASES.items()}


@cache
def _deceptive_phrases() -> frozenset[str]:
    """Pairs of words whose last word alone means something else, with their plurals."""
    return frozenset(form for phrase in DECEPTIVE for form in (phrase, plural(phrase)))


def _read_as(word: str, known: Container[str]) -> list[str]:
    """The known words that replace an unknown word or phrase; empty if there are none."""
    if word in _phrases():
        target = _phrases()[word]
    else:
        single = next((one for one in _singulars(word) if one in _synonyms() or one in _forms()), None)
        if single is None:
            return []
        target = _synonyms().get(single, single)
        target = target if single == word else plural(target)  # also handles a wrong plural of a known noun, such as wolfs
    return target.split() if all(part in known for part in target.split()) else []


def _singulars(word: str) -> tuple[str, ...]:
    """The word, then its possible singulars."""
    forms = [word, *(single for single, many in IRREGULAR.items() if many == word)]
    for ending, instead in (("men", "man"), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("es", ""), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            forms.append(word[: -len(ending)] + instead)
    return tuple(dict.fromkeys(forms))


@cache
def _groups() -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """Maps every noun to its groups, each with its kind and its best things."""
    groups: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {}
    for kind, lines in NEAR.items():
        for line in lines:
            best, _, rest = line.partition("|")
            things = _things(best.split())
            for noun in (*things, *rest.split()):
                groups[noun] = (*groups.get(noun, ()), (kind, things))
    return groups


def _things(words: list[str]) -> tuple[str, ...]:
    """The names of objects in order; some have two words."""
    names, i = [], 0
    while i < len(words):
        two = " ".join(words[i : i + 2])
        names.append(two if two in OBJECTS else words[i])
        i += 2 if two in OBJECTS else 1
    return tuple(names)


def _by_meaning(word: str, known: Container[str]) -> list[str] | None:
    """Known things near a noun, or None if the word is not in the list of nouns."""
    for single in (*_singulars(word), *_singulars(word.replace(" ", ""))):
        noun = _synonyms().get(single, single) if single not in _groups() else single
        if noun in _groups() or noun in OBJECTS:
            groups = sorted(_groups().get(noun, ()), key=lambda group: group[1].index(noun) if noun in group[1] else 0)
            near = [noun] * (noun != single) + [thing for _, things in groups for thing in things if thing != noun]
            sayable = [thing for thing in dict.fromkeys(near) if _can_say(thing, known)]
            kinds = [kind for kind, _ in groups] or [kind for kind, names in KINDS.items() if noun in names]
            others = [name for kind in kinds if kind in WITH_FALLBACK for name in KINDS[kind] if _can_say(name, known)]
            return (sayable or others)[:MOST]
    return None


def _can_say(name: str, known: Container[str]) -> bool:
    return all(part in known for part in name.split())


# --- objects ----------------------------------------------------------------------------------------------------------


@cache
def _forms() -> dict[str, str]:
    """Maps every name, synonym and plural to its object."""
    forms: dict[str, str] = {}
    for name in OBJECTS:
        for term in names_of(name):
            forms |= {form: name for form in (plural(term), term) if form not in forms}
    return forms


def _is_known_object(name: str, known: Container[str]) -> bool:
    return name in _forms() and _can_say(name, known)


def _objects(words: list[str]) -> tuple[str, ...]:
    """The objects named by known words, without repetition."""
    names, i = [], 0
    while i < len(words):
        two = " ".join(words[i : i + 2])
        name = _forms().get(two) if i + 1 < len(words) else None
        i += 2 if name else 1
        names.append(name or _forms().get(words[i - 1], ""))
    return tuple(dict.fromkeys(name for name in names if name))


# --- spelling ---------------------------------------------------------------------------------------------------------


@cache
def _spellings() -> dict[str, tuple[str, ...]]:
    """The possible corrections, nouns and their plurals, by first letter."""
    nouns = [*_groups(), *_synonyms(), *_forms()]
    forms = dict.fromkeys(form for noun in nouns if " " not in noun for form in (noun, plural(noun)))
    return {letter: tuple(form for form in forms if form[0] == letter) for letter in sorted({form[0] for form in forms})}


def _allowed_mistakes(word: str) -> int:
    """Maximum number of spelling mistakes in a word of this length."""
    return 0 if len(word) < SHORTEST or not word.isalpha() else 1 if len(word) < LOOSE else 2


def _mistakes(a: str, b: str) -> int:
    """Edit distance of two words: letters added, omitted, changed or swapped with the next; 3 means 3 or more."""
    if abs(len(a) - len(b)) > 2:
        return 3
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, before, row = before, row, [i]
        for j, y in enumerate(b, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return min(row[-1], 3)

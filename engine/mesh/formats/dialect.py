"""Finds the separator and decimal mark of a text table. The separator of the values decides; an ambiguous comma is left undecided."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

COMMENT = re.compile(r"(?<!1\.)#.*|//.*")  # 1.#QNAN is a number
QUOTED = re.compile(r'"([^"]*)"')
PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WITH_COMMA = re.compile(r"[+-]?(\d+(,\d*)?|,\d+)([eEdD][+-]?\d+)?")  # without a point
FORTRAN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))[dD]([+-]?\d+)")
MICROSOFT = re.compile(r"([+-]?)(?:1\.#(QNAN|SNAN|IND|INF)\d*|nan\((?:s?nan|ind)\))", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
MISSING = ("", "-", "na", "n/a", "null", "none", "<na>")  # values of an empty cell


def as_number(word: str) -> float | None:
    """Value of a word, None if it is not a number; Fortran exponents and the NaN of Microsoft's libraries are numbers."""
    try:
        return None if "_" in word else float(word)
    except ValueError:
        pass
    if match := FORTRAN.fullmatch(word):
        return float(f"{match[1]}e{match[2]}")
    if match := MICROSOFT.fullmatch(word):
        return float(match[1] + ("inf" if (match[2] or "").upper() == "INF" else "nan"))
    return None


def as_decimal(word: str) -> float | None:
    """Value of a word whose comma can only mark decimals; None if it is not a number."""
    return as_number(word.replace(",", ".") if WITH_COMMA.fullmatch(word) else word)


@dataclass(frozen=True)
class Dialect:
    """Format of the lines of a table.

    separator : the character between two values, None: blanks and tabs
    replaced  : characters to replace before a line is split, with the replacement
    quoted    : True if values may be in quotation marks
    """

    separator: str | None = None
    replaced: tuple[tuple[str, str], ...] = ()
    quoted: bool = False

    def plain(self, line: str) -> str:
        """The line with decimal points, and without quotation marks."""
        if self.quoted:
            line = QUOTED.sub(_unquote, line)
        for old, new in self.replaced:
            line = line.replace(old, new)
        return line

    def words(self, line: str) -> list[str]:
        """Values of a line, without its comment; empty for an empty line."""
        return split(self.plain(COMMENT.sub("", line)), self.separator)


def split(line: str, separator: str | None) -> list[str]:
    """Values between separators; an empty value counts where a character separates, and a line of separators has no values."""
    if separator is None:
        return line.split()
    words = [word.strip() for word in line.split(separator)]
    return words if any(words) else []


def values(line: str) -> list[float] | None:
    """Numbers of a line that contains nothing else, whatever separates them; None for any other line."""
    words = [word for word in re.split(r'[\s,;|"]+', COMMENT.sub("", line)) if word]
    numbers = [as_number(word) for word in words]
    return None if None in numbers else numbers


def decide(lines: Sequence[str]) -> Dialect | None:
    """Dialect of some lines of a table; None if a comma in them could separate as well as mark decimals."""
    quoted = any('"' in line for line in lines)
    bodies = [QUOTED.sub(_unquote, line) if quoted else line for line in (COMMENT.sub("", line).strip(" \r\n") for line in lines)]
    for mark in ";|":
        if any(mark in body.strip().rstrip(mark) for body in bodies):
            return _separated_dialect(bodies, mark, quoted)
    bodies = [body.rstrip(";|") for body in bodies]
    ends = ((";", " "), ("|", " "))
    inner = [body.strip() for body in bodies]
    tabs = [body.split("\t") for body in bodies]
    cells = [cell.strip() for row in tabs for cell in row]
    if len(set(map(len, tabs))) == 1 < len(tabs[0]) and not any(cell.endswith(",") or _are_numbers(cell.split()) for cell in cells):
        return _separated_dialect(bodies, "\t", quoted)
    if not any("," in body for body in inner):
        return Dialect(None, ends if any(";" in line or "|" in line for line in lines) else (), quoted)
    return _with_commas(inner, ends, quoted)


def _with_commas(bodies: Sequence[str], ends: tuple[tuple[str, str], ...], quoted: bool) -> Dialect | None:
    """Dialect of lines with commas, blanks and no other separator."""
    rows = [body.split() for body in bodies]
    words = [word for row in rows for word in row]
    touching = [word.strip(",") for word in words if "," in word.strip(",")]
    even = len(set(map(len, rows))) == 1 and len(rows[0]) > 2
    if touching and even and all(map(WITH_COMMA.fullmatch, touching)) and _marks_decimals([word.rstrip(",") for word in words]):
        return Dialect(None, (*((f",{blank}", " ") for blank in " \t\r\n"), (",", "."), *ends), quoted)
    if not any(_are_numbers(cell.split()) for body in bodies for cell in body.split(",")):
        return _commas(bodies, quoted)
    if not touching:  # every comma is next to a blank
        return Dialect(None, ((",", " "), *ends), quoted)
    if any(sum("." in piece for piece in word.split(",") if PLAIN.fullmatch(piece)) > 1 for word in touching):
        return Dialect(None, ((",", " "), *ends), quoted)
    return None


def _separated_dialect(bodies: Sequence[str], mark: str, quoted: bool) -> Dialect | None:
    """Dialect of lines with a separator other than a comma: a comma marks decimals."""
    cells = [cell for body in bodies for cell in split(body, mark)]
    if any(map(_are_numbers, map(str.split, cells))):
        return None  # 512 345,678
    return Dialect(mark, ((",", "."),) if any("," in cell for cell in cells) else (), quoted) if _marks_decimals(cells) else None


def _marks_decimals(words: Sequence[str]) -> bool:
    """True if every comma in the numbers of some lines can be a decimal mark, and they do not look like 999 and 1,234."""
    numeric = [word for word in words if word and word[0] in "+-.,0123456789"]
    commas = [word for word in numeric if "," in word]
    if not all(map(WITH_COMMA.fullmatch, commas)):
        return False
    return not commas or len(commas) == len(numeric) or not all(map(THOUSANDS.fullmatch, commas))


def _are_numbers(words: Sequence[str]) -> bool:
    """True if the words of a cell are several numbers."""
    return len(words) > 1 and all(PLAIN.fullmatch(word) or WITH_COMMA.fullmatch(word) for word in words)


def _commas(bodies: Sequence[str], quoted: bool) -> Dialect | None:
    """Dialect of lines that commas separate: None if half of the commas look like decimal marks."""
    rows = [split(body, ",") for body in bodies]
    whole = all(re.fullmatch(r"[+-]?\d+", word) for row in rows for word in row)
    padded = any(re.fullmatch(r"[+-]?0\d+|-0", word) for row in rows for word in row)
    return None if whole and padded and len(rows[0]) % 2 == 0 else Dialect(",", (), quoted)


def _unquote(match: re.Match[str]) -> str:
    """The content of quotation marks as one word: a decimal comma becomes a point, and other separators become meaningless marks."""
    content = match[1].strip()
    if WITH_COMMA.fullmatch(content):
        return content.replace(",", ".")
    return re.sub(r"[\s,;|#/]", "_", content)

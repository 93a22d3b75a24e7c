"""Reads text tables of points block by block, so that memory is bounded and errors name the line.

A line is one point: x y z, and further values. Blanks, tabs, commas, semicolons or bars separate; where another character separates, a
comma may mark decimals. Names of columns and a count may come first; # and // start comments. Names decide which columns are x, y and z.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.columns import WIDTHS, Columns, are_known, by_name, cloud, left_out
from engine.mesh.formats.dialect import COMMENT, MISSING, Dialect, as_decimal, as_number, decide, split, values
from engine.mesh.formats.source import Raw, Reservoir, Source, printable

SUFFIXES = (".xyz", ".txt", ".csv", ".asc", ".pts", ".xyzn", ".xyzrgb")
BLOCK = 65_536  # lines per block
HEAD = 64  # lines within which the first point must occur
SAMPLE = 64  # lines that decide the format of a table
LINE_BYTES = 100_000
END_OF_FILE = "\x1a"  # after the last line of a file from DOS
ELEMENTS = re.compile(
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd "
    "In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np "
    "Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og".replace(" ", "|")
)


@dataclass(frozen=True)
class Table:
    """Format of the lines of a table.

    width   : values per line, None: as in the first line
    columns : indices of the columns with numbers, None: all
    counts  : a line with a single whole number is the count of a further scan, and is skipped
    """

    dialect: Dialect = field(default_factory=Dialect)
    width: int | None = None
    columns: tuple[int, ...] | None = None
    counts: bool = False


@dataclass(frozen=True)
class Start:
    """First point of a file, and the lines before it.

    lines  : from the first point on, up to HEAD + SAMPLE
    number : of the first of them, from 1
    before : the lines before it
    """

    lines: list[str]
    number: int
    before: list[str]

    @property
    def count(self) -> int | None:
        """Number of points announced on a line before them."""
        counts = (int(line) for line in self.before if re.fullmatch(r"\s*\d{1,18}\s*", line))
        return next(counts, None)


def read(source: Source) -> Raw:
    """The points of a text file."""
    with source.open_text() as file:
        lines = as_text(file)
        start = _start(source, [*islice(lines, HEAD + SAMPLE)])
        dialect, sample = _dialect(source, start)
        first = sample[0]
        numeric = tuple(at for at in range(len(first)) if _is_numeric([words[at] for words in sample if len(words) == len(first)]))
        _check_atoms(source, start, sample)
        columns, notes = _named_columns(source, start, dialect, first, numeric)
        if columns is None:
            _check_width(source, start, len(numeric))
        wanted = numeric if columns is None or len(numeric) == len(first) else columns.used
        form = Table(dialect, len(first), None if len(wanted) == len(first) else wanted, start.count is not None)
        reservoir = Reservoir(blocks(chain(start.lines, lines), source, start.number, form=form))
    rows = reservoir.rows(len(wanted))
    if columns is None:
        raw = cloud(rows, reservoir.seen, numeric)
        notes += [left_out([str(at + 1) for at in texts])] if (texts := _texts(first, numeric)) else []
    else:
        raw = columns.select(wanted).raw(rows, reservoir.seen)
    if start.count is not None and reservoir.seen < start.count:
        notes.append(f"The file announces {start.count:,} points and holds {reservoir.seen:,}.")
    raw.notes += notes
    return raw


def as_text(file: BinaryIO) -> Iterator[str]:
    """The lines of a file from its current position, in UTF-8 or else in the 8-bit encoding of Windows. Endless lines are split."""
    while line := file.readline(LINE_BYTES):
        try:
            yield line.decode()
        except UnicodeDecodeError:
            yield line.decode("cp1252", "replace")


# --- the form of a table ----------------------------------------------------------------------------------------------


def _start(source: Source, lines: list[str]) -> Start:
    """The first line with several numbers and nothing else; else the first of several lines with the same mix of numbers and words."""
    for at, line in enumerate(lines[:HEAD]):
        if "\0" in line:
            break
        if (numbers := values(line)) and len(numbers) > 1:  # a single number is the number of points
            below = lines[at + 1 : at + SAMPLE]
            if _numbers_columns(numbers, below) or (len(numbers) == 2 and any(len(values(other) or ()) > 2 for other in below[:3])):
                continue  # two numbers count the points and their columns
            return Start(lines[at:], at + 1, lines[:at])
    else:
        shapes = [_shape(line) for line in lines]
        for at, shape in enumerate(shapes[:HEAD]):
            rest = [other for other in shapes[at:] if other]
            if shape.count("1") >= 3 and len(rest) > 2 and all(other.startswith(shape) for other in rest):
                return Start(lines[at:], at + 1, lines[:at])
    raise BadFile(f"{source.name} holds no lines of numbers; a cloud as text has x, y and z in every line.")


def _numbers_columns(numbers: list[float], below: list[str]) -> bool:
    """True if a line 0, 1, 2 ... numbers the columns of a table whose values are not whole numbers."""
    return len(numbers) > 2 and numbers == [*range(len(numbers))] and any(value % 1 for line in below for value in values(line) or ())


def _shape(line: str) -> str:
    """A character for each value of a line up to its last number: 1 for a number, a for anything else."""
    words = decided.words(line) if (decided := decide([line])) else []
    return "".join("a" if as_number(word) is None else "1" for word in words).rstrip("a")


def _dialect(source: Source, start: Start) -> tuple[Dialect, list[list[str]]]:
    """The dialect of a table and the values of its first lines."""
    sample = [line for line in start.lines[:SAMPLE] if COMMENT.sub("", line).strip()]
    dialect = decide(sample)
    if dialect is None:
        raise BadFile(
            f"{source.name} has commas that may separate values or mark decimals ('{printable(sample[0].strip(), 40)}'); "
            "save it with points as decimal marks, or with semicolons or tabs between the values."
        )
    return dialect, [words for words in map(dialect.words, sample) if words]


def _is_numeric(words: list[str]) -> bool:
    """True if a column is numeric: most of its values are numbers."""
    known = [word for word in words if word.lower() not in MISSING]
    return bool(known) and 2 * sum(as_number(word) is not None for word in known) > len(known)


def _check_atoms(source: Source, start: Start, sample: list[list[str]]) -> None:
    """Raises BadFile for a molecule: element, x, y and z of every atom, below a count and a line of comment."""
    names = [words[0] for words in sample if len(words) > 3]
    by_number = len(start.before) == 2 and start.count is not None and all(name.isdigit() and 0 < int(name) <= 118 for name in names)
    elements = sum(ELEMENTS.fullmatch(name.capitalize()) is not None for name in names)  # the comment may look like an atom
    if names and (by_number or elements > 0.9 * len(names)):
        raise BadFile(f"{source.name} holds the atoms of a molecule and no points on a surface; give a cloud or a mesh.")


def _check_width(source: Source, start: Start, width: int) -> None:
    """Raises BadFile for a table without names that has too few columns, or too many to guess."""
    if width not in WIDTHS:
        raise BadFile(
            f"{source.name} has {width} values in line {start.number}; a line without names of its columns needs {WIDTHS[0]} (x y z) "
            f"to {WIDTHS[-1]}, so name them in the first line."
        )


def _texts(first: Sequence[str], numeric: Sequence[int]) -> list[int]:
    """Columns with words."""
    return [at for at, word in enumerate(first) if word and at not in numeric]


def _named_columns(
    source: Source, start: Start, dialect: Dialect, first: list[str], numeric: tuple[int, ...]
) -> tuple[Columns | None, list[str]]:
    """The columns by the names before the first point, and notes; None if nothing names x, y and z.

    Raises BadFile if the names belong to other columns, or if there is not one name per column.
    """
    for line in reversed(start.before):
        for names in _names(line, dialect, len(first)):
            columns = by_name(names)
            if columns is None:
                continue
            if len(names) == len(first):
                if missing := [names[at] for at in columns.places if at not in numeric]:
                    raise source.bad_file(f"column {printable(missing[0], 20)} holds words and no numbers")
                names_left = [name for at, name in enumerate(names) if at not in columns.used and name]
                return columns, [left_out(names_left)] if names_left else []
            if columns.places == (0, 1, 2) and len(names) < len(first):
                return None, []  # the other columns are identified by their values
            if not _is_comment(line):
                raise BadFile(
                    f"{source.name} names {len(names)} columns and has {len(first)} values in line {start.number}; "
                    "give every column one name."
                )
    title = next((line for line in reversed(start.before) if not _is_comment(line) and line.strip()), "")
    for names in _names(title, dialect, len(first)):
        if len(names) == len(first) and start.count is None:
            listed = printable(", ".join(names), 60)
            if are_known(names):
                raise BadFile(f"{source.name} names its columns {listed}, which does not say which are x, y and z; name these three so.")
            return None, [f"The names of the columns ({listed}) do not say which are x, y and z: the first three were taken."]
    return None, []


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(("#", "//", "%", "!"))


def _names(line: str, dialect: Dialect, width: int) -> list[list[str]]:
    """Ways to split a line into names, sorted so that a split with one name per column comes first."""
    bare = re.sub(r"^[\s#/%!]+", "", line).strip()
    if not bare or len(bare) > 2_000:
        return []
    ways = []
    for text in dict.fromkeys((bare, bare.lstrip("; "), bare.rpartition(": ")[2])):  # after a comment sign, after "Fields: "
        ways += [split(text, dialect.separator), *(split(text, mark) for mark in ";,\t|" if mark in text)]
        ways.append(re.sub(r"[\[(].*?[\])]", "", text).replace(",", " ").split())
    ways = [[name.strip("\"' ") for name in way] for way in ways if len(way) > 1]
    return sorted(ways, key=lambda way: len(way) != width)


# --- numbers ----------------------------------------------------------------------------------------------------------


def blocks(
    lines: Iterable[str], source: Source, number: int, width: int | None = None, count: int | None = None, form: Table | None = None
) -> Iterator[np.ndarray]:
    """Yields the numbers of lines in blocks, float64 [n, width]; empty lines and comments are skipped.

    number : the number of the first line in the file
    width  : values per line, None = as in the first line
    count  : stop after this many lines with numbers, None = at the end
    form   : of the lines, None: numbers between blanks
    """
    form = form or Table(width=width)
    lines = iter(lines)
    while count is None or count > 0:
        block = list(islice(lines, BLOCK if count is None else min(BLOCK, count)))
        if not block:
            return
        rows = _fast(block, form)
        if rows is None:
            rows = _slow(block, source, number, form)
        if len(rows):
            form = Table(form.dialect, form.width or rows.shape[1], form.columns, form.counts)
            count = None if count is None else count - len(rows)
            yield rows
        number += len(block)


def _fast(block: list[str], form: Table) -> np.ndarray | None:
    """The numbers of a block, parsed by NumPy; None if it cannot."""
    joined = "".join(block)
    if "#" in joined or "//" in joined:
        block = [COMMENT.sub("", line) for line in block]
    if form.dialect.replaced or form.dialect.quoted:
        block = [form.dialect.plain(line) for line in block]
    if not any(map(str.strip, block)):
        return np.empty((0, form.width or 0))
    if _shifts(form) and any(len(split(line, form.dialect.separator)) not in (0, form.width) for line in block):
        return None
    try:
        rows = np.loadtxt(block, np.float64, comments=None, delimiter=form.dialect.separator, usecols=form.columns, ndmin=2)
    except ValueError:
        return None
    return None if form.columns is None and form.width not in (None, rows.shape[1]) else rows


def _shifts(form: Table) -> bool:
    """True if a column of words comes before one of numbers, so that a blank in a word would shift the numbers."""
    return form.columns is not None and form.columns != tuple(range(len(form.columns)))


def _slow(block: list[str], source: Source, number: int, form: Table) -> np.ndarray:
    """The numbers of a block with Fortran exponents, empty cells, decimal commas or a mistake; raises BadFile for the first mistake."""
    width, rows = form.width, []
    for at, line in enumerate(block, number):
        words = form.dialect.words(line)
        if not words or words == [END_OF_FILE] or (form.counts and len(words) == 1 and words[0].isdigit()):
            continue
        width = width or len(words)
        columns = range(len(words)) if form.columns is None else [i for i in form.columns if i < len(words)]
        numbers = [_cell(words[i], form.dialect) for i in columns]
        if None in numbers:
            wrong = _as_written(words[columns[numbers.index(None)]], line)
            raise source.bad_file(f"line {at:,} holds '{printable(wrong, 20)}' where a number should be")
        if len(words) != width and (form.columns is None or _shifts(form) or len(numbers) < len(form.columns)):
            raise source.bad_file(f"line {at:,} has {len(words)} values where the lines before it have {width}")
        rows.append(numbers)
    return np.array(rows, np.float64).reshape(len(rows), -1) if rows else np.empty((0, width or 0))


def _cell(word: str, dialect: Dialect) -> float | None:
    """Value of a word in a table; an empty cell between separators is NaN."""
    value = as_number(word) if dialect.separator else as_decimal(word)  # if blanks separate, a comma does not
    return np.nan if value is None and dialect.separator is not None and word.lower() in MISSING else value


def _as_written(word: str, line: str) -> str:
    """A word as written in its line, before decimal commas were replaced."""
    written = re.search(re.escape(word).replace(r"\.", "[.,]"), line)
    return written[0] if written else word

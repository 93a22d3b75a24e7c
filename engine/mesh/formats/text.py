"""Numbers in lines of text, read block by block, so that memory is bounded and errors name the line.

.xyz, .txt and .csv hold one point per line: x y z, or x y z and a normal, or both and a colour, separated by blanks, commas, semicolons
or tabs. If semicolons separate, a comma is a decimal point. Names and a count may come first; # and // start comments.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import BinaryIO

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.columns import WIDTHS, cloud
from engine.mesh.formats.source import Draw, Raw, Source, plain

BLOCK = 65_536  # lines at a time
HEAD = 32  # lines within which the first point must come
LINE_BYTES = 100_000


def read(source: Source) -> Raw:
    """The points of a text file."""
    with source.open() as file:
        lines = as_text(file)
        first, number = _first_point(source, lines)
        width = len(_words(_blank_separated(first, first)))
        if width not in WIDTHS:
            raise BadFile(
                f"{source.name} has {width} values in line {number}; a line needs 3 (x y z), 6 (and a normal) or 9 (and a colour)."
            )
        draw = Draw()
        for rows in blocks((_blank_separated(line, first) for line in chain([first], lines)), source, number, width):
            draw.add(rows)
    return cloud(draw.rows(width), draw.seen)


def as_text(file: BinaryIO) -> Iterator[str]:
    """The lines of a file from its current position. Bytes that are no text become non-numeric characters; endless lines are split."""
    line = file.readline(LINE_BYTES).removeprefix(codecs.BOM_UTF8)
    while line:
        yield line.decode("utf-8", "replace")
        line = file.readline(LINE_BYTES)


def _first_point(source: Source, lines: Iterable[str]) -> tuple[str, int]:
    """The first line with several numbers and nothing else, and its number."""
    for number, line in enumerate(islice(lines, HEAD), 1):
        if "\0" in line:
            break
        words = _words(_blank_separated(line, line))
        if len(words) > 1 and all(map(_is_number, words)):  # a single number is the number of points
            return line, number
    raise BadFile(f"{source.name} holds no lines of numbers; a cloud as text has x, y and z in every line.")


def _blank_separated(line: str, like: str) -> str:
    """A line with blanks between its values, which are separated as in the line `like`."""
    if ";" in like:
        return line.replace(",", ".").replace(";", " ")
    return line.replace(",", " ") if "," in like else line


def _words(line: str) -> list[str]:
    """The values of a line, without its comment."""
    return line.split("#", 1)[0].split("//", 1)[0].split()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def blocks(lines: Iterable[str], source: Source, number: int, width: int | None = None, count: int | None = None) -> Iterator[np.ndarray]:
    """The numbers of some lines, float64 [n, width] at a time; empty lines and comments are skipped.

    number : the number of the first line in the file
    width  : how many values every line has, None = as many as the first
    count  : stop after this many lines with numbers, None = at the end
    """
    lines = iter(lines)
    while count is None or count > 0:
        block = list(islice(lines, BLOCK if count is None else min(BLOCK, count)))
        if not block:
            return
        if any(map(_words, block)):
            try:
                rows = np.loadtxt(block, np.float64, comments=("#", "//"), ndmin=2)
            except ValueError:
                rows = None
            if rows is None or (width is not None and rows.shape[1] != width):
                raise source.damaged(_complaint(block, number, width))
            width = rows.shape[1]
            count = None if count is None else count - len(rows)
            yield rows
        number += len(block)


def _complaint(block: list[str], number: int, width: int | None) -> str:
    """What is wrong with the first wrong line of a block."""
    for at, line in enumerate(block, number):
        words = _words(line)
        wrong = next((word for word in words if not _is_number(word)), None)
        if wrong is not None:
            return f"line {at:,} holds '{plain(wrong, 20)}' where a number should be"
        width = width or len(words)
        if words and len(words) != width:
            return f"line {at:,} has {len(words)} values where the lines before it have {width}"
    return f"the lines from {number:,} on are not plain numbers"

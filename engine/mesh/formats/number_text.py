"""Reads the numbers of a text mesh into one array with the ends of its lines, so that a reader can go by lines or by order alone."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from engine.mesh.formats.dialect import COMMENT, as_number
from engine.mesh.formats.source import Source, printable

BLOCK = 2**22  # bytes per block


@dataclass
class Numbers:
    """Numbers of a text.

    values : [K] float64; NaN where a word is not a number
    ends   : [L] int64, for each line with values the index after its last
    lines  : [L] int64, the number of that line in the file
    words  : the words that are not numbers, by their index
    """

    source: Source
    values: np.ndarray
    ends: np.ndarray
    lines: np.ndarray
    words: dict[int, str] = field(default_factory=dict)

    @property
    def starts(self) -> np.ndarray:
        """[L] the index of the first value of each line."""
        return np.concatenate([np.zeros(1, np.int64), self.ends])[: len(self.ends)]

    def line(self, index: int) -> int:
        """Number of the line of the value at an index."""
        return int(self.lines[np.searchsorted(self.ends, index, side="right")])

    def numeric(self, indices: np.ndarray) -> np.ndarray:
        """Values at some indices; raises BadFile for the first that is not a number."""
        if self.words:
            wrong = np.intersect1d(indices, [*self.words])
            if len(wrong):
                word = printable(self.words[wrong[0]], 20)
                raise self.source.bad_file(f"line {self.line(wrong[0]):,} holds '{word}' where a number should be")
        return self.values[indices]

    def whole(self, indices: np.ndarray) -> np.ndarray:
        """Values at some indices as int64; raises BadFile for the first that is not a whole number."""
        values = self.numeric(indices)
        right = (np.floor(values) == values) & (np.abs(values) < 2**53)
        if not right.all():
            at = np.flatnonzero(~right)[0]
            raise self.source.bad_file(f"line {self.line(indices[at]):,} holds {values[at]:g} where a whole number should be")
        return values.astype(np.int64)


def read(source: Source, file: BinaryIO, line: int, rest: bytes = b"") -> Numbers:
    """All numbers from the current position of a file; comments are skipped.

    line : number of the line at that position
    rest : text before it that was read already, of the same line
    """
    values: list[np.ndarray] = []
    ends, lines, words = array("q"), array("q"), {}
    total = 0
    while True:
        block = file.read(BLOCK)
        text = rest + block
        cut = _cut(text) if block else len(text)
        text, rest = text[:cut], text[cut:]
        if b"#" in text or b"//" in text:
            text = COMMENT.sub("", text.decode("utf-8", "replace")).encode()
        before = total
        for row in text.split(b"\n"):
            if count := len(row.split()):
                total += count
                if lines and lines[-1] == line:  # an incomplete line
                    ends[-1] = total
                else:
                    ends.append(total)
                    lines.append(line)
            line += 1
        line -= 1  # the last row has no end yet
        if total > before:
            values.append(_values(text, total - before, before, words))
        if not block:
            break
    joined = np.concatenate(values) if values else np.empty(0)
    return Numbers(source, joined, np.frombuffer(ends, np.int64), np.frombuffer(lines, np.int64), words)


def _cut(text: bytes) -> int:
    """Length of the text up to its last line end; without one, to its last blank."""
    return text.rfind(b"\n") + 1 or max(text.rfind(blank) for blank in (b" ", b"\t")) + 1


def _values(text: bytes, count: int, before: int, words: dict[int, str]) -> np.ndarray:
    """The numbers of a text with `count` words; other words are added to `words` by their index, which starts at `before`."""
    try:
        numbers = np.fromstring(text, np.float64, sep=" ")
        if len(numbers) == count:
            return numbers
    except ValueError:
        pass  # a word that is no number, or one that only as_number knows
    numbers = np.empty(count)
    for index, word in enumerate(text.split()):
        number = as_number(word.decode("utf-8", "replace"))
        numbers[index] = np.nan if number is None else number
        if number is None:
            words[before + index] = word.decode("utf-8", "replace")
    return numbers


def lists(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Indices of the members of lists, list after list, int64 [sum of counts].

    starts : [P] index of the first member of each list
    counts : [P] its members
    """
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())

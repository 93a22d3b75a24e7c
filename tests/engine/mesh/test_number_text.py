"""Numbers of a text are the same however the file is cut into blocks."""

from __future__ import annotations

import io

import numpy as np
import pytest

from engine.errors import BadFile
from engine.mesh.formats import number_text
from engine.mesh.formats.number_text import Numbers, lists
from engine.mesh.formats.source import Source

TEXT = b"1 2.5 -3e2\n\n  # nothing\n4\t5 # five 6\n7\r\n 1D2 nan\n// eight\n8 x 9\n10"


@pytest.fixture
def numbers(tmp_path):
    (tmp_path / "a.off").write_bytes(TEXT)
    return lambda: number_text.read(Source(tmp_path / "a.off"), io.BytesIO(TEXT), 3)


def test_values_and_lines(numbers):
    read: Numbers = numbers()
    assert read.values == pytest.approx([1, 2.5, -300, 4, 5, 7, 100, np.nan, 8, np.nan, 9, 10], nan_ok=True)
    assert read.ends.tolist() == [3, 5, 6, 8, 11, 12]
    assert read.starts.tolist() == [0, 3, 5, 6, 8, 11]
    assert read.lines.tolist() == [3, 6, 7, 8, 10, 11]
    assert read.words == {9: "x"}


@pytest.mark.parametrize("size", [16, 20, 31, 64])
def test_blocks_may_end_anywhere(numbers, monkeypatch, size):
    whole = numbers()
    monkeypatch.setattr(number_text, "BLOCK", size)
    parts = numbers()
    assert parts.values == pytest.approx(whole.values, nan_ok=True)
    assert parts.ends.tolist() == whole.ends.tolist() and parts.lines.tolist() == whole.lines.tolist() and parts.words == whole.words


def test_a_line_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(number_text, "BLOCK", 16)
    text = b" ".join(b"%d" % i for i in range(100)) + b"\n7"
    (tmp_path / "a.off").write_bytes(text)
    read = number_text.read(Source(tmp_path / "a.off"), io.BytesIO(text), 1)
    assert read.values.tolist() == [*range(100), 7] and read.ends.tolist() == [100, 101] and read.lines.tolist() == [1, 2]


def test_mistakes_name_the_line(numbers):
    read = numbers()
    with pytest.raises(BadFile, match="line 10 holds 'x' where a number should be"):
        read.numeric(np.arange(12))
    with pytest.raises(BadFile, match=r"line 3 holds 2\.5 where a whole number should be"):
        read.whole(np.array([0, 1]))
    assert read.whole(np.array([0, 3, 11])).tolist() == [1, 4, 10]


def test_members_of_lists():
    assert lists(np.array([5, 2, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]

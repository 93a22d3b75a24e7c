"""Text of any encoding and with any line ends, read in small pieces."""

from __future__ import annotations

import random
import re

import pytest

from engine.mesh.formats import text_stream
from engine.mesh.formats.source import Source


@pytest.mark.parametrize("seed", range(40))
def test_line_ends_that_fall_between_two_blocks(tmp_path, monkeypatch, seed):
    """A block that ends in a carriage return is continued, so the result does not depend on the blocks."""
    monkeypatch.setattr(text_stream, "BLOCK", 3)
    content = bytes(random.Random(seed).choices(b"ab\r\n", k=60))
    (tmp_path / "a.xyz").write_bytes(content)
    with Source(tmp_path / "a.xyz").open_text() as file:
        text = file.read()
    assert len(text) == len(content)
    assert re.split(rb"[\r\n]+", text) == re.split(rb"[\r\n]+", content)
    assert all(line.endswith(b"\n") for line in re.findall(rb"[^\r\n]+[\r\n]*", text)[:-1])


@pytest.mark.parametrize("name", ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_encodings_without_a_mark(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_stream, "BLOCK", 3)
    (tmp_path / "a.xyz").write_bytes("x y z\r\n1 2 3\r4 5 6\n".encode(name))
    with Source(tmp_path / "a.xyz").open_text() as file:
        assert list(file) == [b"x y z\r\n", b"1 2 3\n", b"4 5 6\n"]


def test_positions_are_those_of_the_file(tmp_path):
    """Binary data may follow a header of any line ends, after a mark too."""
    for mark in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "a.ply").write_bytes(mark + b"ply\rend_header\r\x01\r\n\x02")
        with Source(tmp_path / "a.ply").open_text() as file:
            assert [file.readline(), file.readline()] == [b"ply\n", b"end_header\n"]
            assert file.tell() == len(mark) + 15

"""Converts text of any encoding and line ending to UTF-8 with line feeds.

UTF-8 and 8-bit text keep the position of every byte, so that a header may be followed by binary data: a lone carriage return (old Mac)
becomes a line feed, and carriage returns before a line feed stay. UTF-16 and UTF-32 are decoded.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import BinaryIO

BLOCK = 2**18
MARKS = (  # the mark of UTF-32 begins with the mark of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
LONE_RETURN = re.compile(rb"\r(?!\r{0,3}\n)")
SAMPLE = 64  # bytes that reveal UTF-16 without a mark


def encoding(head: bytes) -> tuple[str, int]:
    """Encoding of a text that begins with `head`, and the length of its byte order mark.

    Anything that is neither marked nor obviously UTF-16 or UTF-32 counts as UTF-8.
    """
    for mark, name in MARKS:
        if head.startswith(mark):
            return name, len(mark)
    sample = head[: min(SAMPLE, len(head) // 4 * 4)]
    if sample and b"\0" in sample:
        for name, width, place in (("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1)):
            letters = sample[place::width]
            if len(sample) - len(letters) == sample.count(0) and b"\0" not in letters and letters.isascii():
                return name, 0
    return "utf-8", 0


class TextStream(io.RawIOBase):
    """The bytes of a file, converted as described above; for io.BufferedReader."""

    def __init__(self, file: BinaryIO):
        """file : at its beginning"""
        name, mark = encoding(file.read(SAMPLE))
        file.seek(mark)
        self._file = file
        self._decoder = None if name == "utf-8" else codecs.getincrementaldecoder(name)("replace")
        self._at, self._ready = mark, b""

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        """Position in the file, or the number of bytes so far for decoded text."""
        return self._at

    def readinto(self, buffer: memoryview) -> int:
        """Fills the buffer; 0 at the end."""
        if not self._ready:
            self._ready = self._next()
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        self._at += size
        return size

    def close(self) -> None:
        self._file.close()
        super().close()

    def _next(self) -> bytes:
        """The next block, converted; b"" at the end."""
        block = self._read(BLOCK)
        for _ in range(4):  # the end of the line may be in the next block
            block += self._read(1) if block.endswith(b"\r") else b""
        return LONE_RETURN.sub(b"\n", block) if b"\r" in block else block

    def _read(self, size: int) -> bytes:
        """The next bytes as UTF-8."""
        while block := self._file.read(size if self._decoder is None else 4 * size):
            if self._decoder is None:
                return block
            if text := self._decoder.decode(block):
                return text.encode("utf-8", "replace")
        return b""

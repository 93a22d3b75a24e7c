"""Reads the byte-pair table of a .tiktoken file, the text tokenizer of Emu3.5 and of Qwen's first models.

A line is a token in base64 and its rank. Any two neighbours whose concatenation is in the table may be merged, the lowest rank first, so
the merges are all ways to split a token into two others. Words are cut as Qwen cuts them, by the tokenizer class of transformers for it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from pathlib import Path

from transformers import Qwen2Tokenizer

from engine.errors import MissingWeights


def read_tiktoken(path: Path) -> Callable[[str], list[int]]:
    """A function from text to ids, without special tokens; raises MissingWeights for an absent or damaged file."""
    if not path.is_file():
        raise MissingWeights(f"There is no tokenizer {path}. Put the file {path.name} of the checkpoint's publisher there.")
    try:
        ranks = dict(_entry(line) for line in path.read_bytes().splitlines() if line)
    except (OSError, ValueError, binascii.Error) as e:
        raise MissingWeights(f"The tokenizer {path} is damaged ({e}). Download it again.") from e
    lacking = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if lacking:
        raise MissingWeights(f"The tokenizer {path} is damaged (it has no token for the byte {lacking[0]}). Download it again.")
    letters = byte_letters()
    written = {token: "".join(letters[byte] for byte in token) for token in ranks}
    pairs = [
        (rank, ranks[token[:cut]], written[token[:cut]], written[token[cut:]])
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    merges = [(first, second) for _, _, first, second in sorted(pairs)]
    tokenizer = Qwen2Tokenizer(vocab={written[token]: rank for token, rank in ranks.items()}, merges=merges)
    return lambda text: tokenizer(text, add_special_tokens=False).input_ids


def byte_letters() -> dict[int, str]:
    """A printable letter for each byte, as byte-level tokenizers write them: itself if it is printable, else one from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _entry(line: bytes) -> tuple[bytes, int]:
    token, rank = line.split()
    return base64.b64decode(token, validate=True), int(rank)

"""Damages files in ways that random bytes rarely do: bytes and chunks, numbers in text, counts in headers, values in JSON.

Every mutator is a function of a random generator and the content, so a seed gives the same damage on every machine.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
import struct
from collections.abc import Callable
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes], bytes]
NUMBER = re.compile(rb"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.])")
NUMBERS = (
    b"nan", b"NaN", b"inf", b"-inf", b"1e999", b"1e308", b"-1e30", b"1e-320", b"-1", b"0", b"2147483647", b"2147483648",
    b"4294967296", b"9223372036854775808", b"-9223372036854775809", b"9" * 400, b"9" * 5000, b"0x10", b"1_000", b"1,5", b"",
    b"--1", b"1e", b"+", b"\xc2\xb2", b"\xd9\xa1\xd9\xa2", b"1.5.2", b"1 2", b"1\n2", b"NULL", b"True", b"\x00", b"\xff\xfe",
)  # fmt: skip
WORDS = (0, 1, 2**7, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
DEEP = "[" * 3000 + "]" * 3000
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, -0.5, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan"), float("-inf"), "", "0", "text",
    "\ud800", "a\x00b", "../" * 40, "é" * 300, [], [[]], {}, {"": None}, [None], [1, "a", None], [float("nan")], "DEEP",
)  # fmt: skip


# --- bytes ------------------------------------------------------------------------------------------------------------


def _span(random: Random, content: bytes, longest: int = 400) -> tuple[int, int]:
    """Start and end of a stretch of the content."""
    start = random.randrange(len(content))
    return start, min(len(content), start + random.randint(1, longest))


def truncate(random: Random, content: bytes) -> bytes:
    """The beginning."""
    return content[: random.randrange(len(content))]


def behead(random: Random, content: bytes) -> bytes:
    """The end."""
    return content[random.randrange(1, len(content)) :]


def nothing(random: Random, content: bytes) -> bytes:
    """No bytes, or hardly any."""
    return content[: random.choice((0, 1, 3))]


def flip(random: Random, content: bytes) -> bytes:
    """A few bits turned over."""
    broken = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 8, 40))):
        broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
    return bytes(broken)


def flip_early(random: Random, content: bytes) -> bytes:
    """A few bits of the header turned over."""
    broken = bytearray(content)
    for _ in range(random.randint(1, 4)):
        broken[random.randrange(min(len(broken), 200))] ^= 1 << random.randrange(8)
    return bytes(broken)


def fill(random: Random, content: bytes) -> bytes:
    """A stretch of one byte."""
    start, end = _span(random, content)
    return content[:start] + random.choice((b"\x00", b"\xff", b" ", b"\n", b"9", b"\x7f")) * (end - start) + content[end:]


def duplicate(random: Random, content: bytes) -> bytes:
    """A stretch repeated several times."""
    start, end = _span(random, content)
    return content[:start] + content[start:end] * random.randint(2, 30) + content[end:]


def remove(random: Random, content: bytes) -> bytes:
    """A stretch removed."""
    start, end = _span(random, content)
    return content[:start] + content[end:]


def swap(random: Random, content: bytes) -> bytes:
    """Two halves the other way round."""
    middle = random.randrange(1, len(content))
    return content[middle:] + content[:middle]


def insert(random: Random, content: bytes) -> bytes:
    """Random bytes in between."""
    at = random.randrange(len(content))
    return content[:at] + random.randbytes(random.choice((1, 2, 7, 64))) + content[at:]


def append(random: Random, content: bytes) -> bytes:
    """Random bytes, zeros or the file itself after the end."""
    return content + random.choice((random.randbytes(100), bytes(5000), content, b"\n\n\n", b"\x1a"))


def whole_word(random: Random, content: bytes) -> bytes:
    """Four bytes that may be a count, set to a number at which counts fail."""
    at = random.randrange(0, max(1, min(len(content), 400) - 4))
    word = struct.pack(random.choice("<>") + "I", random.choice(WORDS))
    return content[:at] + word + content[at + 4 :]


def compress(random: Random, content: bytes) -> bytes:
    """The file as gzip writes it, or the first bytes of such a file."""
    zipped = gzip.compress(content, mtime=0)
    return random.choice((zipped, zipped[:20], zipped[:10] + content))


def other_text(random: Random, content: bytes) -> bytes:
    """Line ends, byte order marks and encodings of other systems."""
    text = content.decode("latin-1")
    return random.choice(
        (
            content.replace(b"\n", b"\r\n"), content.replace(b"\n", b"\r"), b"\xef\xbb\xbf" + content,
            b"\xff\xfe" + text.encode("utf-16-le"), text.encode("utf-16"), text.encode("utf-8"), content.replace(b" ", b"\t"),
            content.replace(b" ", b"\xc2\xa0"), content.replace(b"\n", b"\n\n"), content.replace(b"\n", b" "), content.upper(),
            content.replace(b".", b","),
        )
    )  # fmt: skip


# --- text -------------------------------------------------------------------------------------------------------------


def number(random: Random, content: bytes) -> bytes:
    """A number of a text replaced by a very large one or by something that is no number."""
    numbers = list(NUMBER.finditer(content))
    if not numbers:
        return flip(random, content)
    chosen = random.choice(numbers)
    return content[: chosen.start()] + random.choice(NUMBERS) + content[chosen.end() :]


def early_number(random: Random, content: bytes) -> bytes:
    """The same for one of the first numbers, which are counts in most formats."""
    numbers = list(NUMBER.finditer(content[:600]))[:8]
    if not numbers:
        return whole_word(random, content)
    chosen = random.choice(numbers)
    return content[: chosen.start()] + random.choice(NUMBERS) + content[chosen.end() :]


def many_numbers(random: Random, content: bytes) -> bytes:
    """One number in ten replaced by the same thing."""
    new = random.choice(NUMBERS)
    return NUMBER.sub(lambda m: new if random.random() < 0.1 else m[0], content)


def line(random: Random, content: bytes) -> bytes:
    """A line removed, doubled, made very long or replaced."""
    lines = content.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    new = random.choice(([], [lines[at]] * 2, [lines[at] * 200], [lines[other]], [lines[at] + b" " * 200_000], [lines[at][::-1]], [b"#"]))
    return b"\n".join([*lines[:at], *new, *lines[at + 1 :]])


# --- JSON -------------------------------------------------------------------------------------------------------------


def _places(tree: Any, path: tuple = ()) -> list[tuple]:
    """The paths of all values below a tree."""
    below = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [places for key, value in below for places in ((*path, key), *_places(value, (*path, key)))]


def _even(random: Random, tree: Any) -> tuple:
    """A random path; shallow ones are as likely as the many deep ones."""
    places = _places(tree)
    depth = random.choice(sorted({len(p) for p in places}))
    return random.choice([p for p in places if len(p) == depth])


def tree(random: Random, document: Any) -> Any:
    """A copy of a JSON tree with one value changed in type or size, removed or renamed."""
    mutated = copy.deepcopy(document)
    if not _places(mutated):
        return random.choice(VALUES)
    *path, last = _even(random, mutated)
    above = mutated
    for key in path:
        above = above[key]
    what = random.random()
    if what < 0.2:
        del above[last]
    elif what < 0.3 and isinstance(above, dict):
        above[f"{last}_"] = above.pop(last)
    elif what < 0.4 and isinstance(above, list):
        above.extend([above[last]] * random.choice((1, 300)))
    elif what < 0.5 and isinstance(above[last], int | float):
        above[last] = random.choice((above[last] * 1000, -above[last], above[last] + 1, above[last] / 2, str(above[last])))
    else:
        above[last] = random.choice(VALUES)
    return mutated


def json_text(document: Any) -> str:
    """JSON with NaN, lone surrogates and very deep lists, as careless writers produce them."""
    return json.dumps(document).replace('"DEEP"', DEEP)


def json_file(random: Random, content: bytes) -> bytes:
    """A JSON file with one value changed."""
    return json_text(tree(random, json.loads(content))).encode("utf-8", "surrogatepass")


def glb(random: Random, content: bytes) -> bytes:
    """A binary glTF with one value of its description changed; its lengths are right."""
    size = int.from_bytes(content[12:16], "little")
    text = json_text(tree(random, json.loads(content[20 : 20 + size]))).encode()
    text += b" " * (-len(text) % 4)
    rest = content[20 + size :]
    return b"glTF" + struct.pack("<II", 2, 20 + len(text) + len(rest)) + struct.pack("<I", len(text)) + b"JSON" + text + rest


def safetensors(random: Random, content: bytes) -> bytes:
    """Weights with one value of their description changed; its length is right."""
    size = int.from_bytes(content[:8], "little")
    text = json_text(tree(random, json.loads(content[8 : 8 + size]))).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def safetensors_length(random: Random, content: bytes) -> bytes:
    """Weights whose description claims another length."""
    claimed = random.choice((0, 1, 7, 2**16, 2**31, 2**32, 2**40, 2**63, 2**64 - 1))
    return claimed.to_bytes(8, "little") + content[8:]


def weights(random: Random, content: bytes) -> bytes:
    """Weights with NaN, infinity or noise among the numbers."""
    start = 8 + int.from_bytes(content[:8], "little")
    at = start + random.randrange(max(1, len(content) - start)) // 2 * 2
    new = random.choice((b"\x00\x7e", b"\x00\x7c", b"\x00\xfc", b"\xff\x7f", random.randbytes(2), b"\x00\x00\xc0\x7f")) * random.choice(
        (1, 50)
    )
    return content[:at] + new[: len(content) - at] + content[at + len(new) :]


BYTES: tuple[Mutator, ...] = (
    truncate, behead, nothing, flip, flip, flip_early, flip_early, fill, duplicate, remove, swap, insert, append, whole_word,
    whole_word, compress,
)  # fmt: skip
TEXT: tuple[Mutator, ...] = (number, number, early_number, early_number, many_numbers, line, line, other_text)

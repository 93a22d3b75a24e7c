"""Damages NumPy's files: the description of an array, and the entries of an archive."""

from __future__ import annotations

import io
import re
import zipfile
from random import Random

import numpy as np

TYPES = ("<f2", ">f8", "<i8", "|u1", "|O", "|V12", "<M8[s]", "<c8", "<f16", "|S3", "?", "<U2", "x", "''", "<f4", "(3,)<f4", "O,O")
SHAPES = (
    r"(\2, \1)", r"(-\1, \2)", r"(\1, 0)", r"(0, \2)", r"(\1,)", "()", r"(\1, \2, 1)", r"(\1, -3)", r"(True, \2)", r"(\1.0, \2)",
    r"(10**30, \2)", "(None, 3)", f"({2**62}, 3)", "'ab'", r"[\1, \2]", f"(1{'0' * 5000}, 3)", r"(\1, \2,)", "(1, 3)",
)  # fmt: skip


def head(random: Random, content: bytes) -> bytes:
    """A NumPy array with another description."""
    end = 10 + int.from_bytes(content[8:10], "little")
    text = content[10:end].decode("latin-1").rstrip()
    changed = random.choice(
        (
            re.sub(r"'descr': '[^']*'", f"'descr': '{random.choice(TYPES)}'", text),
            re.sub(r"\((\d+), (\d+)\)", random.choice(SHAPES), text),
            re.sub(r"\((\d+), (\d+)\)", random.choice(SHAPES), text),
            text.replace("False", random.choice(("True", "None", "0", "'x'", "[]"))),
            random.choice(
                (text[:-1], "{" + text, "(" * 900 + text, "-" * 5000 + "1", text.replace("'", '"'), text + "#", "{}", "[]", "None")
            ),
            random.choice((text.replace("shape", "shapes"), text.replace("}", ", 'x': 1}"), "\x00" * 20, "f'{1}'", "lambda: 1", text * 2)),
        )
    )
    new = changed.encode("latin-1", "replace")
    return content[:8] + (len(new) + 1).to_bytes(2, "little") + new + b"\n" + content[end:]


def archive(random: Random, content: bytes) -> bytes:
    """An archive with one array damaged, replaced or renamed; or an archive of something else."""
    with zipfile.ZipFile(io.BytesIO(content)) as old:
        entries = [(name, old.read(name)) for name in old.namelist()]
    at = random.randrange(len(entries))
    name, data = entries[at]
    entries[at : at + 1] = random.choice(
        (
            [(name, head(random, data))],
            [(name, head(random, data))],
            [(name, data[: random.randrange(len(data))])],
            [(name, _array(random))],
            [(name, _array(random))],
            [],
            [(name, b"")],
            [(name, data), (name, head(random, data))],
            [
                (
                    random.choice(
                        ("", "../points.npy", "points.npy/", "POINTS.NPY", "a\x00.npy", "é.npy", "points", "faces.npy", "normals.npy")
                    ),
                    data,
                )
            ],
            [(name, data), (random.choice(("faces.npy", "normals.npy", "triangles.npy")), _array(random))],
        )
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))) as new:
        for entry, inside in entries:
            info = zipfile.ZipInfo(entry or "?", (1980, 1, 1, 0, 0, 0))  # the same bytes on every day
            info.compress_type = new.compression
            new.writestr(info, inside)
    return out.getvalue()


def _array(random: Random) -> bytes:
    """An array that is not, or hardly, one of a cloud or mesh."""
    chosen = random.choice(
        (
            np.zeros((0, 3)), np.zeros((20, 3), np.int64), np.full((20, 3), -1), np.full((20, 3), 2**62), np.full((20, 3), np.nan),
            np.array(3.0), np.arange(60).reshape(20, 3).astype(np.uint64) + 2**63, np.zeros((3, 20)), np.zeros((20, 3), bool),
            np.array(["a", "b"]), np.arange(900.0).reshape(300, 3), np.full((300, 3), 1e300), np.arange(36).reshape(12, 3),
            np.zeros((20, 3, 1)), np.zeros((1, 3)),
        )
    )  # fmt: skip
    np.save(file := io.BytesIO(), chosen)
    return file.getvalue()

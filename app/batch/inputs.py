"""Inputs of a batch: prompts or files, from text, CSV, JSON lines or a folder, each with seed and hash.

An invalid line becomes an entry with a problem: it gets a row among the results, and the other lines are still made. Only an error that
would hide other lines, such as an unclosed quote, rejects the whole file.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from app.requests.limits import LARGEST_SEED_HERE, LARGEST_SIDE, MOST_FACES, SAMPLING
from app.requests.meshes import files_in
from engine.core import Prompt, Sampling
from engine.decimals import decimal, whole_number
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.read import READERS
from engine.sampling import with_values

PROMPT, FILE = "prompt", "file"
SIZES = {"size": LARGEST_SIDE, "faces": MOST_FACES, "about": MOST_FACES}
FIELDS = (PROMPT, FILE, "seed", *SIZES, *SAMPLING)
CSV, JSON_LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
SEPARATORS = ",;\t"
LISTS = (".txt", *CSV, *JSON_LINES)  # a file with another name of READERS is a cloud or a mesh
MARKED = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # byte order marks of UTF-16 files, from Windows
NOT_JSON_LINES = "{} may hold JSON that is not one value per line. Write one string or object per line, and name the file .jsonl."


@dataclass(frozen=True)
class BatchInput:
    """One input.

    number  : its line or its index in the folder, from 1; text : the prompt, or the file's name
    path    : of the cloud or mesh, None for a prompt
    changes : size, numbers of faces and sampling from its line
    key     : hash of these fields and the file's content, unique even among equal inputs
    problem : error sentence if it cannot be made, else ""
    """

    number: int
    text: str
    path: str | None = None
    seed: int = 0
    changes: Mapping[str, float] = field(default_factory=dict)
    key: str = ""
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"input {self.number} ({self.text[:60]})" if self.text else f"input {self.number}"


@dataclass(frozen=True)
class Inputs:
    """entries : in order; are_files : clouds and meshes, not prompts; unused : unknown fields of the lines"""

    entries: list[BatchInput]
    are_files: bool
    unused: list[str]


Fields = Mapping[str, Any]


def read_inputs(path: Path, seed: int = 0) -> Inputs:
    """All inputs of a file or a folder. seed : of inputs without one; each further equal input gets the next seed.

    Raises BadPrompt or BadFile for a file without inputs, a file that is not a list, and one that cannot be read or split into lines.
    """
    if path.is_dir():
        lines: list[tuple[int, Fields | str]] = [(i, {FILE: file.name}) for i, file in enumerate(files_in(path), 1)]
        return Inputs(entries_of(lines, path, seed), True, [])
    text, kind = text_of(path), path.suffix.lower()
    lines = list(csv_rows(path, text) if kind in CSV else json_rows(text) if kind in JSON_LINES else text_rows(text))
    if not lines:
        raise BadPrompt(f"{path} has no input. Write one prompt per line.")
    mappings = [fields for _, fields in lines if isinstance(fields, Mapping)]
    unused = list(dict.fromkeys(name for fields in mappings for name in fields if name not in FIELDS))
    are_files = any(fields.get(FILE) for fields in mappings)
    return Inputs(entries_of(lines, path.parent, seed, FILE if are_files else PROMPT), are_files, unused)


def text_of(path: Path) -> str:
    """The text of a list, with "\\n" line ends; a byte that is not UTF-8 becomes a problem of its line. Raises BadFile."""
    kind = path.suffix.lower()
    try:
        content = path.read_bytes()
    except OSError as e:
        raise BadFile(f"Cannot read {path} ({e.strerror or e}). Give a file of prompts, or a folder of clouds.") from e
    if kind in READERS and kind not in LISTS:
        raise BadFile(f"{path.name} is a cloud or a mesh, not a list of inputs. Give its folder, or use launch.py mesh.")
    if kind == ".json":
        raise BadFile(NOT_JSON_LINES.format(path.name))
    marked = MARKED.get(content[:2])
    try:
        text = content.decode(marked) if marked else content.decode("utf-8-sig", "surrogateescape")
    except UnicodeDecodeError as e:
        raise BadFile(f"{path.name} begins like UTF-16 but is damaged ({e.reason}). Save it as UTF-8.") from e
    if not marked and "\0" in text:
        raise BadFile(f"{path.name} is not a text file: it contains NUL characters. Save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --- lines ------------------------------------------------------------------------------------------------------------


def text_rows(text: str) -> Iterator[tuple[int, Fields]]:
    """Yield (number, fields) of each line that is not empty; each is a prompt."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, {PROMPT: line.strip()}


def json_rows(text: str) -> Iterator[tuple[int, Fields | str]]:
    """Yield (number, fields or problem) of each line, a JSON string (a prompt) or object."""
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as e:
            yield number, f"It is not JSON ({e}). Write a string or an object."
            continue
        if isinstance(value, str):
            value = {PROMPT: value}
        yield number, value if isinstance(value, dict) else "It is neither a string nor an object. Write one of them."


def csv_rows(path: Path, text: str) -> Iterator[tuple[int, Fields | str]]:
    """Yield (number, fields or problem) of each row, with field names from the first line. Raises BadFile if there is no column of inputs,
    and for broken quotes, which would hide other rows."""
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(SEPARATORS, key=first.count), strict=True)
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        if PROMPT not in names and FILE not in names:
            raise BadFile(f"{path.name} has no column '{PROMPT}' or '{FILE}' in its first line. Rename the column of the inputs.")
        if twice := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
            raise BadFile(f"{path.name} names the column '{twice[0]}' twice in its first line. Give each column a different name.")
        for values in reader:
            if not any(value.strip() for value in values):
                continue
            if len(values) > len(names):
                yield reader.line_num, f"It has {len(values)} values for {len(names)} columns. Put quotes around a text with separators."
            else:
                yield reader.line_num, {name: value.strip() for name, value in zip(names, values, strict=False) if value.strip()}
    except csv.Error as e:
        raise BadFile(f"{path.name} cannot be read from line {reader.line_num} on ({e}). Correct its quotes.") from e


# --- entries ----------------------------------------------------------------------------------------------------------


def entries_of(lines: list[tuple[int, Fields | str]], folder: Path, seed: int, kind: str = FILE) -> list[BatchInput]:
    """Entries of the lines. folder : of their files; kind : the field that every line needs"""
    seen: Counter[tuple] = Counter()
    return [entry_of(number, fields, folder, seed, kind, seen) for number, fields in lines]


def entry_of(number: int, fields: Fields | str, folder: Path, seed: int, kind: str, seen: Counter[tuple]) -> BatchInput:
    """Entry of a line. seen : number of earlier equal entries, by content; updated here"""
    if isinstance(fields, str):
        return BatchInput(number, "", problem=fields)
    text = str(fields.get(kind) or "")
    try:
        if not isinstance(fields.get(kind), str) or not text.strip():
            raise BadPrompt(f"It has no {kind}. Give one, or delete the line.")
        Prompt(text)  # rejects invalid text
        line_seed = None if fields.get("seed") is None else whole("seed", fields["seed"], 0, LARGEST_SEED_HERE)
        changes = changes_of(fields)
        content = digest(folder / text) if kind == FILE else ""
    except ForetokenError as e:
        return BatchInput(number, text.encode("utf-8", "backslashreplace").decode(), problem=str(e))
    same = (kind, text, content, line_seed, tuple(sorted(changes.items())))
    before = seen[same]
    seen[same] += 1
    used_seed = (seed + before) % (LARGEST_SEED_HERE + 1) if line_seed is None else line_seed
    key = sha256(json.dumps([*same, used_seed, before]).encode()).hexdigest()
    return BatchInput(number, text, str((folder / text).resolve()) if kind == FILE else None, used_seed, changes, key)


def changes_of(fields: Fields) -> dict[str, float]:
    """Size, numbers of faces and sampling from a line; raises BadPrompt for values that the command's options would reject."""
    sizes = {name: whole(name, fields[name], 1, most) for name, most in SIZES.items() if fields.get(name) is not None}
    settings = {name: number(name, fields[name]) for name in SAMPLING if fields.get(name) is not None}
    with_values(Sampling(), settings)
    return sizes | settings


def whole(name: str, value: Any, low: int, high: int) -> int:
    """The value as a whole number from low to high; raises BadPrompt."""
    count = whole_number(value)
    if count is None:
        raise BadPrompt(f"{name} = {str(value)[:40]!r} is not a whole number. Correct it, or leave it out.")
    if not low <= count <= high:
        raise BadPrompt(f"{name} = {str(value)[:40]} is out of range. Choose {low:,} to {high:,}.")
    return count


def number(name: str, value: Any) -> float:
    """The value as a number, whole for top_k; raises BadPrompt."""
    if name == "top_k":
        return whole(name, value, 0, 2**31 - 1)
    parsed = decimal(value)
    if parsed is None:
        raise BadPrompt(f"{name} = {str(value)[:40]!r} is not a number. Correct it, or leave it out.")
    return float(parsed)


def digest(path: Path) -> str:
    """SHA-256 of a file's content; raises BadFile."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError) as e:
        raise BadFile(f"Cannot read {path} ({getattr(e, 'strerror', None) or e}). Give another file.") from e

"""The inputs of a batch: one prompt or one file each, from text, CSV, JSON lines or a folder, each with its seed and its hash.

A line that cannot be used becomes an entry with a problem, so that it has a row among the results and the others are made. Only what
would hide other lines, such as a quote that is never closed, refuses the whole file.
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
from engine.sampling import changed

PROMPT, FILE = "prompt", "file"
SIZES = {"size": LARGEST_SIDE, "faces": MOST_FACES}
FIELDS = (PROMPT, FILE, "seed", *SIZES, *SAMPLING)
CSV, JSON_LINES = (".csv", ".tsv"), (".jsonl", ".ndjson")
SEPARATORS = ",;\t"
LISTS = (".txt", *CSV, *JSON_LINES)  # a file with another name of READERS is a cloud or a mesh
MARKED = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # how files of Windows begin that are not UTF-8
NOT_JSON_LINES = "{} may hold JSON that is not one value a line. Write a string or an object a line, and name the file .jsonl."


@dataclass(frozen=True)
class BatchInput:
    """One input.

    number  : its line or its place in the folder, from 1; text : the prompt, or the name of the file
    path    : of the cloud or mesh, None for a prompt
    changes : what its line says of size, faces and sampling
    key     : hash of all of this and of the file's content; of equal inputs each has its own
    problem : why it cannot be made; "" if it can
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
        """How messages call it."""
        return f"input {self.number} ({self.text[:60]})" if self.text else f"input {self.number}"


@dataclass(frozen=True)
class Inputs:
    """entries : in their order; are_files : clouds and meshes, not prompts; unused : fields of the lines that no entry uses"""

    entries: list[BatchInput]
    are_files: bool
    unused: list[str]


Fields = Mapping[str, Any]


def read_inputs(path: Path, seed: int = 0) -> Inputs:
    """All inputs of a file or a folder. seed : of every input that names none; of equal inputs, the next one has the next seed.

    Raises BadPrompt or BadFile for a file that holds no input, that is no list, that cannot be read, or whose lines cannot be told apart.
    """
    if path.is_dir():
        found: list[tuple[int, Fields | str]] = [(i, {FILE: file.name}) for i, file in enumerate(files_in(path), 1)]
        return Inputs(entries_of(found, path, seed), True, [])
    text, kind = text_of(path), path.suffix.lower()
    found = list(csv_rows(path, text) if kind in CSV else json_rows(text) if kind in JSON_LINES else text_rows(text))
    if not found:
        raise BadPrompt(f"{path} has no input. Write one prompt a line.")
    given = [fields for _, fields in found if isinstance(fields, Mapping)]
    unused = list(dict.fromkeys(name for fields in given for name in fields if name not in FIELDS))
    are_files = any(fields.get(FILE) for fields in given)
    return Inputs(entries_of(found, path.parent, seed, FILE if are_files else PROMPT), are_files, unused)


def text_of(path: Path) -> str:
    """The text of a list, with "\\n" at the end of each line; a byte that is no UTF-8 is a problem of its line. Raises BadFile."""
    kind = path.suffix.lower()
    try:
        content = path.read_bytes()
    except OSError as e:
        raise BadFile(f"Cannot read {path} ({e.strerror or e}). Give a file of prompts, or a folder of clouds.") from e
    if kind in READERS and kind not in LISTS:
        raise BadFile(f"{path.name} is a cloud or a mesh, not a list of inputs. Give its folder, or make it alone with launch.py mesh.")
    if kind == ".json":
        raise BadFile(NOT_JSON_LINES.format(path.name))
    marked = MARKED.get(content[:2])
    try:
        text = content.decode(marked) if marked else content.decode("utf-8-sig", "surrogateescape")
    except UnicodeDecodeError as e:
        raise BadFile(f"{path.name} begins as UTF-16 and is damaged ({e.reason}). Save it as UTF-8.") from e
    if not marked and "\0" in text:
        raise BadFile(f"{path.name} is no text that can be read: it holds NUL characters. Save it as UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


# --- lines ------------------------------------------------------------------------------------------------------------


def text_rows(text: str) -> Iterator[tuple[int, Fields]]:
    """The lines that are not empty, each a prompt, with their numbers."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, {PROMPT: line.strip()}


def json_rows(text: str) -> Iterator[tuple[int, Fields | str]]:
    """Of each line its fields, or its problem. A line is a string, which is a prompt, or an object."""
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
    """Of each row its fields by the names in the first line, or its problem. Raises BadFile without a column of inputs, and for quotes that
    cannot be read, as they hide other rows."""
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(SEPARATORS, key=first.count), strict=True)
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        if PROMPT not in names and FILE not in names:
            raise BadFile(f"{path.name} has no column '{PROMPT}' and none '{FILE}' in its first line. Name the column of the inputs so.")
        if twice := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
            raise BadFile(f"{path.name} names the column '{twice[0]}' twice in its first line. Give each column a name of its own.")
        for values in reader:
            if not any(value.strip() for value in values):
                continue
            if len(values) > len(names):
                yield reader.line_num, f"It has {len(values)} values for {len(names)} columns. Put quotes around a text with separators."
            else:
                yield reader.line_num, {name: value.strip() for name, value in zip(names, values, strict=False) if value.strip()}
    except csv.Error as e:
        raise BadFile(f"{path.name} cannot be read from line {reader.line_num} on ({e}). Mend its quotes.") from e


# --- entries ----------------------------------------------------------------------------------------------------------


def entries_of(found: list[tuple[int, Fields | str]], folder: Path, seed: int, kind: str = FILE) -> list[BatchInput]:
    """The entries of lines. folder : of their files; kind : what every line has to name"""
    seen: Counter[tuple] = Counter()
    return [entry_of(number, fields, folder, seed, kind, seen) for number, fields in found]


def entry_of(number: int, fields: Fields | str, folder: Path, seed: int, kind: str, seen: Counter[tuple]) -> BatchInput:
    """The entry of a line. seen : how many equal ones came before, by what they are"""
    if isinstance(fields, str):
        return BatchInput(number, "", problem=fields)
    text = str(fields.get(kind) or "")
    try:
        if not isinstance(fields.get(kind), str) or not text.strip():
            raise BadPrompt(f"It has no {kind}. Give one, or delete the line.")
        Prompt(text)  # refuses what is no text
        given = None if fields.get("seed") is None else whole("seed", fields["seed"], 0, LARGEST_SEED_HERE)
        changes = changes_of(fields)
        content = digest(folder / text) if kind == FILE else ""
    except ForetokenError as e:
        return BatchInput(number, text.encode("utf-8", "backslashreplace").decode(), problem=str(e))
    same = (kind, text, content, given, tuple(sorted(changes.items())))
    before = seen[same]
    seen[same] += 1
    own = (seed + before) % (LARGEST_SEED_HERE + 1) if given is None else given
    key = sha256(json.dumps([*same, own, before]).encode()).hexdigest()
    return BatchInput(number, text, str((folder / text).resolve()) if kind == FILE else None, own, changes, key)


def changes_of(fields: Fields) -> dict[str, float]:
    """The size, faces and sampling that a line names; raises BadPrompt for other values than the options take."""
    sizes = {name: whole(name, fields[name], 1, most) for name, most in SIZES.items() if fields.get(name) is not None}
    settings = {name: number(name, fields[name]) for name in SAMPLING if fields.get(name) is not None}
    changed(Sampling(), settings)
    return sizes | settings


def whole(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from low to high; raises BadPrompt."""
    found = whole_number(value)
    if found is None:
        raise BadPrompt(f"{name} = {str(value)[:40]!r} is not a whole number. Correct it, or leave it out.")
    if not low <= found <= high:
        raise BadPrompt(f"{name} = {str(value)[:40]} is out of range. Choose {low:,} to {high:,}.")
    return found


def number(name: str, value: Any) -> float:
    """A number, a whole one for top_k; raises BadPrompt."""
    if name == "top_k":
        return whole(name, value, 0, 2**31 - 1)
    found = decimal(value)
    if found is None:
        raise BadPrompt(f"{name} = {str(value)[:40]!r} is not a number. Correct it, or leave it out.")
    return float(found)


def digest(path: Path) -> str:
    """The hash of a file's content; raises BadFile."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError) as e:
        raise BadFile(f"Cannot read {path} ({getattr(e, 'strerror', None) or e}). Give another file.") from e

"""card.json of a model folder: its required entries, and the hashes of the folder's files.

A card is read strictly: it must be a JSON object in UTF-8, with finite numbers only. It lists every other file of the folder with its
SHA-256, including files in subfolders, unless a subfolder has a card of its own.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import MissingWeights
from engine.files import ASIDE, PART, recover, refusal, write_text

CARD = "card.json"
HASHES = "sha256"  # the card entry that maps file names to hashes
LARGEST = 16 * 2**20  # bytes
KINDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def has_card(folder: Path) -> bool:
    """True if a folder is a model folder. First restores a folder that an interrupted swap left moved aside."""
    return (folder / CARD).exists() or (_is_recovered(folder) and (folder / CARD).exists())


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a model folder; raises MissingWeights if it is absent or damaged."""
    path = folder / CARD
    if not has_card(folder):
        raise MissingWeights(f"{path} is missing; a model folder needs its card. Restore it with git.")
    return read_json(path)


def write_entry(folder: Path, name: str, value: Any) -> None:
    """Sets one entry of a card; raises MissingWeights without a card, BadOutput if it cannot be written."""
    path, text = folder / CARD, json.dumps(read_card(folder) | {name: value}, indent=1, ensure_ascii=False) + "\n"
    try:
        write_text(path, text)
    except OSError as e:
        raise refusal(path, e, "Give a folder that can be written.") from e


def _is_recovered(folder: Path) -> bool:
    try:
        return recover(folder)
    except OSError:
        return False


def read_json(path: Path, advice: str = "Restore it with git.") -> dict[str, Any]:
    """The object in a JSON file; raises MissingWeights, with the advice, for anything else."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("it is too large")
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_finite, parse_float=_finite)
    except (OSError, ValueError, RecursionError) as e:
        raise MissingWeights(f"{path} is not JSON ({str(e).splitlines()[0]}). {advice}") from e
    if not isinstance(content, dict):
        raise MissingWeights(f"{path} holds {KINDS.get(type(content), 'nothing')}, not an object. {advice}")
    return content


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"it says {name}, which is not a number")


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _not_finite(text)


def need(card: Mapping[str, Any], name: str, kind: type, folder: Path | None = None, of: type | None = None) -> Any:
    """An entry of a card, such as "decoder.settings", of the given kind; raises MissingWeights if it is absent or of another kind.

    folder : the card's folder, for the message; of : the kind of every element of a list or an object
    """
    where = "The card" if folder is None else str(folder / CARD)
    value: Any = card
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise MissingWeights(f"{where} has no '{name}'. Restore it with git, or train the model again.")
        value = value[part]
    elements: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    if not _is_kind(value, kind) or (of is not None and not all(_is_kind(each, of) for each in elements)):
        wanted = KINDS[kind] + (f" with {KINDS[of]} at every place" if of else "")
        raise MissingWeights(f"'{name}' of {where} is {str(value)[:40]!r}, not {wanted}. Restore it with git, or train the model again.")
    return value


def _is_kind(value: Any, kind: type) -> bool:
    """True if a JSON value is of a kind: an integer is a number, a boolean is not."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float) if kind is float else isinstance(value, kind)


def refuse_stale(path: Path, row: Any, weights_hash: str | None, recipe: str) -> None:
    """Raises MissingWeights for a file if its card names another hash of the weights it was trained for."""
    made_for = row.get("backbone") if isinstance(row, Mapping) else None
    if made_for is not None and weights_hash is not None and made_for != weights_hash:
        raise MissingWeights(
            f"{path} was trained for the weights {str(made_for)[:40]}, and these are {weights_hash}. "
            f"Train it again: python launch.py train {recipe}."
        )


# --- hashes -----------------------------------------------------------------------------------------------------------


def hash_of(files: list[Path]) -> str:
    """A short checksum of weights files, recorded with a run; raises MissingWeights if a file cannot be read."""
    digest = hashlib.sha256()
    for path in files:
        try:
            digest.update(path.read_bytes())
        except OSError as e:
            raise MissingWeights(f"The weights file {path} cannot be read ({e.strerror or e}). Restore it with git.") from e
    return digest.hexdigest()[:16]


def sha256(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def covered_files(folder: Path) -> list[Path]:
    """The files that a folder's card must list."""
    files = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((PART, ASIDE)) or path.name == CARD:
            continue
        if path.is_file():
            files.append(path)
        elif path.is_dir() and not (path / CARD).exists():
            files += covered_files(path)
    return files


def check_hash(path: Path) -> None:
    """Raises ValueError if a file is not the one that its card describes. Files are not checked if the card has no hashes, or if they
    are in a subfolder that the card does not list."""
    for folder in (path.parent, path.parent.parent):
        if not (folder / CARD).is_file():
            continue
        card = read_card(folder)
        if HASHES not in card:
            return
        expected = need(card, HASHES, dict, folder, of=str).get(path.relative_to(folder).as_posix())
        if expected is None and folder == path.parent:
            raise ValueError(f"{folder / CARD} does not name it")
        if expected is not None and expected != sha256(path):
            raise ValueError("its SHA-256 is not the one on its card")
        return

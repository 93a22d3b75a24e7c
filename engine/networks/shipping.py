"""Writes trained weights into a model folder: builds a new folder next to it, then swaps once, so that a killed process never leaves a
mixture."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.errors import BadOutput
from engine.files import ASIDE, PART, clean, recover, refusal, whole_file, whole_folder, writers, writers_in
from engine.networks.card import CARD, HASHES, covered_files, need, read_card, sha256
from engine.networks.packing import pack, part_files

Entries = Mapping[str, Any]


def ship(
    folder: Path,
    files: Mapping[str, Mapping[str, Tensor]],
    card: Entries | Callable[[Path], Entries],
    *,
    write_more: Callable[[Path], None] | None = None,
    stale: Collection[str] = (),
    base: Path | None = None,
) -> None:
    """Writes weights as `pack` stores them, and adds to the card. Removes the parts of earlier, longer weights.

    files : tensors by the name of their file; card : its new entries, or a function from the folder with its new files to the entries
    write_more : (folder) -> None, writes more files into it; stale : names of files and folders to remove, because they no longer fit
    base : the model folder to copy first, if `folder` is new

    All or nothing: raises BadOutput, and leaves the folder as it was, if numbers are not finite, the files cannot be written, or
    another process is writing the same folder. The card lists every file with its SHA-256.
    """
    for name, tensors in files.items():
        strange = [key for key, tensor in tensors.items() if not torch.isfinite(tensor).all()]
        if strange:
            raise BadOutput(f"{name} is not written: its '{strange[0]}' holds numbers that are not finite. Train it again with --fresh.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        recover(folder)
        clean(folder.parent)
        with whole_folder(folder.parent, folder.name) as new:
            if others := [*writers(folder), *writers(folder.parent), *writers_in(folder)]:
                raise BadOutput(f"Process {others[0]} is writing {folder}. Try again with --export when it has finished.")
            before = folder if folder.exists() or base is None else base
            if before.exists():
                shutil.copytree(before, new, ignore=shutil.ignore_patterns(f"{PART}*", f"{ASIDE}*"), dirs_exist_ok=True)
            _write(new, files, card, write_more, stale)
    except OSError as e:
        raise refusal(folder, e, "Nothing was changed; the checkpoint stays, and --export writes it when there is room.") from e


def _write(
    new: Path,
    files: Mapping[str, Mapping[str, Tensor]],
    card: Entries | Callable[[Path], Entries],
    write_more: Callable[[Path], None] | None,
    stale: Collection[str],
) -> None:
    known = read_card(new) if (new / CARD).exists() else {}
    hashes = dict(need(known, HASHES, dict, new, of=str)) if HASHES in known else {}
    copied = {name: _state(new / name) for name in hashes if (new / name).exists()}
    longer = {path.name for stem in {n.rsplit("-", 1)[0] for n in files if "-" in n} for path in part_files(new, stem)} - set(files)
    for name in {*longer, *stale}:
        path = new / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for name, tensors in files.items():
        save_file(pack(tensors), str(new / name))
        (new / name).chmod(0o644)
    if write_more is not None:
        write_more(new)
    entries = known | dict(card(new) if callable(card) else card)
    untouched = {name: hashes[name] for name, state in copied.items() if (new / name).exists() and _state(new / name) == state}
    write_card(new, entries, untouched)


def _state(path: Path) -> tuple[int, int, int]:
    """The metadata of a file that change when it is written."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def write_card(folder: Path, entries: Entries, known: Mapping[str, str] | None = None, to: Path | None = None) -> None:
    """Writes a card with the hash of every file that it must list. known : hashes of files that were not written here: if such a file
    was damaged since, the card must not record the damaged file's hash."""
    names = {path.relative_to(folder).as_posix(): path for path in covered_files(folder)}
    hashes = {name: (known or {}).get(name) or sha256(path) for name, path in names.items()}
    try:
        text = json.dumps(dict(entries) | {HASHES: hashes}, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as e:
        raise BadOutput(f"{folder / CARD} is not written: one of its numbers is not finite. Train again with --fresh.") from e
    (to or folder / CARD).write_text(text + "\n", encoding="utf-8")


def sign(folder: Path, **entries: Any) -> None:
    """Adds entries to a card, and the current hash of each file: for a folder assembled by hand."""
    recover(folder)
    with whole_file(folder / CARD) as part:
        write_card(folder, read_card(folder) | entries, to=part)

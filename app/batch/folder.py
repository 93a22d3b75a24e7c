"""The folder of a batch. Each result is a folder that is written atomically, with hashes of its files, so a kill loses nothing.

DIR/batch.json    the settings, see plan.py
DIR/results/*/    a folder per finished input, with the files of a saved run and row.json
DIR/results.csv   a row per input, see table.py
DIR/sheet.jpg     see sheet.py
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from app.batch.inputs import BatchInput
from app.batch.plan import BatchPlan, resume_plan
from app.runs.history import as_sentence, check_writable
from engine import files
from engine.errors import BadOutput

SETTINGS, RESULTS, ROW, LOCK = "batch.json", "results", "row.json", ".lock"
SHOWN, HEX = 40, 12  # characters from the input and from its key in a folder's name

Row = dict[str, Any]


class BatchFolder:
    """Results of a batch. Several processes may write to the same folder; the first result of an input wins."""

    def __init__(self, root: Path):
        self.root, self.results = root, root / RESULTS

    def open(self, plan: BatchPlan) -> BatchPlan:
        """Creates the folder, or resumes in it; returns the plan with the method of the first start. Raises BadOutput."""
        check_writable(self.results)
        self.clean()
        if (earlier := stored_settings(self.root)) is not None:
            return resume_plan(plan, earlier, str(self.root))
        with as_sentence(self.root):
            files.write_text(self.root / SETTINGS, json.dumps(plan.row(), indent=1, ensure_ascii=False) + "\n")
        return plan

    def clean(self) -> None:
        """Deletes unfinished folders of dead processes on this machine."""
        files.clean(self.root)
        files.clean(self.results)

    def place(self, entry: BatchInput) -> Path:
        """The folder of an input's result."""
        words = re.sub(r"[^a-z0-9]+", "-", entry.text.lower()).strip("-")[:SHOWN].strip("-")
        return self.results / f"{words or 'input'}-{entry.key[:HEX]}"

    def finished_row(self, entry: BatchInput) -> Row | None:
        """The row of a finished input, without checking its other files; None if it is not finished."""
        try:
            row = json.loads((self.place(entry) / ROW).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return row if isinstance(row, dict) and row.get("hash") == entry.key else None

    def checked_row(self, entry: BatchInput) -> Row | None:
        """Like `finished_row`, but checks all hashes. A damaged result is deleted, so that it is made again."""
        row, place = self.finished_row(entry), self.place(entry)
        if row is not None and isinstance(row.get("files"), dict) and all(hash_of(place / n) == h for n, h in row["files"].items()):
            return row
        if place.exists():
            with as_sentence(place):
                shutil.rmtree(place)
        return None

    def keep(self, entry: BatchInput, write: Callable[[Path], Row]) -> Row:
        """Writes a result atomically; returns its row, or that of a process that finished it first.

        write : fills an empty folder and returns its row
        """
        target = self.place(entry)
        with as_sentence(self.results), files.whole_folder(self.results, target.name, lambda part: move_unless_taken(part, target)) as part:
            row = write(part)
            hashes = {path.name: hash_of(path) for path in sorted(part.iterdir())}
            row = row | {"hash": entry.key, "files": hashes}
            (part / ROW).write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")
        return self.finished_row(entry) or row

    def reference(self, path: Path) -> str:
        """Path relative to the batch's folder, as in the table."""
        return path.relative_to(self.root).as_posix()


def stored_settings(root: Path) -> dict[str, Any] | None:
    """Settings of an earlier start in this folder; None if there was none. Raises BadOutput."""
    path = root / SETTINGS
    if not path.exists():
        return None
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise BadOutput(f"{path} cannot be read ({e}). Choose another folder with --out.") from e
    if not (isinstance(settings, dict) and isinstance(settings.get("method"), str) and isinstance(settings.get("dtype"), str)):
        raise BadOutput(f"{path} contains no settings of a batch. Choose another folder with --out.")
    return settings


def move_unless_taken(part: Path, target: Path) -> Path:
    """Moves a finished folder to its final name, or deletes it if that name is taken."""
    try:
        part.rename(target)
    except OSError:
        if not target.exists():
            raise
        shutil.rmtree(part)
    return target


def hash_of(path: Path) -> str | None:
    """SHA-256 of a file's content; None if it cannot be read."""
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


@contextmanager
def locked_batch(root: Path) -> Iterator[None]:
    """Locks the batch against other processes on this machine; the system releases the lock of a killed one. Raises BadOutput."""
    with as_sentence(root):
        check_writable(root)
        handle = os.open(root / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            lock(handle)
        except OSError:
            raise BadOutput(
                f"Another process is working on the batch in {root}. Wait for it to end, or choose another folder with --out."
            ) from None
        yield
    finally:
        with suppress(OSError):
            os.close(handle)


def lock(handle: int) -> None:
    """Locks an open file for this process; raises OSError if another process holds the lock."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def failed_row(entry: BatchInput, error: str, attempts: int = 0) -> Row:
    """Row of an input without a result."""
    return {"status": "failed", "hash": entry.key, "error": error, "attempts": attempts}


def with_entry(row: Mapping[str, Any], entry: BatchInput) -> Row:
    """A row with its input's fields; the number may differ from an earlier start's."""
    return {**row, "number": entry.number, "input": entry.text, "seed": None if entry.problem else entry.seed}

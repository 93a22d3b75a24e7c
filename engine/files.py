"""Atomic writes of files and folders, and cleanup after processes that died while writing.

An unfinished file is called `.part-<process>-<random>-<target>`, next to its target, and is renamed once all of it is on disk. A kill at
any moment leaves the old file or the new one, and perhaps a part file, which a later start recognises by its process id and removes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import BadOutput

PART = ".part-"  # prefix of an unfinished file or folder
ASIDE = ".aside-"  # prefix of a folder that is being replaced
OWNED = re.compile(rf"(?:{re.escape(PART)}|{re.escape(ASIDE)})(\d+)-")
STARTED = time.time()  # about when this process started
FORGOTTEN = 24 * 3600  # seconds after which a leftover without a process id in its name is removed
TRIES = 20  # for a swap, if another process recovers the old folder at the same time


def home() -> Path:
    """The user's data directory: $FORETOKEN_HOME, or the platform's default."""
    if folder := os.environ.get("FORETOKEN_HOME"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "foretoken"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home())) / "foretoken"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "foretoken"


def refusal(what: Path, error: Exception, advice: str) -> BadOutput:
    """The error for a file or folder that cannot be written."""
    if isinstance(error, shutil.Error):  # of a folder that was copied: a list of (source, target, reason)
        error = OSError(str(error.args[0][0][2]))
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
    return BadOutput(f"Cannot write {what} ({reason}). {advice}")


# --- atomic writes ----------------------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to. On success it is synced and renamed to `path`; after an error it is removed."""
    part = part_beside(path)
    try:
        yield part
        sync(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def whole_folder(parent: Path, name: str, place: Callable[[Path], Path] | None = None) -> Iterator[Path]:
    """A temporary folder to fill. On success it is synced and moved into place; after an error it is removed.

    place : moves the finished folder to its final name (default: replaces `parent / name`)
    """
    part = part_beside(parent / name)
    part.mkdir()
    try:
        yield part
        for each in [*part.rglob("*"), part]:
            sync(each)
        (place or (lambda finished: swap(finished, parent / name)))(part)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync(parent)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copies a file atomically."""
    with whole_file(target) as part:
        shutil.copy2(source, part)


def sync(path: Path) -> None:
    """Waits until a file, or the list of names in a folder, is on disk."""
    if path.is_symlink() or (os.name == "nt" and path.is_dir()):  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def swap(new: Path, target: Path) -> None:
    """Replaces a folder by a finished one. Between the two renames neither exists under its name; `recover` restores the old one."""
    old = target.parent / f"{ASIDE}{os.getpid()}-{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    for left in reversed(range(TRIES)):
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
            break
        except OSError:
            if not left or not target.exists():  # else another process has already restored the old one
                recover(target)
                raise
    for leftover in set_aside_folders(target):
        shutil.rmtree(leftover, ignore_errors=True)


def set_aside_folders(target: Path) -> list[Path]:
    """The folders put aside while this one was being replaced, the newest last."""
    owned = [path for path in target.parent.glob(f"{ASIDE}*-{target.name}") if OWNED.match(path.name)]
    return sorted((path for path in owned if path.name.split("-", 2)[2] == target.name), key=lambda path: path.stat().st_mtime)


def recover(target: Path) -> bool:
    """Restores the folder that a dead process had put aside; True if `target` exists afterwards."""
    if not target.exists() and (left := set_aside_folders(target)):
        left[-1].rename(target)
    return target.exists()


# --- leftovers of dead processes --------------------------------------------------------------------------------------


def part_beside(path: Path) -> Path:
    """A new name in the same folder that marks the content as unfinished and names the writing process."""
    return path.parent / f"{PART}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"


def writers(target: Path) -> list[int]:
    """The ids of other live processes that are writing this target."""
    return _living(target.parent.glob(f"{PART}*-{target.name}"))


def writers_in(folder: Path) -> list[int]:
    """The ids of other live processes that are writing in a folder."""
    return _living(folder.glob(f"{PART}*"))


def _living(paths: Iterator[Path]) -> list[int]:
    processes = {int(m[1]) for path in paths if (m := OWNED.match(path.name))}
    return sorted(process for process in processes if process != os.getpid() and is_running(process))


def clean(folder: Path) -> None:
    """Removes unfinished files and folders of dead processes, except those that cannot be removed."""
    for path in folder.glob(f"{PART}*"):
        if not path.is_symlink() and left_behind(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def left_behind(path: Path) -> bool:
    """True if a part's writer is gone: the process is dead, or was an earlier one with this process's id."""
    try:
        written = path.stat().st_mtime
    except OSError:  # removed by another process
        return False
    owner = OWNED.match(path.name)
    if owner is None:  # a part of an earlier version; other names with these prefixes may be the user's own
        return path.name.startswith(PART) and written < time.time() - FORGOTTEN
    return written < STARTED if int(owner[1]) == os.getpid() else not is_running(int(owner[1]))


def is_running(process: int) -> bool:
    """True if a process of this id runs. Always True on Windows, where os.kill would end the process."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True

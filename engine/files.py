"""Files and folders that are written whole or not at all, and what is left of processes that died while they wrote.

What is not finished has a name of its own beside its target, `.part-<process>-<random>-<target>`, and is renamed once all of it is on the
disk. So a kill at any moment leaves the old file or the new one, and a part that a later start recognises by its process and removes.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import BadOutput

PART = ".part-"  # begins the name of what is not finished
ASIDE = ".aside-"  # begins the name of a folder that makes room for its successor
SCRATCH = "foretoken-"  # begins the name of a temporary folder
OWNED = re.compile(rf"(?:{re.escape(PART)}|{re.escape(ASIDE)}|{SCRATCH})(\d+)-")
STARTED = time.time()  # about when this process did
FORGOTTEN = 24 * 3600  # seconds after which a leftover goes whose name tells no process
TRIES = 20  # at a swap that somebody else's recovery disturbs


def home() -> Path:
    """The user's data directory: $FORETOKEN_HOME, or the platform's own place."""
    if given := os.environ.get("FORETOKEN_HOME"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "foretoken"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home())) / "foretoken"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "foretoken"


def refusal(what: Path, error: Exception, advice: str) -> BadOutput:
    """The sentence for a file or folder that the disk did not take."""
    if isinstance(error, shutil.Error):  # of a folder that was copied: a list of (source, target, reason)
        error = OSError(str(error.args[0][0][2]))
    reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).strip().splitlines()[0].rstrip(".")
    return BadOutput(f"Cannot write {what} ({reason}). {advice}")


# --- whole or not at all ----------------------------------------------------------------------------------------------


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to. Afterwards the file has its own name, on the disk; after an error there is nothing new."""
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
    """A folder to fill. Afterwards it lies in its place, on the disk; after an error there is nothing new.

    place : gives the finished folder its name (default: puts it where `parent / name` is)
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
    """Writes a text file, whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def copy(source: Path, target: Path) -> None:
    """Copies a file, whole or not at all."""
    with whole_file(target) as part:
        shutil.copy2(source, part)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    if path.is_symlink() or (os.name == "nt" and path.is_dir()):  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def swap(new: Path, target: Path) -> None:
    """Puts a finished folder in the place of another one, which goes. Between the renames there is none; `recover` puts the old back."""
    old = target.parent / f"{ASIDE}{os.getpid()}-{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    for left in reversed(range(TRIES)):
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
            break
        except OSError:
            if not left or not target.exists():  # else somebody has recovered the old one in between
                recover(target)
                raise
    for leftover in asides(target):
        shutil.rmtree(leftover, ignore_errors=True)


def asides(target: Path) -> list[Path]:
    """The folders that were put aside for successors of this one, the newest last."""
    found = [path for path in target.parent.glob(f"{ASIDE}*-{target.name}") if OWNED.match(path.name)]
    return sorted((path for path in found if path.name.split("-", 2)[2] == target.name), key=lambda path: path.stat().st_mtime)


def recover(target: Path) -> bool:
    """Puts back the folder that a process had put aside when it died; True if there is one at its place now."""
    if not target.exists() and (left := asides(target)):
        left[-1].rename(target)
    return target.exists()


# --- what dead processes left -----------------------------------------------------------------------------------------


def part_beside(path: Path) -> Path:
    """A fresh name in the same folder, which says that its content is not finished and who writes it."""
    return path.parent / f"{PART}{os.getpid()}-{secrets.token_hex(4)}-{path.name}"


def writers(target: Path) -> list[int]:
    """The other processes that are alive and write something of this name now."""
    return _living(target.parent.glob(f"{PART}*-{target.name}"))


def writers_in(folder: Path) -> list[int]:
    """The other processes that are alive and write something in a folder now."""
    return _living(folder.glob(f"{PART}*"))


def _living(paths: Iterator[Path]) -> list[int]:
    found = {int(m[1]) for path in paths if (m := OWNED.match(path.name))}
    return sorted(process for process in found if process != os.getpid() and alive(process))


def scratch_folder() -> Path:
    """A new temporary folder that a later start removes if this process cannot."""
    return Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))


def clean(folder: Path) -> None:
    """Removes unfinished files and folders of processes that are dead; what cannot be removed stays."""
    _clean(folder, PART)


def clean_scratch() -> None:
    """Removes the temporary folders of processes that are dead."""
    _clean(Path(tempfile.gettempdir()), SCRATCH)


def _clean(folder: Path, beginning: str) -> None:
    for path in folder.glob(f"{beginning}*"):
        if not path.is_symlink() and left_behind(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def left_behind(path: Path) -> bool:
    """Whether nobody works on a part any more: its process is dead, or had this one's number before it."""
    try:
        written = path.stat().st_mtime
    except OSError:  # somebody else has removed it
        return False
    owner = OWNED.match(path.name)
    if owner is None:  # a part of an earlier version; what else begins like a temporary folder may be a person's own
        return path.name.startswith(PART) and written < time.time() - FORGOTTEN
    return written < STARTED if int(owner[1]) == os.getpid() else not alive(int(owner[1]))


def alive(process: int) -> bool:
    """Whether a process of this number runs. On Windows, where asking would end it, all do."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True

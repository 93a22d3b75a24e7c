"""A disk that fails, is full, or loses power at the n-th operation, for one child process.

Python calls an audit hook before it opens, renames, makes or removes anything, and an exception in the hook makes the operation fail.
Files that a library writes without Python (weights, checkpoints) fail at a limit on the size of files instead.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
IN_FOLDERS = ("os.remove", "os.rmdir", "os.mkdir")  # events whose last argument is an open folder, -1 = none
CALLS = ("fsync", "fdatasync", "write")  # of os, of which no hook is told
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ALWAYS = -1  # at every operation
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES)


@dataclass
class Disk:
    """A fault at the `at`-th operation that changes something below `root`: an error number, or 0 to end the process."""

    root: Path
    at: int
    error: int
    count: int = 0

    def install(self) -> None:
        """Installs the fault in this process for good: only for a child."""
        sys.addaudithook(self._hook)
        for name in CALLS:
            setattr(os, name, self._wrap(getattr(os, name)))

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        folder = arguments[-1] if event in IN_FOLDERS else -1
        if event in EVENTS and self._is_ours(arguments[0], folder) and (event != "open" or self._writes(*arguments)):
            self._next()

    def _is_ours(self, path: Any, folder: int) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        where = Path(os.fsdecode(path))
        if not where.is_absolute() and folder >= 0:  # a name in an open folder, as rmtree removes them
            where = Path(os.readlink(f"/proc/self/fd/{folder}")) / where
        return where.is_relative_to(self.root)

    @staticmethod
    def _writes(path: Any, mode: str | None, flags: int) -> bool:
        return bool(flags & WRITING) if mode is None else bool(set(mode) & set("wax+"))

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(descriptor: int, *arguments: Any) -> Any:
            if self._is_ours(os.readlink(f"/proc/self/fd/{descriptor}"), -1):
                self._next()
            return call(descriptor, *arguments)

        return wrapped

    def _next(self) -> None:
        self.count += 1
        if self.at not in (self.count, ALWAYS):
            return
        if not self.error:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.error, os.strerror(self.error), str(self.root))


def full_at(size: int, deadly: bool) -> None:
    """Limits the files of this process to `size` bytes: a larger write fails, or ends the process in the middle."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

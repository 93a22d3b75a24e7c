"""Progress of a batch on stderr: inputs done, inputs failed, remaining time."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from app.sentences import duration
from engine.mesh.formats.source import printable

SHOWN = 50  # characters of an input


class ProgressLine:
    """Counts rows and prints progress: one updated line on a terminal, one line per row to a file or pipe."""

    def __init__(self, total: int, done: int, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic):
        """done : number of inputs finished before this start"""
        self.total, self.done, self.failed, self.rows = total, done, 0, 0
        self.out, self._clock = out or sys.stderr, clock
        self._began, self._width = clock(), 0

    def add(self, row: Mapping[str, Any], is_last: bool = True) -> None:
        """Counts a row and prints it. is_last : it will not be retried"""
        self.rows += 1
        self.done += row["status"] == "done"
        self.failed += row["status"] != "done" and is_last
        text = f"{self.text()} · {row['status']}: {printable(row['input'], SHOWN)}"
        if self.out.isatty():
            text = text[: shutil.get_terminal_size().columns - 1]  # a longer one would wrap at each update
            self.out.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self.out.write(text + "\n")
        self.out.flush()

    def text(self) -> str:
        """Progress as text."""
        each = (self._clock() - self._began) / max(1, self.rows)
        remaining = self.total - self.done - self.failed
        more = f" · {each:.1f} s each · {duration(each * remaining)} left" if self.rows and remaining else ""
        return f"{self.done} of {self.total} done" + (f", {self.failed} failed" if self.failed else "") + more

    def end(self) -> None:
        """Finishes the updated line with a newline."""
        if self.out.isatty() and self._width:
            self.out.write("\n")

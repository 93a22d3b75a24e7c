"""One visitor's runs: waiting in line, start, live knobs, stop, and freeing on disconnect.

The engine belongs to one visitor at a time. Gradio keeps the line of generators; this module knows who stands where, so that a
person can be told, and holds the handles through which a slider or the cancel button reaches a run that is already going.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.files import scratch_folder
from engine.run import Run


@dataclass
class Visit:
    """What belongs to one visitor: the runs that are going, the wish to stop, places given up, a folder for downloads, and what they
    gave to work on."""

    runs: list[Run] = field(default_factory=list)
    stopped: bool = False
    given_up: int = 0  # generators that Gradio will still start although their place was given up
    folder: Path | None = None
    given: Any = None


class Sessions:
    """All visits, keyed by the browser's session. Handlers run in several threads, so every access takes the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._visits: dict[str, Visit] = {}
        self._line: list[str] = []
        self._running: str | None = None

    def enter(self, visitor: str) -> bool:
        """Puts a visitor at the end of the line; False if they stand in it or have a run already."""
        with self._lock:
            if visitor in self._line or visitor == self._running:
                return False
            self._visits.setdefault(visitor, Visit()).stopped = False
            self._line.append(visitor)
            return True

    def place(self, visitor: str) -> int:
        """How many runs end before this visitor's begins; 0 if they do not wait."""
        with self._lock:
            if visitor not in self._line:
                return 0
            return self._line.index(visitor) + (self._running is not None)

    def begin(self, visitor: str) -> bool:
        """Takes a visitor out of the line; False if this place was given up, or the visitor went away."""
        with self._lock:
            visit = self._visits.get(visitor)
            if visit is not None and visit.given_up:
                visit.given_up -= 1
                return False
            if visitor not in self._line:
                return False
            self._line.remove(visitor)
            self._running = visitor
            return True

    def busy(self, visitor: str) -> bool:
        """True while a visitor waits or has a run."""
        with self._lock:
            return visitor in self._line or visitor == self._running

    def hold(self, visitor: str, runs: list[Run]) -> None:
        """Keeps the handles of the runs that are about to go; a stop or a farewell that came earlier still counts."""
        with self._lock:
            visit = self._visits.get(visitor)
            if visit is not None:
                visit.runs = runs
            if visit is None or visit.stopped:
                for run in runs:
                    run.stop()

    def move(self, visitor: str, method: str, values: Mapping[str, float | str], backbone: str | None = None) -> None:
        """Writes live knobs into the visitor's runs of a method; they act on the next step. Raises BadKnob.

        backbone: only runs of the model of this name
        """
        for run in self._runs(visitor):
            if run.method.name == method and backbone in (None, run.backbone.name):
                live = {k.name for k in run.method.knobs if k.live}
                run.set(**{name: value for name, value in values.items() if name in live})

    def stop(self, visitor: str) -> None:
        """Ends the visitor's runs before their next step, or their wait; what was committed stays."""
        with self._lock:
            visit = self._visits.get(visitor)
            if visit is None:
                return
            if visitor in self._line:
                self._line.remove(visitor)
                visit.given_up += 1
            visit.stopped = True
            for run in visit.runs:
                run.stop()

    def present(self, visitor: str) -> bool:
        """False once the page was closed."""
        with self._lock:
            return visitor in self._visits

    def end(self, visitor: str) -> None:
        """Lets go of a visitor's runs and frees their caches."""
        with self._lock:
            visit = self._visits.get(visitor)
            runs, self._running = (visit.runs if visit else []), None if self._running == visitor else self._running
            if visit:
                visit.runs = []
        for run in runs:
            run.close()

    def folder(self, visitor: str) -> Path:
        """A folder for the visitor's downloads; it goes when they leave."""
        with self._lock:
            visit = self._visits.setdefault(visitor, Visit())
            if visit.folder is None:
                visit.folder = scratch_folder()
            return visit.folder

    def give(self, visitor: str, given: Any) -> None:
        """Keeps what a visitor gave to work on; it goes when they leave."""
        with self._lock:
            self._visits.setdefault(visitor, Visit()).given = given

    def given(self, visitor: str) -> Any:
        """What a visitor gave last, None if nothing."""
        with self._lock:
            visit = self._visits.get(visitor)
            return visit.given if visit else None

    def leave(self, visitor: str) -> None:
        """The page was closed: runs stop, place and folder are given up. The generator closes its runs by itself."""
        self.stop(visitor)
        with self._lock:
            visit = self._visits.pop(visitor, None)
        if visit and visit.folder:
            shutil.rmtree(visit.folder, ignore_errors=True)

    def _runs(self, visitor: str) -> list[Run]:
        with self._lock:
            visit = self._visits.get(visitor)
            return list(visit.runs) if visit else []

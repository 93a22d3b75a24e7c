"""Where a studio keeps finished runs, and how many: when there are too many, the oldest go."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import NamedTuple

from app.limits import Limits
from app.runs import history
from engine.mesh.read import Input
from engine.run import Run


class Kept(NamedTuple):
    """A finished run on the disk: its folder, its age as the time of its settings, its size in bytes."""

    folder: Path
    written: float
    size: int


class RunStore:
    """The runs of one studio. A run is written beside the others and gets its name when it is whole, so none in progress is ever here.

    folder : of the runs
    limits : `runs` and `run_bytes`; with 0 runs nothing is written
    """

    def __init__(self, folder: Path, limits: Limits):
        self.folder, self.limits = folder, limits
        self._lock = threading.Lock()

    def keep(self, run: Run, given: Input | None = None) -> Path | None:
        """Saves a run and returns its folder, None if this studio keeps none; raises BadOutput. given: the cloud or mesh of its prompt"""
        if not self.limits.runs:
            return None
        made = history.save(run, self.folder, given=given)
        self.prune(made)
        return made

    def prune(self, newest: Path | None = None) -> list[Path]:
        """Deletes the oldest runs until the rest is within the limits; returns their folders. newest: never deleted"""
        with self._lock:
            kept = self.runs()
            size = sum(run.size for run in kept)
            gone = []
            for run in kept:
                if len(kept) - len(gone) <= self.limits.runs and size <= self.limits.run_bytes:
                    break
                if run.folder != newest:
                    shutil.rmtree(run.folder, ignore_errors=True)
                    gone.append(run.folder)
                    size -= run.size
            return gone

    def runs(self) -> list[Kept]:
        """The finished runs, the oldest first. Folders that hold no settings of a run are somebody else's."""
        found = []
        for settings in self.folder.glob(f"[!.]*/{history.SETTINGS}"):
            try:
                size = sum(each.stat().st_size for each in settings.parent.iterdir())
                found.append(Kept(settings.parent, settings.stat().st_mtime, size))
            except OSError:  # another process deletes it
                continue
        return sorted(found, key=lambda run: (run.written, run.folder.name))

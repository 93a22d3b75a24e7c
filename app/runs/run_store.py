"""Storage of a studio's finished runs; when there are too many, the oldest are deleted."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import NamedTuple

from app.limits import Limits
from app.runs import history
from engine.mesh.read import Input
from engine.run import Run


class StoredRun(NamedTuple):
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

    def save(self, run: Run, shape: Input | None = None) -> Path | None:
        """Saves a run and returns its folder, None if this studio stores none; raises BadOutput. shape: the cloud or mesh of its prompt"""
        if not self.limits.runs:
            return None
        folder = history.save(run, self.folder, shape=shape)
        self.prune(folder)
        return folder

    def prune(self, newest: Path | None = None) -> list[Path]:
        """Deletes the oldest runs until the rest is within the limits; returns their folders. newest: never deleted"""
        with self._lock:
            runs = self.runs()
            size = sum(run.size for run in runs)
            gone = []
            for run in runs:
                if len(runs) - len(gone) <= self.limits.runs and size <= self.limits.run_bytes:
                    break
                if run.folder != newest:
                    shutil.rmtree(run.folder, ignore_errors=True)
                    gone.append(run.folder)
                    size -= run.size
            return gone

    def runs(self) -> list[StoredRun]:
        """The finished runs, the oldest first. Folders that hold no settings of a run are somebody else's."""
        runs = []
        for settings in self.folder.glob(f"[!.]*/{history.SETTINGS}"):
            try:
                size = sum(each.stat().st_size for each in settings.parent.iterdir())
                runs.append(StoredRun(settings.parent, settings.stat().st_mtime, size))
            except OSError:  # another process deletes it
                continue
        return sorted(runs, key=lambda run: (run.written, run.folder.name))

"""Storage of a studio's finished runs, which deletes the oldest when there are too many."""

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
    """A finished run on disk: its folder, the modification time of its settings, its size in bytes."""

    folder: Path
    written: float
    size: int


class RunStore:
    """The runs of a studio. A run gets its final name once it is completely written, so all runs here are complete.

    folder : contains the runs
    limits : `runs` and `run_bytes`; with 0 runs nothing is stored
    """

    def __init__(self, folder: Path, limits: Limits):
        self.folder, self.limits = folder, limits
        self._lock = threading.Lock()

    def save(self, run: Run, shape: Input | None = None, other: Run | None = None) -> Path | None:
        """Saves a run; returns its folder, or None if this studio stores no runs. Raises BadOutput. shape : input of a mesh; other : the
        left side of its race"""
        if not self.limits.runs:
            return None
        folder = history.save(run, self.folder, shape=shape, other=other)
        self.prune(folder)
        return folder

    def prune(self, newest: Path | None = None) -> list[Path]:
        """Deletes the oldest runs until the limits are met; returns their folders. newest : never deleted"""
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
        """The finished runs, oldest first. Folders without run.json are ignored."""
        runs = []
        for settings in self.folder.glob(f"[!.]*/{history.SETTINGS}"):
            try:
                size = sum(each.stat().st_size for each in settings.parent.iterdir())
                runs.append(StoredRun(settings.parent, settings.stat().st_mtime, size))
            except OSError:  # another process is deleting it
                continue
        return sorted(runs, key=lambda run: (run.written, run.folder.name))

"""A clock that stands still while the process is stopped: a training that is paused (SIGSTOP) to measure something loses no minutes."""

from __future__ import annotations

import signal
import time

CONTINUED = getattr(signal, "SIGCONT", None)  # Windows has none, and stops no process


class Awake:
    """Seconds on a monotonic clock, without those between the last reading before a stop and the signal that ended it.

    Within `with` it listens for that signal; only the main thread may do so. Read it often: a stop counts from the newest reading on.
    """

    def __init__(self) -> None:
        self._newest, self._slept = time.monotonic(), 0.0

    def now(self) -> float:
        """Returns the reading."""
        self._newest = time.monotonic()
        return self._newest - self._slept

    def __enter__(self) -> Awake:
        if CONTINUED is not None:
            self._kept = signal.signal(CONTINUED, self._wake)
        return self

    def __exit__(self, *_: object) -> None:
        if CONTINUED is not None:
            signal.signal(CONTINUED, self._kept)

    def _wake(self, *_: object) -> None:
        now = time.monotonic()
        self._slept += now - self._newest
        self._newest = now

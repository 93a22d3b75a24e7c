"""Writing what a run made: a disk that is full or read-only costs what it was asked to keep and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.errors import BadOutput

Kept = TypeVar("Kept")


def keep(what: str, write: Callable[[], Kept]) -> tuple[Kept | None, list[BadOutput]]:
    """What `write` returns, and no mistake; or None and the sentence about the disk. what: is written, "history" or "download"."""
    try:
        return write(), []
    except BadOutput as e:
        return None, [BadOutput(f"The run is not in the {what}: {e}")]
    except OSError as e:
        return None, [BadOutput(f"The run is not in the {what}: the disk refused ({e.strerror or e}). Make room, then run again.")]

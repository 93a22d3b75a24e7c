"""Saves results of a run: if the disk is full or read-only, only that file is lost, with a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from engine.errors import BadOutput

Saved = TypeVar("Kept")


def try_save(what: str, write: Callable[[], Saved]) -> tuple[Saved | None, list[BadOutput]]:
    """Calls `write`; returns its result and no error, or None and the disk's error. what : target named in the message"""
    try:
        return write(), []
    except BadOutput as e:
        return None, [BadOutput(f"The run was not saved to the {what}: {e}")]
    except OSError as e:
        return None, [BadOutput(f"The run was not saved to the {what}: disk error ({e.strerror or e}). Free some space and run again.")]

"""Text for users: shortened values, durations, paths of this machine removed."""

from __future__ import annotations

import re

SHOWN = 40  # characters of a wrong value that a message shows
# A path on this machine: an optional drive letter, then two or more names after slashes. The last name is enough for the user.
PATH = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:|~)?(?:[/\\][^\s/\\:;,()\"']+)+[/\\]([^\s/\\:;,()\"']+)[/\\]?")


def brief(value: object) -> str:
    """A wrong value for an error message: printable, at most SHOWN characters."""
    text = "".join(c if c.isprintable() else "?" for c in str(value)[: SHOWN + 1])
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def duration(seconds: float) -> str:
    """Duration in words: "40 s", "3 min", "1.5 h"."""
    if seconds < 1:
        return "less than a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def without_paths(text: str) -> str:
    """The text with paths on this machine shortened to their last name."""
    return PATH.sub(r"\1", text)

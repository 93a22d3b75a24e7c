"""Notices for the user: unknown words, the place in the queue, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr

from app.sentences import without_paths
from app.ui.panels import panel
from engine.core import Understood

MOST_KEPT = 40  # words of a notice that are read
LONG = 10.0  # seconds of a wait during which a replay is suggested
TEMPLATE = '<div class="ft-notices" role="status"></div>'


def build(elem_id: str) -> gr.HTML:
    """Builds a strip of notices that takes no space while empty."""
    return panel("notice", [], TEMPLATE, before=("prompt",), elem_id=elem_id)


def understood(name: str, prompt: Understood, kept: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Notice of what a model of this name makes of a prompt, with known words to replace others by a click, and corrections to undo.

    kept : misspelled words that the visitor does not want to be corrected
    """
    parts = [prompt.description, *prompt.remarks]
    if prompt.ignored and prompt.description:
        lost, out = ", ".join(f"'{word}'" for word in prompt.ignored), "that word" if len(prompt.ignored) == 1 else "those words"
        parts.append(f"{name} does not know {lost}, so it leaves {out} out.")
    if not any(parts):
        return []
    line = {"text": " ".join(filter(None, parts)), "instead": prompt.instead, "corrected": prompt.corrected, "kept": list(kept)}
    problem = prompt.remarks or prompt.ignored or prompt.corrected or prompt.instead
    return [line | {"kind": "hint" if problem else "note", "nothing": not prompt.description}]


def kept_words(notices: object) -> frozenset[str]:
    """The words of `understood` that the visitor does not want to be corrected, from the panel's value."""
    rows = notices if isinstance(notices, list) else []
    words = [word for row in rows if isinstance(row, Mapping) and isinstance(row.get("kept"), list) for word in row["kept"]]
    return frozenset(word for word in words[:MOST_KEPT] if isinstance(word, str))


def error(*mistakes: Exception) -> list[dict[str, str]]:
    """A notice per error, without paths of this machine."""
    return [{"kind": "error", "text": without_paths(str(mistake))} for mistake in mistakes]


def hint(text: str) -> list[dict[str, str]]:
    """A notice with a hint."""
    return [{"kind": "hint", "text": text}]


def notes(lines: Iterable[str]) -> list[dict[str, str]]:
    """Notices in small print."""
    return [{"kind": "note", "text": line} for line in lines]


def queue_place(ahead: int, seconds: float | None = None, replays: bool = False) -> list[dict[str, str]]:
    """Notice of the visitor's place in the queue; [] if nobody is ahead.

    seconds : expected wait, None = unknown; replays : the page shows a race that can be replayed meanwhile
    """
    if ahead < 1:
        return []
    runs = "one other run ends" if ahead == 1 else f"{ahead} other runs end"
    when = "" if seconds is None else f", in about {duration(seconds)}"
    meanwhile = " Replay plays the race below in the meantime." if replays and (seconds or 0.0) >= LONG else ""
    return [{"kind": "hint", "text": f"You are number {ahead} in line: your run starts when {runs}{when}.{meanwhile}"}]


def duration(seconds: float) -> str:
    """An estimated time in words: whole seconds, or whole minutes from two minutes on."""
    if seconds >= 120:
        return f"{round(seconds / 60)} minutes"
    whole = max(1, round(seconds))
    return f"{whole} second{'' if whole == 1 else 's'}"


def busy_machine(ahead: int, seconds: float | None = None) -> list[dict[str, str]]:
    """Notice that the machine is in use, with the place in line that a visitor would get; [] if it is free"""
    if ahead < 1:
        return []
    when = "when it ends" if seconds is None else f"in about {duration(seconds)}"
    return hint(f"A run is in progress on this machine. Yours would be number {ahead} in line and start {when}.")

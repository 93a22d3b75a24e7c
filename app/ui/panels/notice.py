"""Notices for the user: unknown words, the place in the queue, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr

from app.sentences import without_paths
from app.ui.panels import panel

LONG = 10.0  # seconds of a wait during which a replay is suggested
TEMPLATE = '<div class="ft-notices" role="status"></div>'


def build(elem_id: str) -> gr.HTML:
    """Builds a strip of notices that takes no space while empty."""
    return panel("notice", [], TEMPLATE, before=("prompt",), elem_id=elem_id)


def unknown_words(name: str, words: Mapping[str, list[str]], warning: str = "") -> list[dict[str, Any]]:
    """Notice of the words that a model does not know, with known words to replace them by a click.

    warning : the model's own message, if it can draw nothing in the prompt
    """
    if not words and not warning:
        return []
    lost = ", ".join(f"'{word}'" for word in words)
    out = "that word" if len(words) == 1 else "those words"
    near = {word: known for word, known in words.items() if known}
    return [{"kind": "hint", "text": warning or f"{name} does not know {lost}, so it leaves {out} out.", "instead": near}]


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

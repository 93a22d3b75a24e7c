"""Sentences for the person: what the model does not know, who is ahead in the line, what went wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import gradio as gr

from app.ui.panels import panel

# A path of this machine: a letter with a colon or nothing, then two names or more behind slashes. The last name is what a person knows.
PATH = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:|~)?(?:[/\\][^\s/\\:;,()\"']+)+[/\\]([^\s/\\:;,()\"']+)[/\\]?")
TEMPLATE = '<div class="ft-notices" role="status"></div>'


def build(elem_id: str) -> gr.HTML:
    """A strip that takes no room while there is nothing to say."""
    return panel("notice", [], TEMPLATE, elem_id=elem_id)


def unknown(name: str, words: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """One sentence for the words that a model does not know."""
    if not words:
        return []
    said = [f"'{w}' (nearest: {', '.join(near)})" if near else f"'{w}'" for w, near in words.items()]
    return [{"kind": "hint", "text": f"{name} does not know {', '.join(said)}; it draws the rest."}]


def error(*mistakes: Exception) -> list[dict[str, str]]:
    """Mistakes and the way out of each, as the engine says it, but without this machine's folders."""
    return [{"kind": "error", "text": without_paths(str(mistake))} for mistake in mistakes]


def without_paths(text: str) -> str:
    """A sentence for the page: of a path on this machine only the last name is left."""
    return PATH.sub(r"\1", text)


def hint(text: str) -> list[dict[str, str]]:
    """Something good to know."""
    return [{"kind": "hint", "text": text}]


def notes(lines: Iterable[str]) -> list[dict[str, str]]:
    """What a person may want to know, in small print."""
    return [{"kind": "note", "text": line} for line in lines]


def place(ahead: int) -> list[dict[str, str]]:
    """A place in the line of people who share this machine."""
    if ahead < 1:
        return []
    runs = "one run ends" if ahead == 1 else f"{ahead} runs end"
    return [{"kind": "hint", "text": f"You are number {ahead} in line: yours begins when {runs}."}]

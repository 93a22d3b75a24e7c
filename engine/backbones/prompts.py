"""The text of a prompt, before a model reads it."""

from __future__ import annotations

from engine.errors import BadPrompt


def readable_text(text: str | None, example: str) -> str:
    """The text without surrounding blanks; raises BadPrompt if nothing is left. example: a prompt to suggest."""
    readable = (text or "").strip()
    if not readable:
        raise BadPrompt(f"The prompt is empty. Say what to draw, for instance: {example}.")
    return readable

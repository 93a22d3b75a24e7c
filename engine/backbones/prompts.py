"""Checks of a prompt's text before a model reads it."""

from __future__ import annotations

from engine.errors import BadPrompt


def readable_text(text: str | None, example: str) -> str:
    """The text without surrounding blanks; raises BadPrompt if it is empty or holds a character that does not belong in text.

    example : a prompt for the error message to suggest
    """
    found = (text or "").strip()
    if not found:
        raise BadPrompt(f"The prompt is empty. Say what to draw, for instance: {example}.")
    for place, character in enumerate(found, 1):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise BadPrompt(f"Character {place} of the prompt is U+{ord(character):04X}, which does not belong in text. Remove it.")
    return found

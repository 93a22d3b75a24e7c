"""The text of a prompt, before a model reads it."""

from __future__ import annotations

from engine.errors import BadPrompt


def readable_text(text: str | None, example: str) -> str:
    """The text without blanks around it; raises BadPrompt for none, and for characters that no text has.

    example : what a person could say instead
    """
    found = (text or "").strip()
    if not found:
        raise BadPrompt(f"The prompt is empty. Say what to draw, for instance: {example}.")
    for place, character in enumerate(found, 1):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise BadPrompt(f"Character {place} of the prompt is U+{ord(character):04X}, which is no character of a text. Take it out.")
    return found

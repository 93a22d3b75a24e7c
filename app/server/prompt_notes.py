"""Notes on a prompt for the reply: words that the model does not know, and warnings."""

from __future__ import annotations

from typing import Any

from engine.core import Backbone

NEGATIONS = {
    "no", "not", "without", "never", "none", "nothing", "neither", "nor", "except", "excluding", "exclude", "avoid",
    "omit", "negative", "minus", "sans", "cannot", "don", "doesn", "didn", "isn", "aren",
    "wasn", "weren", "shouldn", "dont", "doesnt", "isnt", "arent",
}  # fmt: skip
NEGATED = "{} does not understand {}, so it may draw what the prompt excludes."


def prompt_notes(text: str, backbone: Backbone) -> dict[str, Any]:
    """unknown_words : each with up to three nearest known words; warnings : sentences on what may come out wrong"""
    unknown = backbone.unknown_words(text)
    lost = [f"'{word}'" for word in unknown if word in NEGATIONS]
    negated = [NEGATED.format(backbone.name, ", ".join(lost))] if lost else []
    return {"unknown_words": unknown, "warnings": [each for each in (backbone.warning(text), *negated) if each]}

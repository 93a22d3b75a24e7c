"""Notes on a prompt for the reply: words that the model does not know, and warnings."""

from __future__ import annotations

from typing import Any

from engine.core import Backbone


def prompt_notes(text: str, backbone: Backbone) -> dict[str, Any]:
    """unknown_words : each with up to three nearest known words; warnings : sentences on what may come out wrong"""
    unknown = backbone.unknown_words(text)
    return {"unknown_words": unknown, "warnings": list(backbone.understand(text, kept=unknown).remarks)}

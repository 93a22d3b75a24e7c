"""Replies in the form of OpenAI's images API. What is ours is under "foretoken"."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.serving.drawing import Drawn, Partial
from engine.core import Backbone

LOOKS = {"background": "opaque", "output_format": "png", "quality": "auto"}  # of every event


def reply(drawn: Sequence[Drawn], words: int) -> dict[str, Any]:
    """The answer to a request that does not stream. words : of the prompt"""
    return {
        "created": int(time.time()),
        "data": [{"b64_json": text_of(each.png), "foretoken": each.told} for each in drawn],
        "size": size_of(drawn[0].side),
        "background": "opaque",
        "output_format": "png",
        "usage": usage(sum(each.told["tokens"] for each in drawn), words * len(drawn)),
    }


def event_of(update: Partial | Drawn, side: int, words: int) -> bytes:
    """A server-sent event. side : of the picture in pixels"""
    common = {"created_at": int(time.time()), "b64_json": text_of(update.png), "size": size_of(side), **LOOKS, "foretoken": update.told}
    if isinstance(update, Partial):
        return event("image_generation.partial_image", {"partial_image_index": update.index, **common})
    return event("image_generation.completed", {**common, "usage": usage(update.told["tokens"], words)})


def event(kind: str, data: Mapping[str, Any]) -> bytes:
    """A named server-sent event with JSON."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def error_event(told: Mapping[str, Any]) -> bytes:
    """The event that ends a stream with an error."""
    return f"event: error\ndata: {json.dumps(told)}\n\n".encode()


def usage(tokens: int, words: int) -> dict[str, Any]:
    """Tokens that were read and made. The models here read words, and every word of the prompt counts as one."""
    read = {"image_tokens": 0, "text_tokens": words}
    return {"input_tokens": words, "input_tokens_details": read, "output_tokens": tokens, "total_tokens": words + tokens}


def model_of(backbone: Backbone) -> dict[str, Any]:
    """A model in OpenAI's list of models."""
    return {"id": backbone.name, "object": "model", "created": 0, "owned_by": "foretoken"}


def size_of(side: int) -> str:
    """The size of a square picture."""
    return f"{side}x{side}"


def text_of(png: bytes) -> str:
    """A file in base64."""
    return base64.b64encode(png).decode("ascii")

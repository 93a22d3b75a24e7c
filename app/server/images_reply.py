"""Replies in the form of OpenAI's images API. Our own fields are under "foretoken"."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.server.drawing import DrawnPicture, Partial
from app.server.images_request import ImagesRequest
from engine.core import Backbone


def reply(pictures: Sequence[DrawnPicture], request: ImagesRequest) -> dict[str, Any]:
    """The reply to a request that does not stream."""
    return {
        "created": int(time.time()),
        "data": [{"b64_json": text_of(each.file), "foretoken": each.summary} for each in pictures],
        "size": size_of(pictures[0].side),
        **look_fields(request),
        "usage": usage(sum(each.summary["tokens"] for each in pictures), word_count(request) * len(pictures)),
        "foretoken": request.notes,
    }


def event_of(update: Partial | DrawnPicture, side: int, request: ImagesRequest) -> bytes:
    """A server-sent event. side : of the picture in pixels"""
    file = {"b64_json": text_of(update.file), "size": size_of(side), "quality": "auto", **look_fields(request)}
    common = {"created_at": int(time.time()), **file, "foretoken": update.summary}
    if isinstance(update, Partial):
        return event("image_generation.partial_image", {"partial_image_index": update.index, **common})
    return event("image_generation.completed", {**common, "usage": usage(update.summary["tokens"], word_count(request))})


def look_fields(request: ImagesRequest) -> dict[str, str]:
    """OpenAI's fields on a picture's background and file format."""
    return {"background": "opaque", "output_format": request.format.name}


def word_count(request: ImagesRequest) -> int:
    """Number of words in the prompt."""
    return len((request.prompts[0].text or "").split())


def event(kind: str, data: Mapping[str, Any]) -> bytes:
    """A named server-sent event with JSON."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def error_event(error: Mapping[str, Any]) -> bytes:
    """The event that ends a stream with an error."""
    return f"event: error\ndata: {json.dumps(error)}\n\n".encode()


def usage(tokens: int, words: int) -> dict[str, Any]:
    """Numbers of input and output tokens. The models here read words, so each word of the prompt counts as one token."""
    details = {"image_tokens": 0, "text_tokens": words}
    return {"input_tokens": words, "input_tokens_details": details, "output_tokens": tokens, "total_tokens": words + tokens}


def model_of(backbone: Backbone, name: str = "") -> dict[str, Any]:
    """An entry of OpenAI's list of models, with vLLM's `root`: the model that answers. name : an alias of the model"""
    return {"id": name or backbone.name, "object": "model", "created": 0, "owned_by": "foretoken", "root": backbone.name}


def size_of(side: int) -> str:
    """The size of a square picture, such as "128x128"."""
    return f"{side}x{side}"


def text_of(file: bytes) -> str:
    """A file in base64."""
    return base64.b64encode(file).decode("ascii")

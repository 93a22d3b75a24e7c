"""What a request for pictures asks for: OpenAI's fields, and ours beside them, checked before the request takes its place."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.endpoints import split
from app.serving.refusals import Refused, concerning
from app.ui import asked, image_tab
from engine.backbones.prompts import readable_text
from engine.core import Backbone, Prompt

MOST = 10  # pictures of a request, as OpenAI has it
MOST_PARTIALS = 16  # previews of a picture
COUNTED = {"n": (1, MOST), "partial_images": (0, MOST_PARTIALS)}
ONLY = {  # fields of OpenAI with the values that describe what is made here; the first is said where one is wrong
    "response_format": ("b64_json",),
    "output_format": ("png",),
    "background": ("auto", "opaque"),
    "quality": ("auto", "standard"),
}
WITHOUT_EFFECT = ("user", "style", "moderation", "output_compression", "safety_identifier", "input_fidelity")
OWN = ("prompt", "model", "size", "stream", "method", "seed", "compare")
SIZE = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})")
NOT_AN_OBJECT = 'The body must be a JSON object with a prompt, such as {"prompt": "a red apple"}.'
NO_MODEL = "There is no model '{}' that makes pictures here. There is: {}."
NO_SIZE = "{} makes pictures of {}, not {}. Choose one of these, or 'auto'."
NO_COUNT = "{} = {} is not a whole number from {} to {}. Leave it out for the default."
NO_VALUE = "{} = {} is not supported here. Leave it out, or say '{}'."
NO_FLAG = "{} must be true or false, not {}."
ONE_STREAM = "A stream has one picture, not n = {}. Leave n out, or stream out."


@dataclass(frozen=True)
class ImagesRequest:
    """prompts : one for each picture, which differ in their seeds; method, knobs : of all; partials : previews of a picture that is
    streamed; compare : decode plainly, too, for the speed-up"""

    prompts: tuple[Prompt, ...]
    method: str
    knobs: Mapping[str, float | str]
    stream: bool = False
    partials: int = 0
    compare: bool = False


def read(body: object, backbone: Backbone) -> ImagesRequest:
    """The request in a JSON body; raises Refused with the field that is wrong."""
    if not isinstance(body, dict):
        raise Refused(NOT_AN_OBJECT)
    given = {name: value for name, value in body.items() if value is not None}
    if (model := given.get("model", backbone.name)) != backbone.name:
        raise Refused(NO_MODEL.format(asked.brief(model), backbone.name), status=404, param="model", code="model_not_found")
    for name, allowed in ONLY.items():
        if name in given and given[name] not in allowed:
            raise Refused(NO_VALUE.format(name, asked.brief(given[name]), allowed[0]), param=name, code="invalid_value")
    with concerning("prompt"):
        text = readable_text(asked.text(given.get("prompt")), image_tab.EXAMPLES[2])
    with concerning("seed"):
        seed = asked.seed(given["seed"]) if "seed" in given else secrets.randbelow(asked.LARGEST_SEED - MOST)
        count = counted(given, "n", 1)
        asked.seed(seed + count - 1)
    stream = flag(given, "stream")
    if stream and count > 1:
        raise Refused(ONE_STREAM.format(count), param="n", code="invalid_value")
    name, sampling, knobs = settings(given, backbone)
    size = side(given.get("size", "auto"), backbone)
    prompts = tuple(prompt_of(text, seed + i, size, sampling, backbone) for i in range(count))
    return ImagesRequest(prompts, name, knobs, stream, counted(given, "partial_images", 0), flag(given, "compare"))


def prompt_of(text: str, seed: int, size: int, sampling: Mapping[str, Any], backbone: Backbone) -> Prompt:
    """One picture's prompt, as the page would have read it."""
    chosen = dict(sampling) | ({"size": f"{size} px"} if len(backbone.sizes) > 1 else {})
    return image_tab.read_prompt(text, seed, {"values": chosen}, backbone)


def settings(given: Mapping[str, Any], backbone: Backbone) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(method or preset, guidance and temperature, knobs) of a request: all fields that are not OpenAI's."""
    with concerning("method"):
        name, method = asked.method(given.get("method", image_tab.FAVOURITE), backbone)
    declared = [knob for knob in image_tab.settings(backbone) if knob.name in ("guidance", "temperature")]
    known = {*OWN, *COUNTED, *ONLY, *WITHOUT_EFFECT}
    rest = {field: value for field, value in given.items() if field not in known}
    for field, value in rest.items():  # one by one, so that the wrong one is named
        with concerning(field):
            first, _ = split({field: value}, name, method, declared, backbone)
            asked.knobs(first, declared)
    first, knobs = split(rest, name, method, declared, backbone)
    return name, first["values"], knobs


def side(value: object, backbone: Backbone) -> int:
    """The side of a picture in pixels, of "128x128" or "auto"."""
    if value == "auto":
        return min(backbone.sizes, key=lambda each: abs(each - 128))
    found = SIZE.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[1] != found[2] or int(found[1]) not in backbone.sizes:
        sizes = ", ".join(f"{each}x{each}" for each in backbone.sizes)
        raise Refused(NO_SIZE.format(backbone.name, sizes, asked.brief(value)), param="size", code="invalid_value")
    return int(found[1])


def counted(given: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of COUNTED."""
    value, (least, most) = given.get(name, default), COUNTED[name]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(NO_COUNT.format(name, asked.brief(value), least, most), param=name, code="invalid_value")
    return value


def flag(given: Mapping[str, Any], name: str) -> bool:
    """A field that is true or false; false if it is not there."""
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise Refused(NO_FLAG.format(name, asked.brief(value)), param=name, code="invalid_value")
    return value

"""A request for pictures: OpenAI's fields, ours, and other image servers' options, checked before the request joins the queue."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from app.requests import pictures, validation
from app.requests.limits import LARGEST_SEED
from app.requests.sides import settings_and_knobs
from app.sentences import brief
from app.server import foreign_options
from app.server.fields import flag, non_blank, quote, setting, whole
from app.server.picture_file import FORMATS, PictureFormat
from app.server.prompt_notes import prompt_notes
from app.server.refusals import Refused, concerning
from engine.backbones.prompts import readable_text
from engine.core import Backbone, Prompt
from engine.decimals import decimal

MOST = 10  # pictures per request, OpenAI's limit
MOST_PARTIALS = 16  # previews per picture
OWN = ("prompt", "model", "n", "size", "stream", "partial_images", "output_format", "output_compression", "response_format")
OURS = ("method", "seed", "compare", "guidance", "temperature")
SIZE = re.compile(r"(\d{1,5})(?:\s*[x×*]\s*(\d{1,5}))?", re.ASCII | re.IGNORECASE)
NO_MODEL = "There is no picture model {} here. There is: {}."
NO_SIZE = "{} makes pictures of {}, not {}. Choose one of these, or 'auto'."
NEAREST = "{} cannot make pictures of {}; this one is {}."
NO_VALUE = "{} = {} is not supported here. Choose one of: {}."
ONE_STREAM = "A stream has one picture, not n = {}. Leave out n or stream."
LAST_SEED = "{} pictures from seed {} need seeds above {:,}. Choose a smaller seed."
LOSSLESS = "PNG is lossless."
NO_STREAM = "Only a stream has previews."


@dataclass(frozen=True)
class ImagesRequest:
    """prompts : one per picture, with different seeds; method, knobs : of all pictures; partials : number of previews in a stream;
    compare : also decode plainly, for the speed-up; format : of the files; notes : fields of the reply about the request"""

    prompts: tuple[Prompt, ...]
    method: str
    knobs: Mapping[str, float | str]
    stream: bool = False
    partials: int = 0
    compare: bool = False
    format: PictureFormat = FORMATS["png"]
    notes: Mapping[str, Any] = field(default_factory=dict)


def read(body: Mapping[str, Any], backbone: Backbone, any_model: bool = False) -> ImagesRequest:
    """The request in a JSON object; raises Refused with the name of the invalid field.

    any_model : accept any model name, and sizes of other models
    """
    fields, ignored = non_blank(body), {}
    check_model(fields.pop("model", backbone.name), backbone, any_model)
    with concerning("method"):
        name, method = validation.method(fields.pop("method", pictures.FAVOURITE), backbone)
    knobs = {knob.name: knob for knob in method.knobs}
    names = foreign_options.rename(fields, knobs, ignored)
    foreign_options.ignore(fields, {*OWN, *OURS, *knobs}, name, knobs, ignored)
    with concerning("prompt"):
        text = readable_text(validation.text(fields.pop("prompt", None)), pictures.EXAMPLES[2])
    count, seed = count_and_seed(fields, names)
    stream, compare = (flag(each, fields.pop(each, False)) for each in ("stream", "compare"))
    if stream and count > 1:
        raise Refused(ONE_STREAM.format(count), param="n", code="invalid_value")
    partials = whole("partial_images", fields.pop("partial_images", 0), 0, MOST_PARTIALS)
    if partials and not stream:
        ignored["partial_images"] = NO_STREAM
    check_reply_form(fields.pop("response_format", "b64_json"))
    output = format_of(fields, ignored)
    size = side(fields.pop("size", "auto"), names.get("size", "size"), backbone, ignored if any_model else None)
    sampling, values = settings(fields, names, name, method, backbone)
    prompts = tuple(prompt_of(text, seed + i, size, sampling, backbone) for i in range(count))
    notes = {"model": backbone.name, "ignored": ignored, **prompt_notes(text, backbone)}
    return ImagesRequest(prompts, name, values, stream, partials, compare, output, notes)


def check_model(value: object, backbone: Backbone, any_model: bool) -> None:
    """Raises Refused unless this model answers to the name."""
    if not isinstance(value, str) or not (any_model or value.strip() == backbone.name):
        raise Refused(NO_MODEL.format(quote(value), backbone.name), status=404, param="model", code="model_not_found")


def count_and_seed(fields: dict[str, Any], names: Mapping[str, str]) -> tuple[int, int]:
    """Remove and return (number of pictures, first seed). names : the sent names, by our names"""
    count = whole(names.get("n", "n"), fields.pop("n", 1), 1, MOST)
    if "seed" not in fields:
        return count, secrets.randbelow(LARGEST_SEED - MOST)
    seed = whole("seed", fields.pop("seed"), 0, LARGEST_SEED)
    if seed + count - 1 > LARGEST_SEED:
        raise Refused(LAST_SEED.format(count, seed, LARGEST_SEED), param="seed", code="invalid_value")
    return count, seed


def check_reply_form(value: object) -> None:
    """Raises Refused for any response_format but b64_json: pictures have no URLs here."""
    if value != "b64_json":
        raise Refused(NO_VALUE.format("response_format", quote(value), "b64_json"), param="response_format", code="invalid_value")


def format_of(fields: dict[str, Any], ignored: dict[str, str]) -> PictureFormat:
    """Remove the fields of the file format and return it; raises Refused for an unsupported one."""
    value = fields.pop("output_format", "png")
    entry = FORMATS.get(value.strip().lower()) if isinstance(value, str) else None
    if entry is None:
        sentence = NO_VALUE.format("output_format", quote(value), ", ".join(sorted({each.name for each in FORMATS.values()})))
        raise Refused(sentence, param="output_format", code="invalid_value")
    if "output_compression" not in fields:
        return entry
    quality = fields.pop("output_compression")
    if entry.lossless:
        ignored["output_compression"] = LOSSLESS
        return entry
    return entry.with_quality(whole("output_compression", quality, 0, 100))


def settings(
    fields: Mapping[str, Any], names: Mapping[str, str], name: str, method: Any, backbone: Backbone
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(guidance and temperature, knobs of the method) in the remaining fields. name : of the method or preset"""
    sampling = pictures.sampling_knobs(backbone)
    declared = {knob.name: knob for knob in (*method.knobs, *sampling)}
    values: dict[str, float | str] = {}
    for each, value in fields.items():  # one by one, so that an error names its field
        with concerning(names.get(each, each)):
            values[each] = setting(value, declared[each], names.get(each, each))
            declared[each].to_number(values[each])
    first, knobs = settings_and_knobs(values, name, method, sampling, backbone)
    return first["values"], knobs


def prompt_of(text: str, seed: int, size: int, sampling: Mapping[str, Any], backbone: Backbone) -> Prompt:
    """Prompt of one picture, read by the page's own checks."""
    chosen = dict(sampling) | ({"size": f"{size} px"} if len(backbone.sizes) > 1 else {})
    return pictures.read_prompt(text, seed, {"values": chosen}, backbone)


def side(value: object, name: str, backbone: Backbone, replaced: dict[str, str] | None = None) -> int:
    """The side of a picture in pixels, from "128x128", 128 or "auto".

    name : of the field; replaced : receives a note if the nearest size replaces an unsupported one; None = unsupported sizes are refused
    """
    if isinstance(value, str) and value.strip().lower() == "auto":
        return nearest(128, backbone)
    wanted = pixels_of(value)
    if wanted and wanted[0] == wanted[1] and wanted[0] in backbone.sizes:
        return wanted[0]
    text = value if isinstance(value, str) else quote(value)
    if replaced is not None:
        size = nearest(sqrt(wanted[0] * wanted[1]) if wanted else 128, backbone)
        replaced[name] = NEAREST.format(backbone.name, brief(text), f"{size}x{size}")
        return size
    sizes = ", ".join(f"{each}x{each}" for each in backbone.sizes)
    raise Refused(NO_SIZE.format(backbone.name, sizes, brief(text)), param=name, code="invalid_value")


def nearest(pixels: float, backbone: Backbone) -> int:
    """The model's picture size nearest to a number of pixels."""
    return min(backbone.sizes, key=lambda each: abs(each - pixels))


def pixels_of(value: object) -> tuple[int, int] | None:
    """(width, height) from a text such as "128x96", or from a whole number, the side of a square; None for anything else."""
    if (side := decimal(value)) is not None and 0 < side < 1e5 and side == int(side):
        return int(side), int(side)
    match = SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    return (int(match[1]), int(match[2] or match[1])) if match else None

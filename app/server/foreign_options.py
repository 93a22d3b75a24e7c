"""Options that clients of other image servers send: aliases of our settings, and options that have no effect here.

An option that cannot change the picture never fails a request; the reply lists it in `foretoken.ignored`, with the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from app.sentences import SHOWN, brief
from app.server.fields import whole
from app.server.refusals import Refused
from engine.methods import METHODS

ALIASES = {  # name on other servers: our name
    "cfg": "guidance",
    "cfg_scale": "guidance",
    "guidance_scale": "guidance",
    "batch_size": "n",
    "num_images": "n",
    "num_images_per_prompt": "n",
    "num_outputs": "n",
    "num_samples": "n",
}
PICTURES = ("image", "images", "image_url", "image_prompt", "init_image", "init_images", "input_image", "mask", "mask_image", "mask_url")
REASONS = {
    "background": "Pictures are opaque.",
    "input_fidelity": "There is no input picture.",
    "moderation": "Nothing is moderated.",
    "negative_prompt": "The model reads no negative prompt; what it excludes may be drawn.",
    "quality": "There is one quality.",
    "safety_identifier": "There are no accounts.",
    "style": "There is one style.",
    "user": "There are no accounts.",
    "num_inference_steps": "Pictures are decoded token by token; there are no diffusion steps.",
    "steps": "Pictures are decoded token by token; there are no diffusion steps.",
}
DESCRIBING = {"background": ("auto", "opaque"), "quality": ("auto", "standard")}  # values that are true here, so not reported
UNKNOWN = "No setting has this name."
SECOND = "'{}' was also sent and takes precedence."
LARGEST = 65_535  # pixels: maximum width or height that is parsed
CUTOFF = 0.8  # similarity from which an unknown name counts as a typo
NO_SETTING = "There is no knob '{}' here. Did you mean '{}'?"
NO_PICTURE = "{} is an input picture, but pictures are drawn from the prompt alone here. Leave it out."
NOT_OF_METHOD = "{} has no knob '{}'. There are: {}."


def rename(fields: dict[str, Any], knobs: Collection[str], ignored: dict[str, str]) -> dict[str, str]:
    """Renames options of other servers to ours, in place.

    fields : as sent; knobs : of the method, never renamed; ignored : receives options that another field overrides
    Returns the sent names, by our names. Raises Refused for an invalid width or height.
    """
    names: dict[str, str] = {}
    for alias, name in ALIASES.items():
        if alias not in fields or alias in knobs:
            continue
        value = fields.pop(alias)
        if name in fields:
            ignored[alias] = SECOND.format(names.get(name, name))
        else:
            fields[name], names[name] = value, alias
    if str(fields.get("size", "")).strip().lower() == "auto":
        del fields["size"]
    sides = [each for each in ("width", "height") if each in fields and each not in knobs]
    if sides and "size" in fields:
        for each in sides:
            del fields[each]
            ignored[each] = SECOND.format("size")
    elif sides:
        pixels = [whole(each, fields.pop(each), 1, LARGEST) for each in sides]
        fields["size"], names["size"] = f"{pixels[0]}x{pixels[-1]}", sides[0]
    return names


def ignore(fields: dict[str, Any], known: Collection[str], method: str, knobs: Collection[str], ignored: dict[str, str]) -> None:
    """Removes the options without effect from the fields and records the reasons in `ignored`.

    known : valid names, including the method's knobs; method : its name, for messages
    Raises Refused for an option that would change the picture: an input picture, a knob of another method, or a likely typo.
    """
    for field in [*fields]:
        if field in known:
            continue
        value = fields.pop(field)
        if field in REASONS:
            if not (isinstance(value, str) and value.strip().lower() in DESCRIBING.get(field, ())):
                ignored[field] = REASONS[field]
            continue
        if field in PICTURES:
            raise Refused(NO_PICTURE.format(field), param=field, code="invalid_value")
        if field in OF_METHODS:
            raise Refused(NOT_OF_METHOD.format(method, field, ", ".join(sorted(knobs)) or "none"), param=field, code="invalid_value")
        near = get_close_matches(field, known, 1, CUTOFF) if len(field) <= SHOWN else []
        if near:
            raise Refused(NO_SETTING.format(brief(field), near[0]), param=brief(field), code="invalid_value")
        ignored[brief(field)] = UNKNOWN


OF_METHODS: Mapping[str, None] = dict.fromkeys(knob.name for method in METHODS.values() for knob in method.knobs)

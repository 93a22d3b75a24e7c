"""The sides of a race: methods with their knobs, the accelerated one first, and the number of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.requests import validation
from app.sentences import brief
from engine.core import ANY_SUIT, Backbone, Knob, Knobs, Method, Suits
from engine.errors import BadPrompt
from engine.methods import AUTO, METHODS, find

ONCE, OFTEN, TIMES = "once", "5 times", 5
REPEAT = Knob("repeat", "", ONCE, choices=(ONCE, OFTEN), help=f"{OFTEN}: shows each side's median time and quartiles.", live=False)
NO_SETTINGS = "settings must be an object of names with numbers or words, not {}. Leave it out for the defaults."

CLASSICAL = "classical"  # in place of the left method of a race of meshes: a surface made without the model

Side = tuple[str, Mapping[str, Any]]  # (method or preset, knobs)
Sides = Sequence[Side]


def start_values(name: str, suits: Suits = ANY_SUIT) -> tuple[Method, dict[str, Any]]:
    """A method and its initial knobs: values that suit the model, the preset's values, and "match seed" verification where it is exact,
    so that both sides yield the same tokens."""
    method, preset = find(name)
    values = {**suits.get(method.name, {}), **preset}
    if (name in METHODS or name.startswith(f"{AUTO}:")) and any(k.name == "verify" for k in method.knobs):
        overrides = preset if name not in METHODS else {}  # auto's own knobs
        seeded = {k.name: k.default for k in method.knobs} | overrides | {"verify": "match seed"}
        if method.exact(Knobs(seeded)):
            values["verify"] = "match seed"
    return method, values


def checked_side(name: object, knobs: object, backbone: Backbone) -> Side:
    """One side of a race; raises NotSupported or BadKnob."""
    chosen, method = validation.method(name, backbone)
    return chosen, validation.knobs(knobs, method.knobs)


def checked_sides(backbone: Backbone, name: object, knobs: object, compare: object, other: object, other_knobs: object) -> list[Side]:
    """The sides of a race; raises NotSupported, BadKnob or BadPrompt. compare : also show a left side"""
    sides = [checked_side(name, knobs, backbone)]
    if not validation.flag(compare):
        return sides
    is_classical = other == CLASSICAL and "mesh" in backbone.capabilities
    return [*sides, (CLASSICAL, {}) if is_classical else checked_side(other, other_knobs, backbone)]


def times_of(chosen: Mapping[str, Any]) -> int:
    """Number of runs per side, from the checked settings."""
    return TIMES if chosen["repeat"] == OFTEN else 1


def settings_and_knobs(
    settings: object, name: str, method: Method, declared: Sequence[Knob], backbone: Backbone
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the settings in `declared`, in a panel's form, values of all knobs of the method); raises BadKnob."""
    if settings is not None and not isinstance(settings, Mapping):
        raise BadPrompt(NO_SETTINGS.format(brief(settings)))
    others, own = dict(settings or {}), {knob.name for knob in declared}
    first = {key: others.pop(key) for key in [*others] if key in own}
    _, start = start_values(name, backbone.suits)
    return {"values": first}, validation.knobs({"values": start | others}, method.knobs)

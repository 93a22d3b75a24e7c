"""Values in the JSON body of a request. Clients send numbers as text and whole numbers with a decimal point; both are accepted."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from app.sentences import brief
from app.server.refusals import Refused
from engine.core import Knob
from engine.decimals import decimal
from engine.errors import BadKnob

FLAGS = {"true": True, "false": False}
LONGEST_INTEGER = 1000  # digits parsed exactly; Python refuses more than 4,300
MOST_FIELDS = 100
NOT_AN_OBJECT = 'The body must be a JSON object with a prompt, such as {"prompt": "a red apple"}.'
NOT_JSON = "The body contains {}, which is not valid JSON. Send a finite number."
TOO_MANY = "The body has {:,} fields; at most {} are allowed."
NO_COUNT = "{} = {} is not a whole number from {:,} to {:,}."
NO_FLAG = "{} must be true or false, not {}."


class Numeral(float):
    """A JSON number too large for a float or an int: infinity, with its original text."""

    text: str

    def __new__(cls, text: str) -> Numeral:
        """text : the number as sent"""
        numeral = super().__new__(cls, text)
        numeral.text = text
        return numeral

    def __str__(self) -> str:
        """The original text."""
        return self.text


def parse(body: bytes) -> dict[str, Any]:
    """The object in a JSON body; raises Refused."""
    try:
        value = json.loads(body, parse_float=_float, parse_int=_int, parse_constant=_refuse)
    except (ValueError, RecursionError) as e:
        raise Refused(NOT_AN_OBJECT) from e
    if not isinstance(value, dict):
        raise Refused(NOT_AN_OBJECT)
    if len(value) > MOST_FIELDS:
        raise Refused(TOO_MANY.format(len(value), MOST_FIELDS))
    return value


def _float(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else Numeral(text)


def _int(text: str) -> int | float:
    return int(text) if len(text) <= LONGEST_INTEGER else Numeral(text)


def _refuse(name: str) -> NoReturn:
    raise Refused(NOT_JSON.format(name))


def quote(value: object) -> str:
    """A value for a message: text in quotes; true, false and null as in JSON; at most 40 characters."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return f"'{brief(value)}'" if isinstance(value, str) else brief(value)


def whole(name: str, value: object, low: int, high: int) -> int:
    """Parse a field as a whole number from low to high; raises Refused."""
    parsed = decimal(value)
    if parsed is None or not low <= parsed <= high or parsed != int(parsed):
        raise Refused(NO_COUNT.format(name, quote(value), low, high), param=name, code="invalid_value")
    return int(parsed)


def flag(name: str, value: object) -> bool:
    """Parse a field as true or false; raises Refused."""
    parsed = FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(parsed, bool):
        raise Refused(NO_FLAG.format(name, quote(value)), param=name, code="invalid_value")
    return parsed


def setting(value: object, knob: Knob, name: str) -> float | str:
    """Parse a field as the value of a knob; raises BadKnob. name : of the field"""
    parsed = decimal(value)
    if knob.choices:
        if isinstance(value, bool) and knob.choices == ("off", "on"):
            return knob.choices[value]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadKnob(f"{name} cannot be {quote(value)}. Choose one of: {', '.join(knob.choices)}.")
        return str(int(parsed)) if parsed is not None and math.isfinite(parsed) and parsed == int(parsed) else brief(value)
    if parsed is None:
        raise BadKnob(f"{name} needs a number, not {quote(value)}. Choose {knob.low:g} to {knob.high:g}.")
    if not knob.low <= parsed <= knob.high:
        raise BadKnob(f"{name} = {quote(value)} is out of range. Choose {knob.low:g} to {knob.high:g}.")
    if knob.is_whole and parsed != int(parsed):
        raise BadKnob(f"{name} = {quote(value)} is not a whole number. Choose {knob.low:g} to {knob.high:g}.")
    return parsed


def non_blank(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are neither null nor blank text; a blank prompt stays."""
    return {name: value for name, value in body.items() if value is not None and (name == "prompt" or not blank(value))}


def blank(value: object) -> bool:
    """True for text without visible characters."""
    return isinstance(value, str) and not value.strip()

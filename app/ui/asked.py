"""What a page sent, checked: whatever stands in a field, or comes over HTTP without any page, becomes a value or a sentence.

The handlers take values as they were sent (`preprocess=False`), because Gradio's own checks end an event before its handler could give
back what it holds. Everything here raises BadPrompt or BadKnob.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from engine.core import Backbone, Knob, KnobArray, Method
from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.methods import find

LARGEST_SEED = 2**31 - 1
LONGEST_PROMPT = 1000  # characters
LARGEST_NUMBER = 2**53  # of a whole number that a float holds
SHOWN = 40  # characters of a wrong value in a sentence


def brief(value: object) -> str:
    """A wrong value as it stands in a sentence: printable, and short."""
    text = "".join(c if c.isprintable() else "?" for c in str(value)[: SHOWN + 1])
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def seed(value: object) -> int:
    """A seed. An empty field is 0, as Gradio's own number has it."""
    if value is None or value == "":
        return 0
    wrong = BadPrompt(f"The seed {brief(value)} is out of range. Choose a whole number from 0 to {LARGEST_SEED:,}.")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST_SEED or value != int(value):
        raise wrong
    return int(value)


def text(value: object) -> str:
    """A prompt of characters that can be written to a file, not longer than is read."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadPrompt(f"The prompt has to be text, not {brief(value)}.")
    if len(value) > LONGEST_PROMPT:
        raise BadPrompt(f"The prompt has {len(value):,} characters; at most {LONGEST_PROMPT:,} are read. Shorten it.")
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        raise BadPrompt("The prompt holds characters that are no text (NUL or half of a pair). Type it again.")
    return value


def upload(value: object) -> Path:
    """Where Gradio has put the file that a visitor sent."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise BadPrompt("No file has come. Choose one again.")
    return Path(value)


def flag(value: object) -> bool:
    """The state of a check box."""
    if not isinstance(value, bool):
        raise BadPrompt(f"A check box is on or off, not {brief(value)}. Load the page again.")
    return value


def method(value: object, backbone: Backbone | None = None) -> tuple[str, Method]:
    """(name of the method or preset, method) of a choice of the menu; raises NotSupported if there is none, or the model cannot do it."""
    if not isinstance(value, str):
        raise NotSupported(f"There is no method {brief(value)}. Choose one of the menu.")
    found, _ = find(brief(value))
    if backbone is not None and (missing := sorted(found.needs - backbone.capabilities)):
        raise NotSupported(f"{found.name} needs {', '.join(missing)}; {backbone.name} does not have it. Choose another method.")
    return value, found


def knobs(value: object, declared: Iterable[Knob]) -> dict[str, float | str]:
    """The values of a panel of knobs, all of them, in range; raises BadKnob."""
    declared = tuple(declared)
    values = value.get("values") if isinstance(value, Mapping) else None
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise BadKnob("The settings did not arrive whole. Load the page again.")
    for name, each in values.items():
        if isinstance(each, bool) or not isinstance(each, (int, float, str)):
            raise BadKnob(f"{brief(name)} cannot be {brief(each)}. Move its control.")
        if isinstance(each, int) and abs(each) > LARGEST_NUMBER:
            raise BadKnob(f"{brief(name)} = {brief(each)} is out of range. Move its control.")
    known = {knob.name for knob in declared}
    for name in values:
        if name not in known:
            raise BadKnob(f"There is no knob '{brief(name)}' here. There are: {', '.join(sorted(known)) or 'none'}.")
    checked = KnobArray(declared, {name: brief(each) if isinstance(each, str) else each for name, each in values.items()})
    return checked.read()


def ticket(value: object) -> int:
    """The number of a ticket; 0, which nobody has, for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0

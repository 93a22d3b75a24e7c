"""Single values of a request: each becomes a checked value, or BadPrompt, BadKnob or NotSupported with a sentence.

The page's handlers take raw values (`preprocess=False`), because Gradio's own checks would end an event before its handler could release
its ticket.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from app.requests.limits import LARGEST_SEED, LARGEST_SIDE, LONGEST_PROMPT
from app.sentences import brief
from engine.core import Backbone, Knob, KnobArray, Method
from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.mesh.frame import UP
from engine.methods import AUTO, find

LARGEST_NUMBER = 2**53  # floats represent every whole number up to here
LONGEST_NAME = 100  # characters of auto's choice, such as "auto:sjdpp,window=16"


def seed(value: object) -> int:
    """A seed. An empty field is 0, as in Gradio's own number field."""
    if value is None or value == "":
        return 0
    wrong = BadPrompt(f"The seed {brief(value)} is out of range. Choose a whole number from 0 to {LARGEST_SEED:,}.")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST_SEED or value != int(value):
        raise wrong
    return int(value)


def text(value: object) -> str:
    """A prompt whose characters can be written to a file, with at most LONGEST_PROMPT of them."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadPrompt(f"The prompt must be text, not {brief(value)}.")
    if len(value) > LONGEST_PROMPT:
        raise BadPrompt(f"The prompt has {len(value):,} characters; at most {LONGEST_PROMPT:,} are allowed. Shorten it.")
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        raise BadPrompt("The prompt contains characters that are not text (NUL or an unpaired surrogate). Type it again.")
    return value


def tokens(value: object) -> tuple[int, ...]:
    """Ids of tokens, of which the engine checks that the model has them; raises BadPrompt."""
    if not isinstance(value, list) or not len(value) <= LARGEST_SIDE**2:
        raise BadPrompt(f"{brief(value)} is not a list of tokens. Give their ids in the order of positions.")
    return tuple(whole(each, "A token") for each in value)


def whole(value: object, name: str) -> int:
    """A whole number from 0 to 2**31 - 1; raises BadPrompt. name : what it is, in the sentence"""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**31 or value != int(value):
        raise BadPrompt(f"{name} cannot be {brief(value)}. Give a whole number from 0 on.")
    return int(value)


def upload(value: object) -> Path:
    """Path of the file that a visitor uploaded."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise BadPrompt("No file arrived. Choose one again.")
    return Path(value)


def flag(value: object) -> bool:
    """The state of a checkbox."""
    if not isinstance(value, bool):
        raise BadPrompt(f"A checkbox must be on or off, not {brief(value)}. Reload the page.")
    return value


def method(value: object, backbone: Backbone | None = None) -> tuple[str, Method]:
    """(name of the method or preset, method) of a menu entry; raises NotSupported if it is unknown or the model lacks a capability."""
    if not isinstance(value, str):
        raise NotSupported(f"There is no method {brief(value)}. Choose one from the menu.")
    entry, _ = find(value if value.startswith(f"{AUTO}:") and len(value) <= LONGEST_NAME else brief(value))
    if backbone is not None and (missing := sorted(entry.needs - backbone.capabilities)):
        raise NotSupported(f"{entry.name} needs {', '.join(missing)}; {backbone.name} does not have it. Choose another method.")
    return value, entry


def axis(value: object) -> str:
    """The up axis of an input, from the page's panel or a name. Raises BadPrompt."""
    name = value.get("up") if isinstance(value, Mapping) else value
    if name != AUTO and name not in tuple(UP):
        raise BadPrompt(f"The up axis cannot be {brief(name)}. Choose one of the pictures.")
    return str(name)


def knobs(value: object, declared: Iterable[Knob]) -> dict[str, float | str]:
    """All values of a knob panel, checked to be in range; raises BadKnob."""
    declared = tuple(declared)
    values = value.get("values") if isinstance(value, Mapping) else None
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise BadKnob("The settings arrived incomplete. Reload the page.")
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
    """The number of a ticket; 0, which no ticket has, for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0

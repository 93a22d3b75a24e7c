"""Requests for a picture: the settings of a run, and the prompt that a client's fields describe."""

from __future__ import annotations

from app.requests import validation
from app.requests.limits import LARGEST_SIDE
from app.requests.sides import REPEAT
from app.sentences import brief
from engine.core import Backbone, Knob, Prompt, Sampling
from engine.errors import BadPrompt

FAVOURITE = "sjdpp"  # the default method
USUAL_SIZE = 256  # pixels: at 128 an object has four to eight tokens along a side, and looks coarse
EXAMPLES = (  # checked by eye with several seeds: the page must not open with a wrong picture
    "two foxes on snow",
    "a penguin beside a pumpkin",
    "a red apple on a blue background",
    "three santas on a meadow",
    "a ghost and a pumpkin at night",
)
NO_SIZE = "size = {} is not a whole number of pixels. Leave it out for the default."


def sampling_knobs(backbone: Backbone) -> tuple[Knob, Knob]:
    """Guidance and temperature, declared as knobs, so that the knob panel can show them."""
    own = backbone.sampling
    return (
        Knob("guidance", "", own.guidance, 1, 10, 0.1, help="How strongly the picture follows the prompt.", live=False),
        Knob("temperature", "", own.temperature, 0, 2, 0.05, help="Randomness. 0: always the most probable token.", live=False),
    )


def settings(backbone: Backbone) -> tuple[Knob, ...]:
    """The settings of a race besides its methods' knobs."""
    sizes = tuple(f"{s} px" for s in backbone.sizes)
    if len(sizes) < 2:
        return (*sampling_knobs(backbone), REPEAT)
    usual = min(sizes, key=lambda s: abs(int(s.split()[0]) - USUAL_SIZE))
    size = Knob("size", "", usual, choices=sizes, help="Side length. Larger pictures have more tokens.", live=False)
    return (*sampling_knobs(backbone), size, REPEAT)


def read_prompt(text: object, seed: object, values: object, backbone: Backbone) -> Prompt:
    """The Prompt that a client's fields describe; raises BadPrompt or BadKnob for wrong values."""
    own, chosen = backbone.sampling, validation.knobs(values, settings(backbone))
    sampling = Sampling(float(chosen["temperature"]), own.top_k, own.top_p, float(chosen["guidance"]))
    size = int(str(chosen["size"]).split()[0]) if "size" in chosen else None
    return Prompt(validation.text(text), seed=validation.seed(seed), size=size, sampling=sampling)


def pixels(value: object) -> int | None:
    """The side of a picture, None for the model's own; raises BadPrompt."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= LARGEST_SIDE or value != int(value):
        raise BadPrompt(NO_SIZE.format(brief(value)))
    return int(value)

"""The shared types: prompts, knobs, drafts, the rows of a forward pass, steps, and the protocols of backbones and sequences.

Backbones and methods meet only here. A backbone turns a `Prompt` into a `Sequence`. A method drives that `Sequence`: it proposes a
`Draft`, reads `Rows`, commits tokens and yields a `Step`. The invariant: committed tokens are x[0:n]; the cache holds the prompt and
x[0:n-1]; x[n-1] is *pending* and is the first input of the next pass. If the committed positions are not a prefix (wavefronts), every
committed position that is not in the cache is pending, and all of them are the first inputs.
"""

from engine.core.backbones import ANY_SUIT, Backbone, Bias, Grammar, Resampler, Sequence, Suits
from engine.core.knobs import Knob, KnobArray, Knobs
from engine.core.methods import PLAIN, VERIFY, VERIFY_BLOCK, Candidate, Case, Method, Preset, Step
from engine.core.prompts import Origin, Prompt, Sampling, Understood
from engine.core.rows import NO_DRAFT, ChosenTokens, DeviceIds, Draft, Launch, Rows

__all__ = [
    "ANY_SUIT",
    "NO_DRAFT",
    "PLAIN",
    "VERIFY",
    "VERIFY_BLOCK",
    "Backbone",
    "Bias",
    "Candidate",
    "Case",
    "ChosenTokens",
    "DeviceIds",
    "Draft",
    "Grammar",
    "Knob",
    "KnobArray",
    "Knobs",
    "Launch",
    "Method",
    "Origin",
    "Preset",
    "Prompt",
    "Resampler",
    "Rows",
    "Sampling",
    "Sequence",
    "Step",
    "Suits",
    "Understood",
]

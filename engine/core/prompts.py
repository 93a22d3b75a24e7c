"""Prompts and the sampling of their tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from torch import Tensor

from engine.errors import BadPrompt


@dataclass(frozen=True)
class Sampling:
    """Settings that turn logits into a distribution. Order: guidance, guide, grammar, temperature, top-k, top-p, softmax."""

    temperature: float = 1.0  # 0 = always the most probable token
    top_k: int = 0  # 0 = off
    top_p: float = 1.0  # 1 = off
    guidance: float = 1.0  # u + g (c - u); 1 = conditional only
    temperature_last: bool = False  # True: top-k and top-p filter before the temperature is applied (BPT's order)
    guide: float = 0.0  # meshes: nats that a token of the prompt's guide gains, if it has one (engine/mesh/guide.py)

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """Temperature, top-k, top-p and guidance: what a graph reads from a tensor."""
        return self.temperature, self.top_k, self.top_p, self.guidance

    def kind(self, vocabulary: int) -> Sampling:
        """The same for all settings that need the same computation, whatever their numbers: part of a graph's key."""
        if self.temperature == 0:
            return Sampling(temperature=0.0)
        top_k, top_p = int(0 < self.top_k < vocabulary), 1.0 if self.top_p >= 1 else 0.5
        return Sampling(2.0, top_k, top_p, temperature_last=self.temperature_last and (top_k > 0 or top_p < 1))

    def soften(self) -> Sampling:
        """Returns the settings with temperature 1 instead of 0."""
        return replace(self, temperature=self.temperature or 1.0)


class Origin(NamedTuple):
    """Where the prefix of a prompt comes from. parent : id of a finished run (app/runs/history.py); at : number of its tokens kept"""

    parent: str
    at: int


@dataclass(frozen=True)
class Prompt:
    """Input of a generation: text, class label or points, with seed, size and sampling."""

    text: str | None = None
    label: int | None = None
    points: Tensor | None = None  # [N, 6] float32: xyz and unit normal
    seed: int = 0
    size: int | None = None  # pixels, or the most faces of a mesh; None = the backbone's default
    about: int | None = None  # number of faces that a mesh should have; None = the model decides
    sampling: Sampling | None = None  # None = the backbone's default
    prefix: tuple[int, ...] = ()  # the first tokens, which are not drawn
    origin: Origin | None = None  # of the prefix, if it comes from another run
    guide: tuple[np.ndarray, np.ndarray] | None = None  # vertices [V, 3] and faces [F, 3] of a mesh to follow; None: the model alone

    def __post_init__(self) -> None:
        """Raises BadPrompt for text that cannot be written to a file or a terminal: NUL and lone surrogates."""
        for place, character in enumerate(self.text or "", 1):
            if character == "\0" or "\ud800" <= character <= "\udfff":
                code = f"U+{ord(character):04X}"
                raise BadPrompt(f"Character {place} of the prompt is {code}, which is not a character of text. Remove it.")


class Understood(NamedTuple):
    """A model's reading of a prompt.

    text        : as it is drawn, misspelled words corrected; corrected : these words, with the ones that replace them
    description : what it draws, as a sentence; remarks : sentences on what it cannot draw; "" and () for a model that reads any words
    ignored     : other words that it does not know; instead : words with up to three known ones each, to replace them
    objects     : number of each requested object, 0 = any; None if the model does not know objects
    missing     : all unknown words that a viewer may miss in the picture: things, numbers, negations
    """

    text: str
    corrected: Mapping[str, str] = MappingProxyType({})
    description: str = ""
    remarks: Sequence[str] = ()
    ignored: Sequence[str] = ()
    instead: Mapping[str, Sequence[str]] = MappingProxyType({})
    objects: Mapping[str, int] | None = None
    missing: Sequence[str] = ()

"""The sum of several penalties on the logits, as one state machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from engine.core import Bias


class BiasSum:
    """A Bias whose penalties are the sums of those of its parts; its state has one entry per part."""

    def __init__(self, parts: Sequence[Bias]):
        self.parts = tuple(parts)
        self.start = tuple(part.start for part in parts)

    def next(self, state: tuple[Any, ...], token: int) -> tuple[Any, ...]:
        """The states after one more token."""
        return tuple(part.next(each, token) for part, each in zip(self.parts, state, strict=True))

    def favourite(self, state: tuple[Any, ...]) -> int | None:
        """The favourite of the first part that has one."""
        favourites = (part.favourite(each) for part, each in zip(self.parts, state, strict=True))
        return next((token for token in favourites if token is not None), None)

    def loss(self, state: tuple[Any, ...]) -> Tensor:
        """The penalties of the next token, float32 [V]."""
        first, *others = (part.loss(each) for part, each in zip(self.parts, state, strict=True))
        return sum(others, first)

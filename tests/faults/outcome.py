"""Outcome of one case of the harness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Outcome of a case.

    end  : "value", "sentence" (a ForetokenError), "bug" (any other exception), "killed" (the child died) or "slow"
    text : description of the value, the sentence, or the traceback
    """

    name: str
    end: str
    text: str

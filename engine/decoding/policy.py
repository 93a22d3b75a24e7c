"""The policy for `verify: match seed`, which promises plain decoding's tokens for the same seed; all methods share it.

The promise needs an exact rule, so a run that begins without one is refused. A knob moved later takes effect at once: if the rule is no
longer exact, the match ends and the badge says so. If the rule becomes exact again, the seed is matched again.
"""

from __future__ import annotations

from engine.core import Knobs
from engine.errors import BadKnob

MATCH = "match seed"


def matches_seed(knobs: Knobs, exact: bool) -> bool:
    """True if the next step gives the tokens of plain decoding. exact : True if the method's rule is exact under these knobs"""
    return knobs.verify == MATCH and exact


def check_start(knobs: Knobs, exact: bool, setting: str, remedy: str) -> None:
    """Raises BadKnob if a run would begin with match seed and a rule that is not exact.

    setting : the setting that is not exact, for instance "relax=additive"; remedy : what to set instead, for instance "relax=off"
    """
    if knobs.verify == MATCH and not exact:
        raise BadKnob(f"match seed needs an exact rule; {setting} is not. Set {remedy}, or verify=residual.")


def not_exact(knobs: Knobs, reason: str) -> str:
    """The sentence of the badge under a rule that is not exact."""
    ended = " So the seed is not matched." if knobs.verify == MATCH else ""
    return f"Not exact: {reason}{ended}"

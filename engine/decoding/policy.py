"""The policies for the knob `verify`.

`match seed` promises plain decoding's tokens for the same seed; all methods share it.
The promise needs an exact rule, so a run that begins without one is refused. A knob moved later takes effect at once: if the rule is no
longer exact, the match ends and the badge says so. If the rule becomes exact again, the seed is matched again.

`block` verifies all drafts of a pass as one block, so what happens at a position depends on later drafts. It is exact where every draft
of a pass, given all that happened in earlier passes, is a draw from its known distribution: unreached drafts must be redrawn with new
noise. Drafts that are carried, or redrawn with the noise of their position, helped to decide where the last pass ended, and may not be
verified so.
"""

from __future__ import annotations

from engine.core import Knobs
from engine.errors import BadKnob

MATCH, BLOCK = "match seed", "block"


def matches_seed(knobs: Knobs, exact: bool) -> bool:
    """True if the next step gives the tokens of plain decoding. exact : True if the method's rule is exact under these knobs"""
    return knobs.verify == MATCH and exact


def verifies_block(knobs: Knobs) -> bool:
    """True if the drafts of a pass are verified as one block."""
    return knobs.verify == BLOCK


def check_start(knobs: Knobs, exact: bool, setting: str, remedy: str) -> None:
    """Raises BadKnob if a run would begin with match seed or block and a rule that is not exact.

    setting : the setting that is not exact, for instance "relax=additive"; remedy : what to set instead, for instance "relax=off"
    """
    if knobs.verify in (MATCH, BLOCK) and not exact:
        raise BadKnob(f"{knobs.verify} needs an exact rule; {setting} is not. Set {remedy}, or verify=residual.")


def not_exact(knobs: Knobs, reason: str) -> str:
    """The sentence of the badge under a rule that is not exact."""
    ended = " So the seed is not matched." if knobs.verify == MATCH else ""
    return f"Not exact: {reason}{ended}"

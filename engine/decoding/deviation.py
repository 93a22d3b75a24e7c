"""How far a relaxed rule's output may lie from the model's law: a meter that all relaxed methods share, and one slider that holds it down.

Paper: none; what papers call a budget (LANTERN's δ) bounds what one token may borrow, not what comes out. This slider is in the unit that
a person cares about: total variation distance of a token's law, on average over the run.
"""

from __future__ import annotations

from engine.core import Knob, Knobs
from engine.noise import SCHEDULE, Noise
from engine.trace import DeviationTrace

ALLOWED = Knob(
    "allowed_deviation", "", 1.0, 0, 1, 0.005,
    help="How far the law of a token may lie from the model's, on average: the relaxed rule is held back to it. 1: no limit. 0: exact.",
)  # fmt: skip

METERED = 0.25  # the share of passes that are measured where there is no limit; with one, every pass is


class Meter:
    """The running mean of TV(what comes out, the model's law) over the measured rows of one run, and how strong the rule may be next.

    latest : of the newest pass; nan where it was not measured. strength : what the rule was allowed in the newest pass
    """

    def __init__(self) -> None:
        self.measured, self.total = 0, 0.0
        self.latest = self.strength = float("nan")

    @property
    def mean(self) -> float:
        """Mean total variation distance so far; nan before the first measurement."""
        return self.total / self.measured if self.measured else float("nan")

    def allow(self, most: float, knobs: Knobs) -> float:
        """How strong the rule may be in this pass: `most`, or what the measured rows have left of their allowance and one row more.

        A rule that costs less than it is allowed saves up and grows stronger; one that has overdrawn is exact until the mean is
        back. Only what was committed before is looked at, so no draft decides how it is judged.
        """
        self.strength = most
        if knobs.allowed_deviation < 1:
            self.strength = min(most, max(0.0, knobs.allowed_deviation * (self.measured + 1) - self.total))
        self.latest = float("nan")
        return self.strength

    def is_due(self, knobs: Knobs, noise: Noise, position: int, iteration: int) -> bool:
        """Whether this pass is measured."""
        return knobs.allowed_deviation < 1 or noise.uniform(SCHEDULE, position, 1, iteration, 1).item() < METERED

    def saw(self, deviation: float) -> None:
        """A measured row."""
        self.latest = deviation
        self.total += deviation
        self.measured += 1

    def trace(self) -> DeviationTrace:
        """For the Step: the deviation of this pass, the run's mean, and the rule's strength."""
        return DeviationTrace(self.mean, self.latest, self.strength)

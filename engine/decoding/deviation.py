"""The deviation of a relaxed rule's output from the model's distribution: a meter shared by all relaxed methods, and a knob to limit it.

Paper: none. The budget of a paper (LANTERN's δ) bounds what one token may borrow, not the deviation of the output. This knob limits
the total variation distance of a token's distribution, on average over the run.
"""

from __future__ import annotations

from engine.core import Knob, Knobs
from engine.noise import SCHEDULE, Noise
from engine.trace import DeviationTrace

ALLOWED = Knob(
    "allowed_deviation", "", 1.0, 0, 1, 0.005,
    help="Limit on the mean total variation distance between a token's distribution and the model's. 1: no limit. 0: exact.",
)  # fmt: skip

METERED = 0.25  # the share of passes measured when there is no limit; with a limit, every pass is measured


class Meter:
    """The running mean of TV(output, model) over the measured rows of one run, and the strength allowed to the rule in the next pass.

    latest : of the newest pass; nan if not measured. strength : the rule's strength in the newest pass
    """

    def __init__(self) -> None:
        self.measured, self.total = 0, 0.0
        self.latest = self.strength = float("nan")

    @property
    def mean(self) -> float:
        """Mean total variation distance so far; nan before the first measurement."""
        return self.total / self.measured if self.measured else float("nan")

    def allow(self, most: float, knobs: Knobs) -> float:
        """The strength of the rule in this pass: `most`, or the unused allowance of the measured rows plus that of one more row.

        A rule that deviates less than allowed saves its allowance and grows stronger. One that exceeded it is exact until the mean is
        below the limit again. The strength depends only on committed tokens, so no draft influences its own verification.
        """
        self.strength = most
        if knobs.allowed_deviation < 1:
            self.strength = min(most, max(0.0, knobs.allowed_deviation * (self.measured + 1) - self.total))
        self.latest = float("nan")
        return self.strength

    def is_due(self, knobs: Knobs, noise: Noise, position: int, iteration: int) -> bool:
        """Whether this pass is measured."""
        return knobs.allowed_deviation < 1 or noise.host_uniform(SCHEDULE, position, 1, iteration, 1).item() < METERED

    def saw(self, deviation: float) -> None:
        """Adds a measured row."""
        self.latest = deviation
        self.total += deviation
        self.measured += 1

    def trace(self) -> DeviationTrace:
        """For the Step: the deviation of this pass, the run's mean, and the rule's strength."""
        return DeviationTrace(self.mean, self.latest, self.strength)

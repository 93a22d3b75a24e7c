"""The fit of a finished mesh: its distance to the input, divided by the distance of a perfect mesh, with a one-line summary.

The chamfer distance divided by the sampling floor (engine/mesh/distance.py), with fixed limits; see docs/models/mesh_eyes.md.
A cloud is compared at fewer points than a surface, so its floor is higher by the root of the ratio. Its excess over the floor is
therefore measured in the floor at a surface's number of points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from engine.mesh.distance import COUNT

GOOD, FAIR = 2.0, 5.0  # upper limits, in times the floor
VERDICTS = {"good": "good", "fair": "rough", "foreign": "poor"}  # in JSON, and as shown
TINY = 1e-6  # minimum floor; the floor of equal points is zero


@dataclass(frozen=True)
class Fit:
    """verdict : one of VERDICTS; over_floor : the distance over the floor of a surface; text : the line"""

    verdict: str
    over_floor: float
    text: str

    @property
    def word(self) -> str:
        """The verdict as shown."""
        return VERDICTS[self.verdict]

    def row(self) -> dict[str, Any]:
        """The entry of a run's JSON."""
        return asdict(self) | {"over_floor": round(self.over_floor, 2)}


def verdict_of(over_floor: float) -> str:
    """The verdict on a distance over the floor."""
    return "good" if over_floor <= GOOD else "fair" if over_floor <= FAIR else "foreign"


def fit_of(measures: Mapping[str, Any]) -> Fit | None:
    """The fit of a mesh by its `distance` to its input; None if it has no area."""
    if measures["chamfer"] is None:
        return None
    floor = max(measures["floor"], TINY)
    over = 1 + (measures["chamfer"] / floor - 1) * (COUNT / measures["count"]) ** 0.5
    return Fit(verdict_of(over), over, sentence(over))


def sentence(over_floor: float) -> str:
    """The line about a distance over the floor."""
    verdict = verdict_of(over_floor)
    times = f"{max(over_floor, 1):.1f}".removesuffix(".0") if over_floor <= 10 else "more than 10"
    if verdict == "fair":
        return f"Rough match ({times} times): parts may be missing or bent. Another seed may do better."
    return f"{VERDICTS[verdict].capitalize()} match: {times} times as far from your points as a perfect mesh would be."

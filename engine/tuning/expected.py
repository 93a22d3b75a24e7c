"""Expected tokens of a pass, recorded for a model: rows in its card, or in the user's data folder. Also finds the fastest of them here.

Tokens per pass do not depend on the machine, so the rows of a shipped model are in its card. They hold for the model's own sampling;
`launch.py bench expected` measures them. A row that was recorded for other weights is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.core import Backbone
from engine.errors import MissingWeights
from engine.methods import AUTO
from engine.tuning.store import StepCosts

ENTRY = "expected"  # of a card
LEAST = 1e-3  # milliseconds of a step


@dataclass(frozen=True)
class Expected:
    """Average result of a method with some knobs per pass of a model.

    name : a method or preset; tokens : committed; rows : of the pass; draft_passes : other passes, of a drafter or of a smaller picture
    """

    name: str
    knobs: Mapping[str, float | str]
    tokens: float
    rows: float
    draft_passes: float = 0.0

    @property
    def full_name(self) -> str:
        """The name by which `methods.find` finds it: "auto:sjdpp,window=16"."""
        return f"{AUTO}:{self.key}"

    @property
    def key(self) -> str:
        """The same without "auto:": the key under which its cost outside a pass is stored."""
        return ",".join([self.name, *(f"{name}={value}" for name, value in self.knobs.items())])

    def milliseconds(self, costs: StepCosts) -> float:
        """Milliseconds of a step here: the pass and the method's own work, counted per pass of its drafter, or once without one.

        Knobs whose extra cost was not measured get the least that was measured for any, so that no fast row is skipped unmeasured.
        """
        extra = costs.extra.get(self.key)
        if extra is None:
            extra = min(costs.extra.values(), default=0.0)
        else:
            extra *= max(1.0, self.draft_passes)
        return max(LEAST, costs.curve.at(self.rows) + extra)

    def speed(self, costs: StepCosts) -> float:
        """Expected tokens per second here."""
        return 1000 * self.tokens / self.milliseconds(costs)

    def row(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "method": self.name, "knobs": dict(self.knobs), "tokens": round(self.tokens, 3), "rows": round(self.rows, 2),
            "draft_passes": round(self.draft_passes, 3),
        }  # fmt: skip


def best(rows: Iterable[Expected], costs: StepCosts) -> Expected:
    """The row with the most expected tokens per second; the first of equal ones. `rows` must not be empty."""
    return max(rows, key=lambda each: each.speed(costs))


def of_rows(rows: Iterable[Mapping[str, Any]]) -> list[Expected]:
    """The rows of JSON; raises KeyError, TypeError or ValueError for anything else."""
    expectations = []
    for row in rows:
        tokens, width, drafts = float(row["tokens"]), float(row["rows"]), float(row["draft_passes"])
        if not (tokens > 0 and width >= 1 and drafts >= 0):
            raise ValueError(f"{row} is no expectation")
        expectations.append(Expected(str(row["method"]), dict(row["knobs"]), tokens, width, drafts))
    return expectations


def of_card(backbone: Backbone) -> list[Expected]:
    """The rows in a model's card that were recorded for its weights; [] without any. Raises MissingWeights for a damaged entry."""
    entry = backbone.card.get(ENTRY)
    if entry is None:
        return []
    try:
        return of_rows(entry["rows"]) if entry["weights"] == backbone.weights_hash else []
    except (KeyError, TypeError, ValueError) as e:
        raise MissingWeights(f"'{ENTRY}' in the card of {backbone.name} is damaged ({e}). Restore it with git.") from e

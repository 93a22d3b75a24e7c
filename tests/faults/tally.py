"""Counts the cases of the harness by kind: how many were values, how many sentences, the slowest, the largest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.faults.outcome import Outcome

COLUMNS = ("cases", "value", "sentence", "bug", "killed", "slow")


@dataclass
class Tally:
    """The outcomes so far, by kind."""

    kinds: dict[str, list[Outcome]] = field(default_factory=dict)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Counts some more."""
        for outcome in outcomes:
            self.kinds.setdefault(outcome.kind, []).append(outcome)

    def lines(self) -> list[str]:
        """A line for every kind, and one for all."""
        if not self.kinds:
            return []
        head = f"{'':28}" + "".join(f"{name:>10}" for name in COLUMNS) + f"{'slowest':>10}{'memory':>10}"
        every = [outcome for found in self.kinds.values() for outcome in found]
        return [head, *(_line(kind, found) for kind, found in sorted(self.kinds.items())), _line("all", every)]


def _line(kind: str, outcomes: list[Outcome]) -> str:
    counts = [len(outcomes), *(sum(o.end == end for o in outcomes) for end in COLUMNS[1:])]
    slowest, largest = max(o.seconds for o in outcomes), max(o.megabytes for o in outcomes)
    return f"{kind:28}" + "".join(f"{count:10}" for count in counts) + f"{slowest:8.2f} s{largest:7.0f} MB"

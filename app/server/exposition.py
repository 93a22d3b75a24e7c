"""Prometheus' text form, version 0.0.4: families of samples as lines of text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]
Samples = list[tuple[str, Labels, float]]  # (name, labels, value)


@dataclass
class Counted:
    """Numbers by labels. kind : "counter", which only grows, or "gauge" """

    name: str
    about: str
    kind: str = "counter"
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, amount: float, **labels: str) -> None:
        """Adds to the number with these labels."""
        key = tuple(labels.items())
        self.values[key] = self.values.get(key, 0.0) + amount

    def samples(self) -> Samples:
        """One sample for each combination of labels."""
        return [(self.name, labels, value) for labels, value in self.values.items()]


@dataclass
class Histogram:
    """How many values are at most as large as each bound, with their count and sum."""

    name: str
    about: str
    bounds: Sequence[float]
    kind: str = "histogram"
    counts: dict[Labels, list[int]] = field(default_factory=dict)
    sums: dict[Labels, float] = field(default_factory=dict)

    def observe(self, value: float, **labels: str) -> None:
        """Counts a value."""
        key = tuple(labels.items())
        self.counts.setdefault(key, [0] * (len(self.bounds) + 1))[bisect_left(self.bounds, value)] += 1
        self.sums[key] = self.sums.get(key, 0.0) + value

    def samples(self) -> Samples:
        """The cumulative buckets, the sum and the count."""
        found: Samples = []
        for labels, counts in self.counts.items():
            total = 0
            for bound, count in zip((*map(number, self.bounds), "+Inf"), counts, strict=True):
                total += count
                found.append((f"{self.name}_bucket", (*labels, ("le", bound)), total))
            found += [(f"{self.name}_sum", labels, self.sums[labels]), (f"{self.name}_count", labels, total)]
        return found


def text(families: Iterable[Counted | Histogram]) -> str:
    """All families, each under its help and its kind."""
    lines: list[str] = []
    for each in families:
        lines += [f"# HELP {each.name} {each.about}", f"# TYPE {each.name} {each.kind}"]
        lines += [f"{name}{braces(dict(labels))} {number(value)}" for name, labels, value in each.samples()]
    return "\n".join(lines) + "\n"


def braces(labels: Mapping[str, str]) -> str:
    """Labels as Prometheus writes them; nothing without any."""
    said = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{{{said}}}" if said else ""


def escaped(value: str) -> str:
    """The value of a label between its quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: float) -> str:
    """A number, whole ones without a point."""
    return str(int(value)) if value == int(value) else repr(float(value))

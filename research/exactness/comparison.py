"""The result of comparing drawn sequences with an enumerated distribution, as numbers and as one sentence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from research.exactness.power import Distribution, detectable, statistic

Z_ACCEPTED, Z_DETECTED = 4.0, 10.0
SHOWN = 3  # sequences that the sentence names


@dataclass(frozen=True)
class Comparison:
    """What a number of draws shows.

    z, chi_square, freedom : the pooled chi-square, see power.py
    distance, floor        : the total variation distance, and what sampling noise alone gives on average
    detects                : the smallest distance that these draws detect with probability 99 %
    position               : the first position (from 0) where the prefixes up to it have another distribution; None: none was seen
    verdict                : "exact" (|z| < 4), "not exact" (z > 10) or "undecided"
    """

    draws: int
    z: float
    chi_square: float
    freedom: int
    distance: float
    floor: float
    detects: float
    position: int | None
    verdict: str
    sentence: str


def compare(counts: Counter[tuple[int, ...]], distribution: Distribution) -> Comparison:
    """Compares drawn sequences with the distribution that they should have. counts : how often each sequence was drawn"""
    draws = counts.total()
    whole = statistic(counts, distribution, draws)
    power = round(detectable(distribution, draws, Z_ACCEPTED), 4)
    verdict = "exact" if abs(whole["z"]) < Z_ACCEPTED else "not exact" if whole["z"] > Z_DETECTED else "undecided"
    position = None if verdict == "exact" else _first_position(counts, distribution, draws)
    if verdict == "exact":
        sentence = f"No difference in {draws:,} draws, which would have shown a total variation distance of {power:.3f}."
    elif verdict == "undecided":
        sentence = f"Undecided after {draws:,} draws (z = {whole['z']:.1f}): draw more."
    else:
        since = "" if position is None else f", from position {position} on"
        sentence = (
            f"Not exact{since}: total variation distance {whole['tv']:.3f}. Too frequent: {_too_frequent(counts, distribution, draws)}."
        )
    numbers = whole["z"], whole["chi_square"], int(whole["freedom"]), whole["tv"], whole["floor"], power
    return Comparison(draws, *numbers, position, verdict, sentence)


def _first_position(counts: Counter[tuple[int, ...]], distribution: Distribution, draws: int) -> int | None:
    for length in range(1, max(map(len, counts)) + 1):
        seen: Counter[tuple[int, ...]] = Counter()
        expected: Distribution = {}
        for sequence, count in counts.items():
            seen[sequence[:length]] += count
        for sequence, chance in distribution.items():
            expected[sequence[:length]] = expected.get(sequence[:length], 0.0) + chance
        if statistic(seen, expected, draws)["z"] > Z_DETECTED:
            return length - 1
    return None


def _too_frequent(counts: Counter[tuple[int, ...]], distribution: Distribution, draws: int) -> str:
    """The sequences with the largest excess, each with its share and the share that is right."""
    excess = {sequence: count / draws - distribution.get(sequence, 0.0) for sequence, count in counts.items()}
    most = sorted((s for s in excess if excess[s] > 0), key=lambda s: -excess[s])[:SHOWN]
    return ", ".join(f"{' '.join(map(str, s))} ({counts[s] / draws:.3f} instead of {distribution.get(s, 0.0):.3f})" for s in most)

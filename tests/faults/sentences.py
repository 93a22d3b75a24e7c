"""The rules for an error message, and the failure message of a test whose cases ended badly."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.faults.outcome import Outcome

LONGEST = 800  # characters; the longest one lists all knobs there are
WORD = 300  # characters; more are a number of hundreds of digits
PYTHON = ("Traceback", "<class", "object at 0x", "Path(", "<DirEntry", "[('")  # words that users should not have to read
SHOWN = 20  # kinds of failures that a message spells out


def wrong(text: str) -> str:
    """The fault of a sentence, "" if there is none."""
    if "\n" in text or not text.isprintable():
        return "it is not one printable line"
    if not text.rstrip().endswith((".", "?", "!", ")", "--help", "doctor", "train")) or not text[:1]:
        return "it does not end like a sentence"
    if len(text) > LONGEST:
        return f"it has {len(text)} characters"
    if max(map(len, text.split())) > WORD:
        return "it holds a word that nobody can read"
    if any(word in text for word in PYTHON):
        return "it speaks of Python"
    return ""


def complaint(outcome: Outcome) -> str:
    """Why an outcome is a failure, "" if it is none."""
    if outcome.end == "value":
        return ""
    if outcome.end == "sentence":
        why = wrong(outcome.text)
        return f"a sentence that is none ({why}): {outcome.text[:LONGEST]}" if why else ""
    return f"{outcome.end}: {outcome.text}"


def hold(outcomes: Iterable[Outcome], where: str = "") -> None:
    """Fails the test if a case ended badly; equal failures are printed once.

    where: how to make a corpus file of one
    """
    groups: dict[str, list[tuple[Outcome, str]]] = {}
    for outcome in outcomes:
        if why := complaint(outcome):
            alike = why.strip().splitlines()[-1] if outcome.end == "bug" else why[:60]
            groups.setdefault(alike, []).append((outcome, why))
    spelled = [f"{len(names)} x {', '.join(o.name for o, _ in names[:6])}\n{names[0][1].strip()}" for names in groups.values()]
    if groups:
        count = sum(map(len, groups.values()))
        pytest.fail(f"{count} cases failed in {len(groups)} ways. {where}\n\n" + "\n\n".join(spelled[:SHOWN]), pytrace=False)

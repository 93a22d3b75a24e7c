"""What a sentence for a person looks like, and the message of a test whose cases ended otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from tests.faults.forked import Outcome

LONGEST = 420  # characters
SHOWN = 12  # failures that a message spells out


def wrong(text: str) -> str:
    """What is wrong with a sentence, "" if nothing."""
    if "\n" in text or not text.isprintable():
        return "it is not one printable line"
    if not text.rstrip().endswith((".", "?", "!", ")", "--help", "doctor", "train")) or not text[:1]:
        return "it does not end like a sentence"
    if len(text) > LONGEST:
        return f"it has {len(text)} characters"
    if "Traceback" in text or "<class" in text or "object at 0x" in text:
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


def report(outcomes: Iterable[Outcome], where: str = "") -> str:
    """All failures in one text, "" if there are none. where: what a person does to make a corpus file of one."""
    failed = [(o, c) for o in outcomes if (c := complaint(o))]
    if not failed:
        return ""
    spelled = "\n\n".join(f"{o.name}\n{c}" for o, c in failed[:SHOWN])
    return f"{len(failed)} cases failed: {', '.join(o.name for o, _ in failed)}\n{where}\n\n{spelled}"

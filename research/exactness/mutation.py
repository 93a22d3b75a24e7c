"""Replaces correct functions with broken ones: a test of exactness that passes with a broken function proves nothing.

A mutant is a list of patches. A mutant without effect, because a function has moved or is no longer called, would leave its claim
untested, so it raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial, wraps
from typing import Any

Place = tuple[Any, str]  # owner (a module, a class or a dictionary), attribute or key
Patch = tuple[Any, str, Any]  # owner, attribute or key, wrong value
Patches = Callable[[], list[Patch]]


class IdleMutant(Exception):
    """A mutant had no effect."""


class CallRecorder:
    """A patch that only records calls for another patch: it breaks nothing, and its calls do not count."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function


class Mutant:
    """Patches that can be applied repeatedly. calls : how often a broken function was called"""

    def __init__(self, name: str, patches: list[Patch]):
        """Raises IdleMutant for a patch with the value that is already there; AttributeError or KeyError if there is no such place."""
        self.name, self.calls = name, 0
        self.right = [(owner, key, get(owner, key)) for owner, key, _ in patches]
        for (_, key, value), (_, _, right) in zip(patches, self.right, strict=True):
            if value is right:
                raise IdleMutant(f"Mutant '{name}' replaces {key} by itself. Patch the function that took its place.")
        self.wrong = [(owner, key, self._count_calls(value)) for owner, key, value in patches]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Applies the patches inside the block and restores the right values after it."""
        try:
            for owner, key, value in self.wrong:
                put(owner, key, value)
            yield
        finally:
            for owner, key, value in self.right:
                put(owner, key, value)

    def check(self) -> None:
        """Raises IdleMutant if no broken function was called. Call it at the end."""
        if self.wrong and not self.calls:
            places = ", ".join(key for _, key, _ in self.wrong)
            raise IdleMutant(f"Mutant '{self.name}' was never called ({places}). Patch the function that is called instead.")

    def _count_calls(self, value: Any) -> Any:
        """Returns the same function, or dataclass of functions, with its calls counted."""
        if isinstance(value, CallRecorder):
            return value.function
        if is_dataclass(value):
            return replace(value, **{f.name: self._count_calls(getattr(value, f.name)) for f in fields(value)})

        @wraps(value)
        def counting(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            return value(*arguments, **named)

        return counting


NOTHING = Mutant("nothing", [])


def substitute(wrong: Any, *places: Place) -> Patches:
    """Returns the patches that put one wrong value in some places."""
    return lambda: [(owner, key, wrong) for owner, key in places]


def wrap(change: Callable[..., Any], *places: Place) -> Patches:
    """Returns the patches that wrap functions in `change`, which gets the right function and then the arguments of the call."""
    return lambda: [(owner, key, partial(change, get(owner, key))) for owner, key in places]


@contextmanager
def apply_mutant(name: str, patches: Patches) -> Iterator[None]:
    """Applies a mutant inside the block; raises IdleMutant after the block if none of its functions was called."""
    mutant = Mutant(name, patches())
    with mutant.in_force():
        yield
    mutant.check()


def get(owner: Any, key: str) -> Any:
    """Returns an owner's value for a key."""
    return owner[key] if isinstance(owner, dict) else getattr(owner, key)


def put(owner: Any, key: str, value: Any) -> None:
    """Sets an owner's value for a key."""
    if isinstance(owner, dict):
        owner[key] = value
    else:
        setattr(owner, key, value)

"""Broken functions in the place of right ones: a claim of exactness that none of them can break proves nothing.

A mutant is a list of patches. One that patches nothing, because a function has moved or nobody calls it any more, would leave its
claim untested, so it is an error of ours and no result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any

Patch = tuple[Any, str, Any]  # owner (a module, a class or a dictionary), attribute or key, wrong value


class IdleMutant(Exception):
    """A mutant that changed nothing."""


class Watcher:
    """A patch that only looks on, for the sake of another one: calling it breaks nothing, and does not count."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function


class Mutant:
    """Some patches, to be put in force as often as needed. calls : how often something wrong was called"""

    def __init__(self, name: str, patches: list[Patch]):
        """Raises IdleMutant for a patch that brings the value that is there; AttributeError or KeyError where there is none."""
        self.name, self.calls = name, 0
        self.right = [(owner, key, get(owner, key)) for owner, key, _ in patches]
        for (_, key, value), (_, _, right) in zip(patches, self.right, strict=True):
            if value is right:
                raise IdleMutant(f"Mutant '{name}' puts {key} in its own place. Patch what it is called by now.")
        self.wrong = [(owner, key, self._counted(value)) for owner, key, value in patches]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The wrong values inside the block, the right ones behind it."""
        try:
            for owner, key, value in self.wrong:
                put(owner, key, value)
            yield
        finally:
            for owner, key, value in self.right:
                put(owner, key, value)

    def check(self) -> None:
        """To be called at the end: raises IdleMutant if nothing was called."""
        if self.wrong and not self.calls:
            places = ", ".join(key for _, key, _ in self.wrong)
            raise IdleMutant(f"Mutant '{self.name}' was never called ({places}). Patch what is called in its place by now.")

    def _counted(self, value: Any) -> Any:
        """The same function, or record of functions, with its calls counted."""
        if isinstance(value, Watcher):
            return value.function
        if is_dataclass(value):
            return replace(value, **{f.name: self._counted(getattr(value, f.name)) for f in fields(value)})

        @wraps(value)
        def counted(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            return value(*arguments, **named)

        return counted


NOTHING = Mutant("nothing", [])


@contextmanager
def applied(name: str, patches: Callable[[], list[Patch]]) -> Iterator[None]:
    """A mutant in force inside the block; raises IdleMutant behind it if nothing of it was called."""
    mutant = Mutant(name, patches())
    with mutant.in_force():
        yield
    mutant.check()


def get(owner: Any, key: str) -> Any:
    """What an owner has under a key."""
    return owner[key] if isinstance(owner, dict) else getattr(owner, key)


def put(owner: Any, key: str, value: Any) -> None:
    """Gives an owner another value."""
    if isinstance(owner, dict):
        owner[key] = value
    else:
        setattr(owner, key, value)

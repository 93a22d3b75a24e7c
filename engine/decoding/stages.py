"""How long the stages of a method's algorithm take. On a GPU a stage also waits for what earlier ones left running."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Stages:
    """Seconds by stage since they were taken last."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Counts the time inside the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[stage] += time.perf_counter() - start

    def each(self, stage: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yields the items and counts the time it takes to make them, not the time between."""
        going = iter(items)
        while True:
            with self.of(stage):
                try:
                    item = next(going)
                except StopIteration:
                    return
            yield item

    def taken(self) -> dict[str, float]:
        """Returns the seconds by stage, and begins anew."""
        found, self._seconds = dict(self._seconds), Counter()
        return found

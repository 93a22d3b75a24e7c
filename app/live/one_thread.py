"""Runs an iterator in one thread, from whichever thread its values are taken."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
END = object()


def in_one_thread(values: Generator[Item, None, None]) -> Iterator[Item]:
    """Yields the values of a generator, which runs in a thread of its own: Gradio advances a handler from several threads, and greenlets
    belong to one."""
    with ThreadPoolExecutor(1) as thread:
        try:
            while (item := thread.submit(next, values, END).result()) is not END:
                yield item
        finally:
            thread.submit(values.close).result()

"""/metrics as Prometheus sees it, read by prometheus_client's own parser."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.app.visitor import wait_until

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


def numbers(address: str) -> Numbers:
    """All samples of a studio by name and labels."""
    answer = httpx.get(f"{address}/metrics", timeout=60)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.text)


def samples(text: str | bytes) -> Numbers:
    """All samples in a text."""
    text = text.decode() if isinstance(text, bytes) else text
    return {(s.name, frozenset(s.labels.items())): s.value for family in text_string_to_metric_families(text) for s in family.samples}


def total(numbers: Numbers, name: str, **labels: str) -> float:
    """The sum of the samples of a name that have these labels."""
    return sum(value for (each, has), value in numbers.items() if each == name and has >= frozenset(labels.items()))


def until(address: str, holds: Callable[[Numbers], bool]) -> Numbers:
    """The samples once a condition is true."""
    seen: list[Numbers] = []

    def now() -> bool:
        seen.append(numbers(address))
        return holds(seen[-1])

    assert wait_until(now), f"It never held: {seen[-1]}"
    return seen[-1]


def waiting(count: int) -> Callable[[Numbers], bool]:
    """True while this many requests are waiting."""
    return lambda numbers: total(numbers, "vllm:num_requests_waiting") == count


def idle(numbers: Numbers) -> bool:
    """True while no request has the engine or waits for it."""
    return total(numbers, "vllm:num_requests_running") == total(numbers, "vllm:num_requests_waiting") == 0

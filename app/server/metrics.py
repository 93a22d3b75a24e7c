"""Prometheus metrics of the studio's runs since its start, under vLLM's names.

Names and suffixes: vllm/v1/spec_decode/metrics.py and vllm/v1/metrics/loggers.py of vLLM 0.10. A draft is a step that verified drafts, a
position is a place in the step's committed tokens, from 0. Runs of the page, the endpoints and the API all count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from engine.core import Step
from engine.diagnostics import per_token
from engine.run import Run

MEDIA_TYPE = CONTENT_TYPE_PLAIN_0_0_4
POSITIONS = 64  # positions with their own counters; some methods commit hundreds of tokens per step
QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)  # bounds of buckets, in seconds
LONG = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)


disable_created_metrics()  # else each metric has a second one, its creation time, which vLLM omits too


class Metrics:
    """The counters of one studio. Each has its own lock, so several threads may write."""

    def __init__(self, running: Callable[[], int], waiting: Callable[[], int]):
        self.registry = CollectorRegistry()
        Gauge("vllm:num_requests_running", "Requests that have the engine.", registry=self.registry).set_function(running)
        Gauge("vllm:num_requests_waiting", "Requests that wait for the engine.", registry=self.registry).set_function(waiting)
        self.drafts = self._counter("vllm:spec_decode_num_drafts", "Steps that verified drafts.")
        self.drafted = self._counter("vllm:spec_decode_num_draft_tokens", "Drafts that were verified.")
        self.accepted = self._counter("vllm:spec_decode_num_accepted_tokens", "Drafts that were accepted.")
        self.places = self._counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            f"Accepted drafts by place in the step, up to {POSITIONS}.",
            "position",
        )
        self.tokens = self._counter("vllm:generation_tokens", "Committed tokens.")
        self.passes = self._counter("foretoken:forward_passes", "Passes of the model.")
        about = "Requests that had the engine, by the reason of their end."
        self.ended = Counter("vllm:request_success", about, ("model_name", "finished_reason"), registry=self.registry)
        self.first = self._seconds("vllm:time_to_first_token_seconds", "Seconds from the request to the first committed tokens.", QUICK)
        self.queued = self._seconds("vllm:request_queue_time_seconds", "Seconds that a request waited for the engine.", LONG)
        self.whole = self._seconds("vllm:e2e_request_latency_seconds", "Seconds from the request to its end.", LONG)

    def _counter(self, name: str, about: str, *more: str) -> Counter:
        return Counter(name, about, ("model_name", "method", *more), registry=self.registry)

    def _seconds(self, name: str, about: str, bounds: Sequence[float]) -> Histogram:
        return Histogram(name, about, ("model_name",), buckets=bounds, registry=self.registry)

    def count(self, runs: Sequence[Run]) -> None:
        """Adds runs that have ended."""
        for run in runs:
            labels = {"model_name": run.backbone.name, "method": run.method.name}
            drafts = [step for step in run.steps if step.drafted]
            counts = accepted_by_place(drafts)
            self.tokens.labels(**labels).inc(len(run.tokens))
            self.passes.labels(**labels).inc(sum(step.forwards for step in run.steps))
            self.drafts.labels(**labels).inc(len(drafts))
            self.drafted.labels(**labels).inc(sum(step.drafted for step in drafts))
            self.accepted.labels(**labels).inc(counts.sum())
            for place, count in enumerate(counts[:POSITIONS]):
                self.places.labels(**labels, position=str(place)).inc(count)

    def request(self, runs: Sequence[Run], waited: float, first: float, lasted: float) -> None:
        """Adds a request by its last runs. waited, first, lasted : seconds until it had the engine, its first token, its end"""
        labels = {"model_name": runs[0].backbone.name}
        self.ended.labels(**labels, finished_reason="stop" if all(run.finished for run in runs) else "abort").inc()
        self.queued.labels(**labels).observe(waited)
        self.first.labels(**labels).observe(first)
        self.whole.labels(**labels).observe(lasted)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)


def accepted_by_place(steps: Sequence[Step]) -> np.ndarray:
    """int64 [most tokens of a step]: number of steps whose token at each place was an accepted draft."""
    counts = np.zeros(max((len(step.tokens) for step in steps), default=0), np.int64)
    for step in steps:
        counts[: len(step.tokens)] += per_token(step, "accepted") == 1
    return counts

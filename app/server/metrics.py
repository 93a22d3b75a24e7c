"""What the studio has decoded since it began, for Prometheus, under the names that vLLM gives such numbers.

Names and suffixes: vllm/v1/spec_decode/metrics.py and vllm/v1/metrics/loggers.py of vLLM 0.10. A draft is a step that verified drafts, a
position is a place in the step's committed tokens, from 0. Every run counts, whoever asked for it: the page, an endpoint, or the API.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from app.server.exposition import Counted, Histogram, text
from engine.core import Step
from engine.diagnostics import per_token
from engine.run import Run

POSITIONS = 64  # that have a counter of their own; a step of some methods commits hundreds of tokens
QUICK = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)  # bounds of buckets, in seconds
LONG = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)


class Metrics:
    """The counters of one studio; they may be written from several threads."""

    def __init__(self, running: Callable[[], int], waiting: Callable[[], int]):
        self._lock, self._running, self._waiting = threading.Lock(), running, waiting
        self.drafts = Counted("vllm:spec_decode_num_drafts_total", "Steps that verified drafts.")
        self.drafted = Counted("vllm:spec_decode_num_draft_tokens_total", "Drafts that were verified.")
        self.accepted = Counted("vllm:spec_decode_num_accepted_tokens_total", "Drafts that were accepted.")
        self.places = Counted(
            "vllm:spec_decode_num_accepted_tokens_per_pos_total", f"Accepted drafts by their place in the step, the first {POSITIONS}."
        )
        self.tokens = Counted("vllm:generation_tokens_total", "Committed tokens.")
        self.passes = Counted("foretoken:forward_passes_total", "Passes of the model.")
        self.ended = Counted("vllm:request_success_total", "Requests that had the engine, by the reason of their end.")
        self.first = Histogram("vllm:time_to_first_token_seconds", "Seconds from the request to the first committed tokens.", QUICK)
        self.queued = Histogram("vllm:request_queue_time_seconds", "Seconds that a request waited for the engine.", LONG)
        self.whole = Histogram("vllm:e2e_request_latency_seconds", "Seconds from the request to its end.", LONG)

    def count(self, runs: Sequence[Run]) -> None:
        """Adds runs that have ended."""
        with self._lock:
            for run in runs:
                self._count(run)

    def _count(self, run: Run) -> None:
        labels = {"model_name": run.backbone.name, "method": run.method.name}
        drafts = [step for step in run.steps if step.drafted]
        kept = accepted(drafts)
        self.tokens.add(len(run.tokens), **labels)
        self.passes.add(sum(step.forwards for step in run.steps), **labels)
        self.drafts.add(len(drafts), **labels)
        self.drafted.add(sum(step.drafted for step in drafts), **labels)
        self.accepted.add(float(kept.sum()), **labels)
        for place, count in enumerate(kept[:POSITIONS]):
            self.places.add(float(count), **labels, position=str(place))

    def request(self, runs: Sequence[Run], waited: float, first: float, lasted: float) -> None:
        """Adds a request whose last runs these are. waited, first, lasted : seconds until it had the engine, its first token, its end"""
        labels = {"model_name": runs[0].backbone.name}
        with self._lock:
            self.ended.add(1, **labels, finished_reason="stop" if all(run.finished for run in runs) else "abort")
            self.queued.observe(waited, **labels)
            self.first.observe(first, **labels)
            self.whole.observe(lasted, **labels)

    def text(self) -> str:
        """All of them as Prometheus reads them."""
        now = [
            Counted("vllm:num_requests_running", "Requests that have the engine.", "gauge", {(): self._running()}),
            Counted("vllm:num_requests_waiting", "Requests that wait for the engine.", "gauge", {(): self._waiting()}),
        ]
        kept = [self.drafts, self.drafted, self.accepted, self.places, self.tokens, self.passes, self.ended]
        with self._lock:
            return text([*now, *kept, self.first, self.queued, self.whole])


def accepted(steps: Sequence[Step]) -> np.ndarray:
    """int64 [most tokens of a step]: in how many of the steps the token at each place was an accepted draft."""
    found = np.zeros(max((len(step.tokens) for step in steps), default=0), np.int64)
    for step in steps:
        found[: len(step.tokens)] += per_token(step, "accepted") == 1
    return found

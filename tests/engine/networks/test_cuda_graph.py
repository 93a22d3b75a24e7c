"""Captures on a device made of stand-ins: they share a stream per device, take turns, and are not disturbed by garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import torch

from engine.networks import cuda_graph


class Stream:
    """A stream that waits for nothing."""

    def __init__(self, device: int = 0):
        self.device = device

    def wait_stream(self, other: Stream) -> None:
        """Does nothing."""


class Capture:
    """A graph whose replay does nothing."""

    def replay(self) -> None:
        """Does nothing."""


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every capture, on device 1 of a stand-in for CUDA."""
    options: list[dict[str, Any]] = []

    @contextmanager
    def graph(capture: Capture, **own: Any) -> Iterator[None]:
        options.append(own)
        yield

    @contextmanager
    def stream(one: Stream) -> Iterator[None]:
        yield

    for name, each in {"Stream": Stream, "CUDAGraph": Capture, "graph": graph, "stream": stream}.items():
        monkeypatch.setattr(torch.cuda, name, each)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    cuda_graph.side_stream.cache_clear()
    yield options
    cuda_graph.side_stream.cache_clear()


def test_captures_share_the_stream_of_their_device(captures: list[dict[str, Any]]) -> None:
    graphs = [cuda_graph.Graph(lambda: (torch.ones(2),), "pool") for _ in range(3)]
    assert len({id(each["stream"]) for each in captures}) == 1 and captures[0]["stream"].device == 1
    (out,) = graphs[0]()
    assert out is not graphs[0].outputs[0] and torch.equal(out, torch.ones(2)), "the next replay overwrites the result"


def test_nothing_is_collected_in_a_capture(captures: list[dict[str, Any]]) -> None:
    seen: list[bool] = []

    def function() -> tuple[torch.Tensor, ...]:
        seen.append(gc.isenabled())
        return ()

    cuda_graph.Graph(function, None)
    assert len(seen) == cuda_graph.WARMED + 1 and not any(seen) and gc.isenabled()


def test_a_capture_that_fails_leaves_the_next_one_possible(captures: list[dict[str, Any]]) -> None:
    with pytest.raises(ZeroDivisionError):
        cuda_graph.Graph(lambda: 1 // 0, None)
    assert gc.isenabled()
    cuda_graph.Graph(lambda: (), None)


def test_captures_take_turns(captures: list[dict[str, Any]]) -> None:
    inside, most = [0], [0]

    def function() -> tuple[torch.Tensor, ...]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        sum(range(200_000))  # long enough for Python to switch threads
        inside[0] -= 1
        return ()

    threads = [Thread(target=lambda: cuda_graph.Graph(function, None)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and len(captures) == 4

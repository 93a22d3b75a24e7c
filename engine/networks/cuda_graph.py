"""CUDA graphs: a function without arguments, captured once and replayed.

Captures of a process take turns and share one side stream per device: cuBLAS keeps 32 MiB for every stream that it has seen. Python's
garbage collection is off in a capture, because freeing a tensor of the device there would end it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

WARMED = 2  # calls before a capture: in the first, libraries allocate their memory
_ONE_AT_A_TIME = Lock()


class Graph:
    """A captured call of a function without arguments. Its results are the same tensors at every replay."""

    def __init__(self, function: Callable[[], tuple[Tensor, ...]], pool: Any):
        """Captures on the current device. pool : the memory pool that the graphs of a workspace share; they never run at the same time"""
        with _ONE_AT_A_TIME, without_collection():
            aside = side_stream(torch.cuda.current_device())
            aside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(aside):
                for _ in range(WARMED):
                    function()
            torch.cuda.current_stream().wait_stream(aside)
            self.graph = torch.cuda.CUDAGraph()
            # the mode, because another thread may be loading a model
            with torch.cuda.graph(self.graph, pool=pool, stream=aside, capture_error_mode="thread_local"):
                self.outputs = function()

    def __call__(self) -> tuple[Tensor, ...]:
        self.graph.replay()
        return tuple(each.clone() for each in self.outputs)


@lru_cache(maxsize=64)
def side_stream(device: int) -> torch.cuda.Stream:
    """The stream on which graphs of a device are captured, by its index."""
    return torch.cuda.Stream(device)


@contextmanager
def without_collection() -> Iterator[None]:
    """Context without Python's garbage collection."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()

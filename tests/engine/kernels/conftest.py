"""Fixtures for tests of the compiled functions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.dispatch.choice import VARIABLE


@pytest.fixture
def inference(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disables gradients and the kernels' variable; restores PyTorch's number of threads afterwards."""
    monkeypatch.delenv(VARIABLE, raising=False)
    threads = torch.get_num_threads()
    with torch.inference_mode():
        yield
    torch.set_num_threads(threads)

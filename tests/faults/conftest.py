"""The harness needs Linux."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]  # limits of memory and of files are asked of the kernel


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors on many threads only wait for each other, and a forked child has no others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)

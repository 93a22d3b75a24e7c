"""Prints the harness's own table, what was tried and how it ended, after the tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch

from tests.faults.tally import Tally

HERE = sys.platform == "linux"  # limits of memory and of files, and what an open file is, are asked of the kernel
collect_ignore_glob = [] if HERE else ["test_*.py"]
TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    """An empty table."""
    config.stash[TALLY] = Tally()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors on many threads only wait for each other, and a forked child has no others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tally(pytestconfig: pytest.Config) -> Tally:
    """The table that the tests of the harness fill."""
    return pytestconfig.stash[TALLY]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the table."""
    lines = config.stash[TALLY].lines() if HERE else ["Not run: the harness needs Linux."]
    if lines:
        terminalreporter.section("faults")
        for line in lines:
            terminalreporter.write_line(line)

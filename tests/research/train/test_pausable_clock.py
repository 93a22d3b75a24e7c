"""The clock of a training: it stands still while the process is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from research.train.pausable_clock import CONTINUED, Awake

CHILD = """
from research.train.pausable_clock import Awake
with Awake() as clock:
    start = clock.now()
    print("ready", flush=True)
    while True:
        for _ in range(1000):
            end = clock.now()
        if end - start > 2.0:
            break
print("done", flush=True)
"""
SLEPT = 2.5  # seconds, longer than the child counts


@pytest.mark.skipif(CONTINUED is None, reason="this system stops no process")
def test_a_pause_does_not_count() -> None:
    """The child counts two seconds. It is stopped for longer than that, so without the signal it would be done when it wakes."""
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        os.kill(child.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(SLEPT)
        woken = time.monotonic()
        os.kill(child.pid, signal.SIGCONT)
        assert child.stdout.readline() == "done\n"
        assert time.monotonic() - woken > 0.5  # of two seconds, less what it counted before the stop


def test_it_goes_on_like_any_other_clock() -> None:
    clock = Awake()
    first, began = clock.now(), time.monotonic()
    assert 0 <= clock.now() - first <= time.monotonic() - began + 1e-3

"""Calls in a separate process return their result, and end if they hang, crash or use too much memory."""

from __future__ import annotations

import ctypes
import math
import os
import sys
import time

import pytest

from engine.sandbox import Died, TookTooLong, Unwanted, run_sandboxed

NEVER = 3600.0  # seconds


def test_a_call_comes_back_with_its_value_or_its_error():
    assert run_sandboxed(math.hypot, 3, 4, seconds=NEVER) == 5
    with pytest.raises(ValueError, match="math domain"):
        run_sandboxed(math.sqrt, -1, seconds=NEVER)


def test_what_a_call_prints_is_no_answer():
    assert run_sandboxed(print, "hello", seconds=NEVER) is None


def test_a_call_that_hangs_is_ended():
    with pytest.raises(TookTooLong, match="sleep"):
        run_sandboxed(time.sleep, NEVER, seconds=0.5)


def test_a_call_that_nobody_wants_any_more_is_ended():
    asked = iter([True, True, False])
    with pytest.raises(Unwanted):
        run_sandboxed(time.sleep, NEVER, seconds=NEVER, wanted=lambda: next(asked))
    assert run_sandboxed(time.sleep, 0.5, seconds=NEVER, wanted=lambda: True) is None


def test_a_call_that_dies_is_told_apart_from_one_that_fails():
    with pytest.raises(Died):
        run_sandboxed(os._exit, 3, seconds=NEVER)
    with pytest.raises(Died):
        run_sandboxed(ctypes.string_at, 0, seconds=NEVER)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
def test_a_call_gets_no_more_memory_than_its_limit():
    assert len(run_sandboxed(bytes, 2**24, seconds=NEVER, memory=2**27)) == 2**24
    with pytest.raises(MemoryError):
        run_sandboxed(bytes, 2**28, seconds=NEVER, memory=2**27)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's work")
def test_a_call_that_works_too_long_is_ended_and_one_that_only_waits_is_not():
    with pytest.raises(TookTooLong, match="worked longer than 1 seconds"):
        run_sandboxed(math.factorial, 10**7, seconds=NEVER, work=1)
    assert run_sandboxed(time.sleep, 1.5, seconds=NEVER, work=1) is None


@pytest.mark.skipif(not hasattr(os, "nice"), reason="this system has no priorities of this kind")
def test_a_call_can_give_up_its_priority():
    own = os.nice(0)
    assert run_sandboxed(os.nice, 0, seconds=NEVER) == own
    assert run_sandboxed(os.nice, 0, seconds=NEVER, nice=7) == min(19, own + 7)

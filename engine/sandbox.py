"""Function calls in a separate process with limits on time and memory: for untrusted files and for libraries that crash.

The process starts fresh (no fork, and without the caller's main module) and imports only the function's module. The function must be
defined at module level; its arguments and its result must be picklable.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
START = "from engine.sandbox import serve; serve()"

GLANCE = 0.2  # seconds between checks that the result is still wanted
OUT_OF_WORK = getattr(signal, "SIGXCPU", 0)  # signal that ends a process at its limit of CPU time

Returned = TypeVar("Returned")


class TookTooLong(Exception):
    """The call exceeded its time limit and was killed."""


class Unwanted(Exception):
    """The result was no longer wanted, and the call was killed."""


class Died(Exception):
    """The process ended without a result: a crash, or no memory left."""


def run_sandboxed(
    function: Callable[..., Returned], *arguments: Any, seconds: float, memory: int | None = None, work: int | None = None, nice: int = 0,
    wanted: Callable[[], bool] | None = None,
) -> Returned:  # fmt: skip
    """The result of the function, run in another process. Exceptions of the function are raised here.

    seconds : time limit; the process is then killed and TookTooLong raised
    work    : the same for CPU time, where the system supports such limits; waiting on a busy machine does not count
    nice    : niceness of the process, 0 to 19, where the system supports it
    memory  : bytes it may allocate beyond its size at start, where the system supports such limits; a call that needs more raises
              MemoryError, or Died if a library ends the process
    wanted  : called repeatedly; once it returns False the process is killed and Unwanted raised
    """
    request = pickle.dumps((function.__module__, function.__qualname__, (memory, work, nice), arguments))
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    process = subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | one_thread,
    )
    try:
        answer = _answer(process, request, seconds, wanted)
    except subprocess.TimeoutExpired as e:
        raise TookTooLong(f"{function.__name__} took longer than {seconds:g} seconds") from e
    finally:
        process.kill()  # a process that hangs would never end
        process.communicate()
    if not answer and process.returncode == -OUT_OF_WORK:
        raise TookTooLong(f"{function.__name__} worked longer than {work} seconds")
    if not answer:
        raise Died(f"{function.__name__} ended its process with {process.returncode}")
    returned, result = pickle.loads(answer)
    if not returned:
        raise result
    return result


def _answer(process: subprocess.Popen, request: bytes, seconds: float, wanted: Callable[[], bool] | None) -> bytes:
    """The output of the process; raises TimeoutExpired, and Unwanted once `wanted` returns False."""
    deadline, sent = time.monotonic() + seconds, request
    while wanted is not None and time.monotonic() + GLANCE < deadline:
        if not wanted():
            raise Unwanted("nobody waits for the result any more")
        try:
            return process.communicate(sent, timeout=GLANCE)[0]
        except subprocess.TimeoutExpired:
            sent = None  # the process has received it
    return process.communicate(sent, timeout=deadline - time.monotonic())[0]


def serve() -> None:
    """Runs in the other process: reads one call from stdin and writes the result to stdout. Prints of the function go to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module, name, (memory, work, nice), arguments = pickle.load(sys.stdin.buffer)
    _yield_to_others(work, nice)
    function = getattr(importlib.import_module(module), name)
    if memory is not None:
        _limit(memory)
    try:
        answer = (True, function(*arguments))
    except Exception as e:
        answer = (False, e)
    with answers:
        pickle.dump(answer, answers)


def _yield_to_others(work: int | None, nice: int) -> None:
    """Lowers this process's priority, and ends it after `work` seconds of CPU time."""
    if nice and hasattr(os, "nice"):
        os.nice(nice)
    if work is None:
        return
    try:
        import resource
    except ImportError:  # Windows; the time limit still applies
        return
    resource.setrlimit(resource.RLIMIT_CPU, (work, work + 1))


def _limit(memory: int) -> None:
    """Limits this process to `memory` bytes more than it has now."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # Windows and macOS have no such limit; the time limit still applies
        return
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

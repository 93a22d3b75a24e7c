"""A call in a process of its own, with limits of time and memory: for work on strangers' files, and for libraries that crash.

The other process starts from nothing (no fork, and not the caller's main module), so it is as light as the module of the function. The
function is one of a module, its arguments and what it returns can be pickled.
"""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
START = "from engine.apart import serve; serve()"

Returned = TypeVar("Returned")


class TookTooLong(Exception):
    """The call was ended after its seconds."""


class Died(Exception):
    """The process of the call ended by itself, without an answer: a crash, or its memory."""


def apart(function: Callable[..., Returned], *arguments: Any, seconds: float, memory: int | None = None) -> Returned:
    """What the function returns, or raises, in another process.

    seconds : after which it is killed, which raises TookTooLong
    memory  : bytes that it may take on top of its start, where the system has such limits; a call that needs more raises MemoryError, or
              Died where a library takes the process down
    """
    asked = pickle.dumps((function.__module__, function.__qualname__, memory, arguments))
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    process = subprocess.Popen(
        [sys.executable, "-c", START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | one_thread,
    )
    try:
        answer, _ = process.communicate(asked, timeout=seconds)
    except subprocess.TimeoutExpired as e:
        raise TookTooLong(f"{function.__name__} took longer than {seconds:g} seconds") from e
    finally:
        process.kill()  # one that hangs would never end by itself
        process.communicate()
    if not answer:
        raise Died(f"{function.__name__} ended its process with {process.returncode}")
    returned, result = pickle.loads(answer)
    if not returned:
        raise result
    return result


def serve() -> None:
    """What the other process does: one call from its input, the answer to its output. Whatever is printed goes elsewhere."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    module, name, memory, arguments = pickle.load(sys.stdin.buffer)
    function = getattr(importlib.import_module(module), name)
    if memory is not None:
        _limit(memory)
    try:
        answer = (True, function(*arguments))
    except Exception as e:
        answer = (False, e)
    with answers:
        pickle.dump(answer, answers)


def _limit(memory: int) -> None:
    """Lets this process take so many bytes more than it has."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):  # Windows and macOS have no such limit; that of time holds there too
        return
    limit = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

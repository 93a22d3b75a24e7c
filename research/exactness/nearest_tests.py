"""The tests nearest to a file of the engine: their choice and their runs, and the server that runs them for mutation_score.py.

Nearest are, in this order: the claims of `verify`, with few draws, of the methods that import the file; and the files in tests/engine that
have its name or import it, or where there are none, all files in the folder of tests that mirrors its own, and in those of RELATED. Tests
that need a browser are left out, and those that only the whole suite runs come last. The first failure ends the run, and so does a number
of seconds of processor time, which is the same on a busy machine.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

RELATED = {"engine/methods": ("decoding", "tuning"), "engine/decoding": ("methods",)}  # folders of tests/engine
METHODS_AT_MOST = 4  # whose claims are tested for a file that many methods import
DETECTED = 0.2  # total variation distance
PATIENCE = 60  # seconds of processor time for a claim or a test; a mutant that never ends fails by it
WAITING = 1200  # seconds by the clock, for a mutant that waits instead


@lru_cache(maxsize=1000)
def imports(path: Path) -> frozenset[str]:
    """Names with dots that a Python file imports, itself or by helpers in tests/ and research/bench/."""
    names: set[str] = set()
    known, rest = set(), [path]
    while rest:
        file = rest.pop()
        if file in known or not file.is_file():
            continue
        known.add(file)
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        rest += [_file(name) for name in names if name.startswith(("tests.", "research.bench."))]
    return frozenset(names)


def nearest_methods(path: str) -> list[str]:
    """The names of the methods whose claims are tested for a file; none outside engine/decoding and engine/methods."""
    from engine.methods import METHODS

    module, reached = _module(path), []
    if not path.startswith(("engine/decoding", "engine/methods")):
        return []
    near = {module}
    for _ in range(2):  # importers, and their importers
        for name, method in METHODS.items():
            if name not in reached and near & {method.decode.__module__, *imports(_file(method.decode.__module__))}:
                reached.append(name)
        near |= {_module(each.as_posix()) for each in sorted(Path("engine/decoding").glob("*.py")) if imports(each) & near}
    return reached[:METHODS_AT_MOST]


def nearest_files(path: str) -> list[str]:
    """The files of tests for a file of the engine, nearest first."""
    tests = sorted(Path("tests/engine").rglob("test_*.py"))
    folder = Path(path).parent
    own = sorted((Path("tests") / folder).rglob("test_*.py"))
    related = [each for name in RELATED.get(folder.as_posix(), ()) for each in sorted(Path("tests/engine", name).rglob("test_*.py"))]
    named = [each for each in own if each.stem.startswith(f"test_{Path(path).stem}")]
    near = [*named, *(each for each in tests if _module(path) in imports(each))]
    return list(dict.fromkeys(each.as_posix() for each in near or own + related))


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _file(module: str) -> Path:
    return Path(*module.split(".")).with_suffix(".py")


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def failing_claim(methods: list[str], end: float) -> str | None:
    """The first claim that is false or raises an error; None if all hold, or the time is over."""
    from research.exactness import exactness

    for task in exactness.tasks(methods, False, DETECTED, mutants=False):
        if time.process_time() > end:
            break
        try:
            with _time_limit():
                z = exactness.measure(task)["z"]
        except Exception as error:  # whatever a wrong program raises
            return f"verify {task.key}: {type(error).__name__}"
        if not exactness.agrees(task, z):
            return f"verify {task.key}: z = {z:.0f}"
    return None


class FirstFailure:
    """A plugin of pytest: keeps the name of the first failure and stops when the time is over."""

    def __init__(self, end: float):
        self.end, self.name = end, None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the first failure."""
        if report.failed:
            self.name = self.name or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a failure too."""
        self.pytest_runtest_logreport(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fails a test that never ends."""
        with _time_limit():
            return (yield)

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Stops after the test that ends too late."""
        if time.process_time() > self.end:
            item.session.shouldstop = "the time is over"


def failing_test(tests: list[str], seconds: float) -> str | None:
    """The first failure of files or names of tests; None if there is none in this time."""
    plugin = FirstFailure(time.process_time() + seconds)
    for marks in ("not browser and not slow", "not browser and slow"):
        if plugin.name is None and time.process_time() < plugin.end:
            options = ["-q", "-p", "no:cacheprovider", "-m", marks, "-x"]
            pytest.main([*tests, *options], plugins=[plugin])
    return plugin.name


def first_failure(path: str, seconds: float) -> str | None:
    """The first claim or test that fails for a file of the engine; None if none does in this time."""
    end = time.process_time() + seconds
    failure = failing_claim(nearest_methods(path), end)
    return failure or failing_test(nearest_files(path), end - time.process_time())


# --- a process for each call ------------------------------------------------------------------------------------------


def serve() -> None:
    """Answers lines of standard input, [function, argument, seconds] in JSON, with its result: each in a process that starts with PyTorch,
    transformers and Triton imported, which takes five seconds, and nothing of the engine."""
    import torch
    import transformers
    import triton

    assert torch and transformers.LlamaForCausalLM and triton
    for line in sys.stdin:
        print(json.dumps(call_in_process(*json.loads(line))), flush=True)


def call_in_process(function: str, argument: str | list[str], seconds: float) -> str | None:
    """The result of `first_failure` or `failing_test`, or how its process ended without one."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(sender, function, argument, seconds))
    process.start()
    sender.close()
    if not receiver.poll(WAITING):
        process.kill()
        return "never ends"
    try:
        return receiver.recv()
    except EOFError:
        return "Python ends with an error"
    finally:
        process.join()


def _call(sender: Connection, function: str, argument: str | list[str], seconds: float) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sender.send({"first_failure": first_failure, "failing_test": failing_test}[function](argument, seconds))


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file: PYTHONPATH has the root
    serve()

"""Runs cases in forked children with limits on memory and time, and reports how each ended.

A child is a copy of this process, so PyTorch is imported once. It runs one case after another and reports each over a pipe; if it dies
or hangs, the case in progress is the cause, and a new child continues with the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from engine.errors import ForetokenError
from tests.faults.outcome import Outcome

WORKERS = 2
MEGABYTES = 600  # a case may hold beyond what the process holds already
SECONDS = 20  # of the processor's time; the clock on the wall depends on what else the machine does
PATIENCE = 120  # seconds on the wall, for a case that waits instead of working


@dataclass(frozen=True)
class Case:
    """A case to run. do() returns a few words about the value."""

    name: str
    do: Callable[[], str]


def run(cases: Sequence[Case], before: Callable[[], None] = lambda: None, seconds: int = SECONDS) -> list[Outcome]:
    """The outcomes of the cases, in order. before: called first in each child; seconds: limit of work per case."""
    lanes = [_Lane(list(range(k, len(cases), WORKERS)), cases, before, seconds) for k in range(min(WORKERS, len(cases)))]
    outcomes: dict[int, Outcome] = {}
    try:
        while busy := [lane for lane in lanes if lane.going]:
            ready, _, _ = select.select([lane.pipe for lane in busy], [], [], 1.0)
            for lane in busy:
                outcomes |= lane.hear() if lane.pipe in ready else lane.watch()
    finally:
        for lane in lanes:
            lane.kill()
    return [outcomes[i] for i in range(len(cases))]


class _Lane:
    """One child at a time, and the remaining cases."""

    def __init__(self, left: list[int], cases: Sequence[Case], before: Callable[[], None], seconds: int):
        self.left, self.cases, self.before, self.seconds = left, cases, before, seconds
        self.started = time.monotonic()
        self.pid, self.pipe, self.rest = 0, -1, b""
        self._fork()

    @property
    def going(self) -> bool:
        """True if cases are left."""
        return self.pid != 0

    def _fork(self) -> None:
        if not self.left:
            return
        self.pipe, ours = os.pipe()
        self.started, self.rest = time.monotonic(), b""
        self.pid = fork()
        if not self.pid:
            os.close(self.pipe)
            _child(ours, [self.cases[i] for i in self.left], self.before, self.seconds)
        os.close(ours)

    def hear(self) -> dict[int, Outcome]:
        """Reads what the child has written; at the end of the pipe it has died or finished."""
        data = os.read(self.pipe, 65_536)
        if not data:
            return self._collect()
        *lines, self.rest = (self.rest + data).split(b"\n")
        outcomes = {}
        for line in lines:
            outcomes[self.left.pop(0)] = Outcome(**json.loads(line))
            self.started = time.monotonic()
        return outcomes

    def watch(self) -> dict[int, Outcome]:
        """Ends a child whose case takes too long on the wall."""
        if time.monotonic() - self.started < PATIENCE:
            return {}
        os.kill(self.pid, signal.SIGKILL)
        return self._collect("slow")

    def _collect(self, end: str = "killed") -> dict[int, Outcome]:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.pipe)
        self.pid, outcomes = 0, {}
        if self.left:
            case = self.cases[self.left[0]]
            end = "slow" if status == -signal.SIGXCPU else end
            text = (
                f"the child ended with {status}" if end == "killed" else f"more than {self.seconds} s of work, or {PATIENCE} s of waiting"
            )
            outcomes[self.left.pop(0)] = Outcome(case.name, end, text)
            self._fork()
        return outcomes

    def kill(self) -> None:
        """Ends the child, if the parent was interrupted."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            os.close(self.pipe)


def fork() -> int:
    """os.fork. Newer Pythons warn if there are threads; ours hold no lock, and a child never uses more than one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _child(pipe: int, cases: list[Case], before: Callable[[], None], seconds: int) -> NoReturn:
    """Runs the cases and exits without the parent's exit handlers."""
    torch.set_num_threads(1)  # the parent's pool of threads does not exist in a child, and would be waited for
    try:
        before()
        for case in cases:
            with _limits(seconds):
                outcome = _outcome(case)
            os.write(pipe, json.dumps(asdict(outcome)).encode() + b"\n")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(70)


def _outcome(case: Case) -> Outcome:
    try:
        end, text = "value", case.do()
    except ForetokenError as e:
        end, text = "sentence", str(e)
    except Exception:
        end, text = "bug", traceback.format_exc(limit=-6)
    return Outcome(case.name, end, text.encode("utf-8", "replace").decode())


def _writable() -> float:
    """The writable memory of this process, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmData:"))


@contextlib.contextmanager
def _limits(seconds: int) -> Iterator[None]:
    """Limits memory and processor time inside the block: allocations fail, and SIGXCPU ends the child.

    RLIMIT_DATA counts writable memory. RLIMIT_AS would also count address space, of which PyTorch reserves gigabytes.
    """
    previous = [(which, resource.getrlimit(which)) for which in (resource.RLIMIT_DATA, resource.RLIMIT_CPU)]
    resource.setrlimit(resource.RLIMIT_DATA, (_below(int((_writable() + MEGABYTES) * 2**20), previous[0][1][1]), previous[0][1][1]))
    resource.setrlimit(resource.RLIMIT_CPU, (_below(int(time.process_time()) + seconds, previous[1][1][1]), previous[1][1][1]))
    try:
        yield
    finally:
        for which, limits in previous:
            resource.setrlimit(which, limits)


def _below(wanted: int, hard: int) -> int:
    """The wanted limit, or the hard one if it is lower."""
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def run_once(do: Callable[[], Any]) -> tuple[int, str]:
    """Runs a function in a separate child; returns its exit status (negative: the signal that ended it) and the words it returned or, with
    status 3, the sentence, or with status 70 the traceback; 124 if it hangs."""
    pipe, ours = os.pipe()
    pid = fork()
    if not pid:
        os.close(pipe)
        torch.set_num_threads(1)
        try:
            status, text = 0, str(do())
        except ForetokenError as e:
            status, text = 3, str(e)
        except BaseException:
            status, text = 70, traceback.format_exc(limit=-6)
        os.write(ours, text.encode("utf-8", "replace")[:60_000])
        os._exit(status)
    os.close(ours)
    output, hangs = b"", False
    while not (hangs := not select.select([pipe], [], [], PATIENCE)[0]) and (data := os.read(pipe, 65_536)):
        output += data
    if hangs:
        os.kill(pid, signal.SIGKILL)
    os.close(pipe)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return (124, f"it was waited for longer than {PATIENCE} s") if hangs else (status, output.decode())

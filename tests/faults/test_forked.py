"""The harness itself: it distinguishes all outcomes, and the cases after a bad one still run."""

from __future__ import annotations

import errno
import mmap
import os
import signal
from pathlib import Path
from random import Random

import numpy as np
import pytest

from engine.errors import BadFile
from tests.faults import forked, mutate
from tests.faults.faulty_disk import Disk, full_at
from tests.faults.forked import MEGABYTES, Case
from tests.faults.mutate import BYTES, TEXT
from tests.faults.outcome import Outcome
from tests.faults.sentences import hold, wrong


def refuse() -> str:
    raise BadFile("The file is empty. Export it again.")


def fail() -> str:
    raise KeyError("a bug")


def die() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def spin() -> str:
    while True:
        pass


def grow(megabytes: int) -> str:
    return f"{np.ones(megabytes * 2**17).sum():.0f}"


def map_memory(megabytes: int) -> str:
    """Allocates new memory, so that freed memory of the process is not reused."""
    numbers = np.frombuffer(mmap.mmap(-1, megabytes * 2**20))
    numbers += 1
    return f"{numbers.sum():.0f}"


def test_every_end_is_told_from_the_others() -> None:
    work = {"value": lambda: "fine", "sentence": refuse, "bug": fail, "killed": die, "slow": spin}
    names = [*work, *work]  # a child that has died or was ended is followed by another one
    outcomes = forked.run([Case(name, work[name]) for name in names], seconds=1)
    assert [o.end for o in outcomes] == names
    assert outcomes[1].text == "The file is empty. Export it again." and "KeyError: 'a bug'" in outcomes[2].text


def test_memory_is_limited() -> None:
    held = Path("/proc/self/statm").read_text().split()[5]  # pages that can be written to; a block larger than all of them is a new one
    too_much = int(held) * mmap.PAGESIZE // 2**20 + 2 * MEGABYTES
    small, large = forked.run([Case("small", lambda: map_memory(100)), Case("large", lambda: grow(too_much))])
    assert small.end == "value"
    assert large.end == "bug" and "MemoryError" in large.text


def test_a_faulty_disk_fails_where_it_is_told_to(tmp_path: Path) -> None:
    def write(at: int, error: int) -> str:
        disk = Disk(tmp_path / "disk", at, error)
        disk.install()
        for k in range(3):
            (tmp_path / "disk" / f"{k}").write_text("x")
            (tmp_path / f"elsewhere {k}").write_text("x")
        return f"{disk.count}"

    (tmp_path / "disk").mkdir()
    assert forked.run_once(lambda: write(0, 1)) == (0, "3")
    status, text = forked.run_once(lambda: write(2, errno.ENOSPC))
    assert status == 70 and "No space left on device" in text
    assert forked.run_once(lambda: write(3, 0))[0] == -signal.SIGKILL


@pytest.mark.parametrize("deadly", [False, True])
def test_a_full_disk_refuses_or_ends_the_process(deadly: bool, tmp_path: Path) -> None:
    def write() -> str:
        full_at(100, deadly)
        (tmp_path / "file").write_bytes(bytes(1000))
        return "written"

    status, text = forked.run_once(write)
    assert status == -signal.SIGXFSZ if deadly else status == 70 and "File too large" in text
    assert (tmp_path / "file").stat().st_size == 100


def test_mutators_change_what_they_are_given_and_are_the_same_every_time() -> None:
    content = b'{"a": [1, 2.5, {"b": "text"}], "c": 7}\n' * 3
    for mutator in {*BYTES, *TEXT}:
        mutants = [mutator(Random(seed), content) for seed in range(20)]
        assert mutants == [mutator(Random(seed), content) for seed in range(20)]
        assert len(set(mutants) - {content}) > 1, mutator.__name__
    tree = {"a": [1, {"b": None}], "c": "x"}
    assert sum(mutate.tree(Random(seed), tree) != tree for seed in range(50)) > 40 and tree == {"a": [1, {"b": None}], "c": "x"}


@pytest.mark.parametrize("text", ["", "no end", "two\nlines.", "Traceback (most recent call last).", "x" * 900 + ".", "a <class 'int'>."])
def test_what_is_no_sentence(text: str) -> None:
    assert wrong(text)


def test_bad_ends_fail_a_test_and_good_ones_do_not() -> None:
    good = [Outcome("a", "value", ""), Outcome("b", "sentence", "The file is empty. Export it again.")]
    hold(good)
    for end, text in (("bug", "KeyError"), ("killed", ""), ("slow", ""), ("sentence", "no end")):
        with pytest.raises(pytest.fail.Exception, match="1 cases failed"):
            hold([*good, Outcome("c", end, text)])

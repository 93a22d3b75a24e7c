"""Kills a child process with SIGKILL at its n-th call that touches the disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

TOUCHES = ("open", "rename", "replace", "fsync", "mkdir", "unlink", "rmdir", "chmod", "link", "scandir")


def ends_within(calls: int, action: Callable[[], object]) -> bool:
    """Runs an action in a child that is killed before its call number `calls`; True if the action ended first. An error in it fails the
    test."""
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    child = os.fork()
    if child == 0:
        _die_at(calls)
        try:
            action()
        except BaseException:  # a child must never go on as a second pytest
            os._exit(3)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the action failed"
    return True


def _die_at(calls: int) -> None:
    left = calls

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def one(*arguments: object, **settings: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **settings)

        return one

    for name in TOUCHES:
        if hasattr(os, name):
            setattr(os, name, counted(getattr(os, name)))

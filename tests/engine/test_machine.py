"""Requests of the process to the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from engine.errors import NotSupported
from engine.machine import device_of

FAULTS = """
import resource
import torch
from engine.machine import keep_freed_memory

def faults_of_a_block():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(16_000_000).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_a_block()
print(faults_of_a_block())
assert keep_freed_memory()
for _ in range(6):  # an aligned block needs a few bytes more than a freed one of its size has: two or three are kept before one fits
    faults_of_a_block()
print(faults_of_a_block())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    """In a separate process, because the setting stays."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before / 10


@pytest.mark.parametrize(
    ("name", "there", "expected"),
    [
        ("auto", True, "cuda"),
        ("auto", False, "cpu"),
        ("cpu", True, "cpu"),
        ("cuda", True, "cuda"),
        ("cuda:0", True, "cuda:0"),
        ("meta", False, "meta"),
    ],
)
def test_auto_is_cuda_where_there_is_one_and_a_named_device_is_that_device(name: str, there: bool, expected: str) -> None:
    assert device_of(name, lambda: there) == expected


@pytest.mark.parametrize(
    ("name", "sentence"), [("cuda", "No CUDA device is visible"), ("cuda:1", "No CUDA"), ("abacus", "There is no device 'abacus'")]
)
def test_a_device_that_is_not_there_is_refused_and_never_replaced(name: str, sentence: str) -> None:
    with pytest.raises(NotSupported, match=sentence):
        device_of(name, lambda: False)


def test_by_default_pytorch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device_of() == device

"""What the process asks of the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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
    """In a process of its own, because the setting stays."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert after < before / 10

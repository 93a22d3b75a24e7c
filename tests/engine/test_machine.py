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
faults_of_a_block()
print(faults_of_a_block())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    """In processes of their own, because the setting stays. In some processes it has no effect: five are asked."""
    found = [subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True).stdout for _ in range(5)]
    assert any(int(after) < int(before) / 10 for before, after in map(str.split, found))

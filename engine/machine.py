"""Facts about the machine and the code that a measurement depends on; they are stored with every measurement, run and card."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from engine.assets import checkout
from engine.errors import NotSupported

WITHOUT_FLOAT64 = ("mps",)  # types of devices
DEVICES = ("auto", "cpu", "cuda", "mps")  # values of --device


def processor() -> str:
    """The processor's name and the number of cores."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    name = next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), platform.machine())
    return f"{name}, {os.cpu_count()} cores"


def device_of(name: str = "auto", sees_cuda: Callable[[], bool] | None = None, sees_mps: Callable[[], bool] | None = None) -> str:
    """The device of PyTorch of this name; "auto" is cuda where PyTorch sees it, else cpu.

    sees_cuda, sees_mps : whether there is a CUDA device or Apple's GPU (None: as PyTorch says)
    Raises NotSupported for a device that PyTorch does not know, and for cuda or mps where there is none; never falls back.
    """
    sees_cuda = sees_cuda or torch.cuda.is_available
    if name == "auto":
        return "cuda" if sees_cuda() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError as e:
        raise NotSupported(f"There is no device '{name}'. Choose {', '.join(DEVICES[:-1])} or {DEVICES[-1]}.") from e
    if kind == "cuda" and not sees_cuda():
        raise NotSupported("No CUDA device is visible to PyTorch here. Use the device cpu, or see: python launch.py doctor")
    if kind == "mps" and not (sees_mps or torch.backends.mps.is_available)():
        raise NotSupported("No GPU of Apple is visible to PyTorch here. Use the device cpu; mps needs a Mac with Apple's chips.")
    return name


def widest_float(device: torch.device) -> torch.dtype:
    """The widest floating-point type of a device: float64, but float32 on Apple's GPUs."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


@lru_cache(maxsize=1)
def commit() -> str:
    """The commit this code runs from, or "unknown" outside a checkout."""
    folder = checkout()
    if folder is None:  # an installed wheel may be inside an unrelated repository
        return "unknown"
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    except OSError:  # no git
        return "unknown"
    return process.stdout.strip() or "unknown"


def has_matrix_units() -> bool:
    """True where the processor has matrix units for bfloat16 (AMX)."""
    return torch.cpu._is_amx_tile_supported()


def has_fast_bfloat16() -> bool:
    """True where bfloat16 matrix products run in hardware (AMX, or AVX-512's dot products); other CPUs emulate them slowly."""
    return has_matrix_units() or torch.cpu._is_avx512_bf16_supported()


def has_bfloat16(device: torch.device) -> bool:
    """True if products in bfloat16 are no emulation there: on any GPU, Apple's from macOS 14 on, and on some CPUs."""
    if device.type == "mps":
        return torch.backends.mps.is_macos_or_newer(14, 0)
    return device.type != "cpu" or has_fast_bfloat16()


def keep_freed_memory() -> bool:
    """Returns whether the C library now keeps all freed memory for later use; only glibc can. By default it returns large blocks to the
    system, which clears them before the next use; that took a fifth of a training step on a CPU."""
    if platform.libc_ver()[0] != "glibc":
        return False
    trim_threshold, most_mapped = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX in malloc.h
    library = ctypes.CDLL(None)
    return bool(library.mallopt(trim_threshold, -1)) and bool(library.mallopt(most_mapped, 0))


def machine_facts() -> dict[str, Any]:
    """The facts by name, ready for JSON."""
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "fast_bfloat16": has_fast_bfloat16(),
        "cuda": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "commit": commit(),
    }

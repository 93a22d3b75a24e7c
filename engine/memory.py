"""Memory that a model needs, estimated before it is loaded: weights, key/value cache, distributions of a pass, noise, picture decoder.

An adapter calls `check` once it knows its configuration. An operating system that runs out of memory kills a process without a message,
so a model that does not fit is refused beforehand, with a sentence on what would fit.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch

from engine.cache import WHOLE_ROWS
from engine.errors import TooLittleMemory
from engine.noise.kernel import KEPT

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
FULL, INT8, NF4 = "full", "int8", "nf4"  # forms of the linear layers' weights, see engine/kernels/compressed_linear.py
FORMS = (FULL, INT8, NF4)
NF4_BLOCK = 64  # numbers of a block with one scale
WINDOW = 32  # drafts of a pass that an estimate assumes
DECODER_CHANNELS, DECODER_COPIES = 128, 8  # a picture decoder's last layers: float32 numbers per pixel, and buffers alive at once
GROUP = Path("/sys/fs/cgroup")  # the memory limit of a container


@dataclass(frozen=True)
class Size:
    """The numbers of a configuration that memory depends on.

    parameters : numbers of the weights that stay loaded, picture decoder included
    linear     : those of them in the decoder's linear layers, which can be compressed; 0 if they cannot
    layers, heads, width : of the key/value cache; `heads` counts key heads, `width` is one head's
    slots      : rows of the cache in one branch: prompt, sequence and drafts
    vocabulary : logits of a row, after the head is cut to legal ids
    pixels     : of the picture that is decoded at the end; 0 without a decoder
    branches   : sequences in a batch: 2 with guidance
    """

    parameters: int
    layers: int
    heads: int
    width: int
    slots: int
    vocabulary: int
    pixels: int = 0
    branches: int = 2
    linear: int = 0


@dataclass(frozen=True)
class Need:
    """Bytes by purpose."""

    weights: int
    cache: int
    passes: int
    noise: int
    picture: int

    @property
    def total(self) -> int:
        """The sum of all bytes."""
        return self.weights + self.cache + self.passes + self.noise + self.picture

    def __str__(self) -> str:
        parts = {"weights": self.weights, "cache": self.cache, "distributions": self.passes, "noise": self.noise, "picture": self.picture}
        return ", ".join(f"{name} {size_text(count)}" for name, count in parts.items() if count)


def need(size: Size, dtype: str, window: int = WINDOW, weights: str = FULL) -> Need:
    """The bytes of a run in this dtype, with linear layers in this form.

    A row of a pass has its logits in the dtype and in float32 for every branch, then scores, p, q and the sorted values and indices of
    top-p, all of the vocabulary's width. The noise is counted for a run on a CPU; a GPU computes it where needed.
    """
    each = BYTES[dtype]
    row = size.vocabulary * (size.branches * (each + 4) + 3 * 4 + 4 + 8)
    return Need(
        weights=(size.parameters - size.linear) * each + linear_bytes(size, each, weights),
        cache=2 * size.layers * size.branches * size.heads * size.width * size.slots * each,
        passes=(window + 1) * row,
        noise=min(4 * size.vocabulary * size.slots, KEPT),
        picture=size.pixels * DECODER_CHANNELS * DECODER_COPIES * 4,
    )


def linear_bytes(size: Size, each: int, weights: str) -> int:
    """Bytes of the linear layers. Compressed ones are expanded one at a time; the largest has less than half of the numbers of its block.

    each : bytes of a number of the model's dtype, which scales have too. Those of int8, one per output channel, are not counted.
    """
    if weights == FULL:
        return size.linear * each
    stored = size.linear if weights == INT8 else size.linear // 2 + size.linear * each // NF4_BLOCK
    return stored + size.linear * each // (2 * max(1, size.layers))


def check(
    name: str, size: Size, device: str | torch.device, dtype: str, window: int = WINDOW, room: int | None = None, weights: str = FULL
) -> Need:
    """The bytes of a run; raises TooLittleMemory, with what would fit, if the device has less.

    name : of the model, for the message; room : free bytes (default: the device's; where these are unknown, nothing is refused)
    """
    kind = torch.device(device).type
    if kind == "cuda":
        size = replace(size, slots=-(-size.slots // WHOLE_ROWS) * WHOLE_ROWS)
    wanted = need(size, dtype, window, weights)
    here = free(device) if room is None else room
    if here is None or wanted.total <= here:
        return wanted
    raise TooLittleMemory(
        f"{name} needs {size_text(wanted.total)} in {dtype}{'' if weights == FULL else f' with {weights} weights'} ({wanted}), and "
        f"{size_text(here)} are free on the device {kind}. "
        + advice(size, dtype, window, here, weights)
        + on_several_cards(device, wanted.total)
    )


def on_several_cards(device: str | torch.device, needed: int) -> str:
    """A sentence on what is missing, if all graphics cards together have the bytes that one lacks; else ""."""
    count = torch.cuda.device_count() if torch.device(device).type == "cuda" else 1
    if count < 2 or sum(free(f"cuda:{i}") for i in range(count)) < needed:
        return ""
    return (
        f" The {count} graphics cards together have enough, but a model runs on one: its layers, and each layer's part of the key/value "
        "cache, cannot be divided among cards yet."
    )


def check_host(name: str, size: Size, device: str | torch.device, dtype: str, weights: str = FULL) -> None:
    """Raises TooLittleMemory if this machine's free memory, where it is known, cannot hold a model whose files are read as a whole before
    they are compressed or moved to the device."""
    if weights == FULL and torch.device(device).type == "cpu":
        return  # `check` has counted them
    wanted, here = size.parameters * BYTES[dtype], free("cpu")
    if here is not None and wanted > here:
        step = "moved to the device" if weights == FULL else "compressed"
        raise TooLittleMemory(
            f"{name} is read into this machine's memory before it is {step}. That takes {size_text(wanted)} in {dtype}, and "
            f"{size_text(here)} are free. Close other programs."
        )


def advice(size: Size, dtype: str, window: int, room: int, weights: str = FULL) -> str:
    """Advice on what fits into `room` bytes, as one sentence."""
    smaller, forms = replace(size, branches=1), (INT8, NF4) if size.linear else ()
    for other, form, kind in product((size, smaller), (weights, *forms), (dtype, "bfloat16")):
        needed = need(other, kind, window, form).total
        if needed <= room and (other, form, kind) != (size, weights, dtype):
            options = f"--dtype {kind} " * (kind != dtype) + f"--weights {form} " * (form != weights)
            guidance = "" if other is size else "with guidance 1" if options else "guidance 1"
            return f"Use {(options + guidance).strip()}: that needs {size_text(needed)}."
    least = need(smaller, "bfloat16", window, NF4 if forms else FULL)
    if forms:
        return f"It needs {size_text(least.total)} at the least, in bfloat16 with nf4 weights and guidance 1; free some memory."
    spare = room - (least.total - least.weights)
    most = spare / BYTES["bfloat16"]
    other = f", or use a checkpoint of at most {most / 1e9:.1f} billion parameters" if most >= 1e8 else ""
    return f"It needs {size_text(least.total)} at the least, in bfloat16; free some memory{other}."


def size_text(count: int) -> str:
    """A number of bytes as text."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


# --- what is free -----------------------------------------------------------------------------------------------------


def free(device: str | torch.device = "cpu") -> int | None:
    """Free bytes of a device; None where the system does not report them. On a CPU, the lower of the machine's and the container's."""
    target = torch.device(device)
    if target.type == "cuda":
        held = torch.cuda.memory_reserved(target) - torch.cuda.memory_allocated(target)  # by PyTorch, of models that are gone
        return torch.cuda.mem_get_info(target)[0] + held
    if target.type not in ("cpu", "mps"):
        return None
    known = [count for count in (of_machine(), *of_container()) if count is not None]
    if target.type == "mps":  # shares the machine's memory, of which Metal gives it a part
        known.append(torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory())
    return min(known, default=None)


def of_machine() -> int | None:
    """Free bytes of the machine; on macOS all of its memory, because the system frees what it needs."""
    if sys.platform == "win32":
        return _of_windows()
    info = Path("/proc/meminfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text(encoding="ascii").splitlines() if ":" in line)
        return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def of_container(group: Path = GROUP) -> Iterator[int]:
    """Bytes that a container may still take, if it has a limit; pages of files that are only cached count as free."""
    for folder, limit, used, cached in (
        (group, "memory.max", "memory.current", "inactive_file"),
        (group / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = (folder / limit).read_text(encoding="ascii").strip()
            taken = int((folder / used).read_text(encoding="ascii"))
            stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        except OSError:  # no such group here
            continue
        if most.isdecimal():
            yield int(most) - taken + int(stat.get(cached, 0))


class _Status(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("length", ctypes.c_ulong), ("load", ctypes.c_ulong),
        *((name, ctypes.c_ulonglong) for name in ("total", "free", "page_total", "page_free", "own_total", "own_free", "extended")),
    )  # fmt: skip


def _of_windows() -> int | None:
    status = _Status(length=ctypes.sizeof(_Status))
    return status.free if ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)) else None

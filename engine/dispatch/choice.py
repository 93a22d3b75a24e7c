"""Which implementation of a kernel runs, and why: Triton's on an NVIDIA GPU, the PyTorch reference elsewhere.

The environment variable FORETOKEN_KERNELS overrides this: `reference`, `triton` or `native`. Native functions run whole layers of our own
networks on a CPU; engine/kernels/cpu/library.py chooses them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

import torch

from engine.dispatch.language import is_interpreted, version
from engine.errors import NotSupported

VARIABLE = "FORETOKEN_KERNELS"
REFERENCE, TRITON, NATIVE = "reference", "triton", "native"
COMPUTED = (torch.float32, torch.float16, torch.bfloat16)  # the types that kernels read; they compute in float32


@dataclass(frozen=True)
class KernelChoice:
    """reason : one sentence"""

    name: str
    reason: str

    @property
    def is_triton(self) -> bool:
        """True if Triton's kernel runs."""
        return self.name == TRITON


def requested_kernel() -> str:
    """The value of FORETOKEN_KERNELS, "" if unset; raises NotSupported for an unknown value."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", REFERENCE, TRITON, NATIVE):
        raise NotSupported(f"{VARIABLE}={wanted} is unknown. Set it to {REFERENCE}, {TRITON} or {NATIVE}, or unset it.")
    return wanted


def choose(device: torch.device | str, dtype: torch.dtype = torch.float32) -> KernelChoice:
    """The implementation for tensors of a device and type; raises NotSupported if FORETOKEN_KERNELS names one that cannot run here."""
    wanted = requested_kernel()
    return _choose(torch.device(device), dtype, wanted, version(), wanted != REFERENCE and is_interpreted())


@lru_cache(maxsize=256)
def _choose(device: torch.device, dtype: torch.dtype, wanted: str, triton: str | None, interpreted: bool) -> KernelChoice:
    """`choose` as a function of everything it depends on, cached, because a step calls it several times."""
    if wanted == REFERENCE:
        return KernelChoice(REFERENCE, f"{VARIABLE}={REFERENCE}.")
    if dtype not in COMPUTED:
        return KernelChoice(REFERENCE, f"The kernels compute in float32, and these numbers are {str(dtype).removeprefix('torch.')}.")
    if device.type == "meta":
        return KernelChoice(TRITON, "Tensors of the meta device have no values; their shapes are those on an NVIDIA GPU.")
    missing = _missing(device, triton, interpreted)
    if wanted == TRITON:
        if missing:
            raise NotSupported(f"{VARIABLE}={TRITON} does not work here. {missing} Set it to {REFERENCE}, or unset it.")
        return KernelChoice(TRITON, f"{VARIABLE}={TRITON}.")
    if missing or device.type != "cuda":
        return KernelChoice(REFERENCE, missing or "The tensors are not on an NVIDIA GPU.")
    return KernelChoice(TRITON, f"Triton {triton} on an NVIDIA GPU.")


def _missing(device: torch.device, triton: str | None, interpreted: bool) -> str:
    """A sentence on what Triton's kernels lack for tensors of a device; "" if nothing."""
    if triton is None:
        return "Triton is not installed."
    if device.type != "cuda" and not interpreted:
        return f"The tensors are on the device '{device.type}', and Triton's kernels need an NVIDIA GPU (or TRITON_INTERPRET=1, in tests)."
    return ""

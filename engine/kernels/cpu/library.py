"""The functions of blocks.c, compiled once by the machine's C compiler and cached.

`native(dtype)` chooses: FORETOKEN_KERNELS=native asks for them, `reference` and `triton` refuse them, and by default they run where gcc
or clang compiles them. The library is in the user's cache under a name that changes with the source, the flags, the compiler
and the processor, so nothing stale is ever loaded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import cffi
import torch

from engine.dispatch.choice import NATIVE, REFERENCE, VARIABLE, KernelChoice, requested_kernel
from engine.errors import NotSupported
from engine.files import whole_file

FOLDER = Path(__file__).parent
SOURCE, HEADER = FOLDER / "blocks.c", FOLDER / "blocks.h"
FLAGS = ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-march=native", "-ffp-contract=fast", "-fopenmp", "-shared", "-fPIC")
COMPILERS = ("cc", "gcc", "clang")
PATIENCE = 300  # seconds that a compiler gets; it needs two on a quiet machine


class CompiledLibrary:
    """The compiled functions of blocks.h, and `ffi`, which makes its structures."""

    def __init__(self, path: Path):
        """Raises OSError for a file that is not a library for this machine."""
        self.ffi = cffi.FFI()
        self.ffi.cdef(HEADER.read_text(encoding="utf-8"))
        self.blocks = self.ffi.dlopen(str(path))
        self.lanes, self.multiplies_half = self.blocks.lanes(), bool(self.blocks.multiplies_half())
        self.has_units = bool(self.blocks.ask_for_units())  # the matrix units of AMX, for products in bfloat16


def native(dtype: torch.dtype = torch.float32) -> CompiledLibrary | None:
    """The library if it is chosen for products in a type on a CPU; None if not. `native_choice` says why. Raises NotSupported if
    FORETOKEN_KERNELS asks for what cannot run here."""
    return build()[0] if native_choice(dtype).name == NATIVE else None


def native_choice(dtype: torch.dtype = torch.float32) -> KernelChoice:
    """Which functions run the passes of our own networks on a CPU: native ones, or PyTorch's (the reference)."""
    wanted = requested_kernel()
    if wanted not in ("", NATIVE):
        return KernelChoice(REFERENCE, f"{VARIABLE}={wanted}.")
    library, reason = build()
    if library is None and wanted:
        raise NotSupported(f"{VARIABLE}={NATIVE} does not work here. {reason} Set it to {REFERENCE}, or unset it.")
    if library is not None and dtype != torch.float32 and not (dtype == torch.bfloat16 and library.multiplies_half):
        library, reason = None, f"The processor has no instruction for products in {str(dtype).removeprefix('torch.')}."
    return KernelChoice(REFERENCE if library is None else NATIVE, reason)


@lru_cache(maxsize=1)
def build() -> tuple[CompiledLibrary | None, str]:
    """The library, compiled if it is not there yet, and how it was compiled; or None and the reason."""
    compiler = next((path for name in (os.environ.get("CC", ""), *COMPILERS) if name and (path := shutil.which(name))), None)
    if compiler is None:
        return None, f"No C compiler was found ({', '.join(COMPILERS)})."
    try:
        path = folder() / f"{_fingerprint(compiler)}.so"
        if not path.exists():
            _compile(compiler, path)
        return CompiledLibrary(path), f"Compiled by {compiler}."
    except subprocess.CalledProcessError as e:
        message = (e.stderr.strip().splitlines() or ["it said nothing"])[0]
        return None, f"{compiler} does not compile blocks.c ({message})."
    except (OSError, subprocess.TimeoutExpired) as e:
        return None, f"blocks.c could not be compiled or loaded ({e})."


def folder() -> Path:
    """Folder of libraries in the user's cache, because they can be compiled again at any time."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "foretoken" / "native"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "foretoken" / "native"


def _fingerprint(compiler: str) -> str:
    """The library's file name, which changes with everything that its code depends on."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    parts = (
        *(source.read_text(encoding="utf-8") for source in (SOURCE, HEADER)),
        " ".join(FLAGS),
        version,
        platform.platform(),
        flags,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _compile(compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        subprocess.run(
            [compiler, *FLAGS, "-o", str(part), str(SOURCE), "-lm"], capture_output=True, text=True, check=True, timeout=PATIENCE
        )

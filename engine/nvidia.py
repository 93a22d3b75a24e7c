"""The NVIDIA driver of this machine, and the reason if PyTorch sees no GPU although there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache

import torch

PATIENCE = 20  # seconds for nvidia-smi
OLDEST_DRIVERS = {12: 525, 13: 580}  # by the major version of CUDA that PyTorch was built for


@lru_cache(maxsize=1)
def driver() -> str | None:
    """Version of the NVIDIA driver; "" if nvidia-smi is installed and reports none, None if it is not installed."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    version = output.partition("\n")[0].strip()
    return version if version[:1].isdigit() else ""


def why_unseen(version: str | None, cuda: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """A sentence on why PyTorch sees no NVIDIA GPU.

    version : of the driver, as `driver` returns it; cuda : that PyTorch was built for, None = for the processor
    """
    if version is None:
        return "There is no NVIDIA driver: nvidia-smi is not installed."
    if not version:
        return "The program nvidia-smi is installed but reports no driver. Restart the machine, or install the driver again."
    if cuda is None:
        return f"The NVIDIA driver is {version}, but this PyTorch is for the processor. Start with: python launch.py --torch cuda"
    oldest = OLDEST_DRIVERS.get(int(cuda.split(".")[0]), 0)
    if int(version.split(".")[0]) < oldest:
        older = ", or start with: python launch.py --torch cu126" if int(version.split(".")[0]) >= OLDEST_DRIVERS[12] else "."
        return f"This PyTorch needs driver {oldest} or newer for CUDA {cuda}, and the driver is {version}. Update it{older}"
    if "CUDA_VISIBLE_DEVICES" in environment:
        return f"CUDA_VISIBLE_DEVICES={environment['CUDA_VISIBLE_DEVICES']} hides every GPU. Unset it."
    return f"The driver is {version} and PyTorch is built for CUDA {cuda}, but it finds no GPU. See what nvidia-smi lists."


def unused_gpu() -> str:
    """A sentence if there is an NVIDIA driver and PyTorch sees no GPU, else ""."""
    if torch.cuda.is_available() or driver() is None:
        return ""
    return why_unseen(driver(), torch.version.cuda)

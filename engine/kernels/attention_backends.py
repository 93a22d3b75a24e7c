"""The implementations of attention that PyTorch may choose on an NVIDIA GPU for masked attention: all but cuDNN's.

PyTorch 2.13 prefers cuDNN on compute capability 9.0 and 10.0. cuDNN builds a plan for each new number of keys, and
every pass has more keys than the last.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def without_cudnn(device: torch.device) -> AbstractContextManager[None]:
    """Context in which scaled_dot_product_attention on an NVIDIA GPU does not use cuDNN; does nothing on other devices."""
    return sdpa_kernel(BACKENDS) if device.type == "cuda" else nullcontext()

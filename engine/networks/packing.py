"""Storage of weights: few bytes per number, few megabytes per file.

Matrices are stored as eight-bit integers with a scale for each row (the last axis), which is exact to 0.4 % of a row's largest weight.
Everything else, convolutions included, is stored in half precision. Reading always returns float32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

FILE_LIMIT = 9_000_000  # bytes per weights file
SCALE = ".scale"  # the suffix of the name of an integer matrix's scales
LARGE = 4096  # elements; a smaller matrix stays in half precision


def pack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Converts tensors for storage: large matrices [..., R, C] to integers with scales [..., R, 1], all others to half precision."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim in (2, 3) and tensor.numel() >= LARGE:
            scale = tensor.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
            stored[name] = (tensor / scale).round().to(torch.int8)
            stored[name + SCALE] = scale
        else:
            stored[name] = tensor.half()
    return {k: v.contiguous().cpu() for k, v in stored.items()}


def unpack(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The float32 tensors of a file that `pack` wrote, or of any other tensor file; raises ValueError if they cannot be weights."""
    scales = {k + SCALE for k, v in stored.items() if v.dtype == torch.int8}
    tensors = {}
    for name, tensor in stored.items():
        if name in scales:
            continue
        if name + SCALE in scales:
            scale = stored.get(name + SCALE)
            if scale is None or not scale.is_floating_point() or scale.shape != (*tensor.shape[:-1], 1):
                raise ValueError(f"the integers '{name}' have no scale of their shape")
            tensor = tensor * scale
        elif not tensor.is_floating_point():
            raise ValueError(f"'{name}' holds {str(tensor.dtype).removeprefix('torch.')}, not weights")
        tensors[name] = tensor.float()
        if not torch.isfinite(tensors[name]).all():
            raise ValueError(f"'{name}' holds numbers that are not finite")
    return tensors


def part_files(folder: Path, name: str) -> list[Path]:
    """The files NAME-1.safetensors, NAME-2... of a model's split weights."""
    return sorted(folder.glob(f"{name}-*.safetensors"))


def split(tensors: Mapping[str, Tensor], name: str) -> dict[str, dict[str, Tensor]]:
    """Weights divided among files NAME-1.safetensors, NAME-2..., each below the size limit."""
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for key, tensor in tensors.items():
        if size + tensor.numel() * 2 > FILE_LIMIT and files[-1]:
            files.append({})
            size = 0
        files[-1][key] = tensor
        size += tensor.numel() * 2
    return {f"{name}-{i + 1}.safetensors": part for i, part in enumerate(files)}


def count(names: Iterable[str], prefix: str) -> int:
    """The number of numbered parts: 1 + the largest number after a prefix of the names; 0 if there is none."""
    return 1 + max((int(name.removeprefix(prefix).split(".")[0]) for name in names if name.startswith(prefix)), default=-1)
